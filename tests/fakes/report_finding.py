# SPDX-License-Identifier: Apache-2.0
"""A finder of reports with sources that count, block and fail as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandTimedOut
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.viewer import Viewer
from slurmscope.reports.find import Outages, ReportFinder
from slurmscope.reports.make import ReportMaker
from tests.fakes.reporting import FakeAccounting, FakeArchive, FakeSeries
from tests.fakes.reports import START

ADA = Viewer(name="ada")

BOB = Viewer(name="bob")

TIMED_OUT = CommandTimedOut(["sacct"], "was killed")

ARCHIVED_SECONDS = 120.0


def person(number: int) -> Viewer:
    return Viewer(name=f"user{number}")


class CountedAccounting(FakeAccounting):
    """Record which jobs were read, and how many queries ran concurrently; ``gate`` blocks them."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ids: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = 0
        self.busiest = 0
        self._lock = threading.Lock()

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        with self._lock:
            self.read_ids += job_ids
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
        try:
            assert self.gate.wait(60)
            return super().read_jobs(job_ids)
        finally:
            with self._lock:
                self.busy -= 1


class Bench:
    """Hold a finder and its sources."""

    def __init__(self, queue_timeout_seconds: float = 60.0) -> None:
        self.now = 0.0
        self.archive = FakeArchive()
        self.accounting = CountedAccounting()
        self.series = FakeSeries()
        self.outages = Outages(lambda: self.now)
        maker = ReportMaker(self.series, wall_clock=lambda: START + 9_000.0)
        self.finder = ReportFinder(
            self.archive,  # type: ignore[arg-type]
            self.accounting,
            maker,
            self.outages,
            archived_seconds=ARCHIVED_SECONDS,
            queue_timeout_seconds=queue_timeout_seconds,
            clock=Clock(monotonic=lambda: self.now, wall=lambda: START + 9_000.0 + self.now),
        )
