# SPDX-License-Identifier: Apache-2.0
"""A reporter with everything around it, and a clock that a test moves."""

from __future__ import annotations

from slurmscope.core.clock import Clock
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT, Reporter
from slurmscope.reporter.reporters import make_retention
from slurmscope.reporter.retention import ReporterSettings, Retention
from slurmscope.reports.make import ReportMaker
from tests.fakes.reporting import FakeAccounting, FakeArchive, FakeSeries
from tests.fakes.reports import START

DAY = 86400

CHECKPOINT = CLUSTER_CHECKPOINT + "lab"


class Bench:
    """Hold a reporter and everything around it; the clock stands until a test moves it."""

    def __init__(self, *records: object, now: float = START + 20_000.0) -> None:
        self.now = now
        self.accounting = FakeAccounting([*records])  # type: ignore[list-item]
        self.archive = FakeArchive()
        self.series = FakeSeries()
        self.reporter = self.restarted()

    def restarted(self) -> Reporter:
        self.reporter = Reporter(
            self.accounting,
            ReportMaker(self.series, wall_clock=lambda: self.now),
            self.archive,  # type: ignore[arg-type]
            self.archive,
            ReporterSettings(),
            cluster="lab",
            clock=self.clock(),
        )
        return self.reporter

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, monotonic=lambda: self.now)

    def retention(self) -> Retention:
        return make_retention(self.archive, self.archive, ReporterSettings(), self.clock())  # type: ignore[arg-type]

    def archived(self) -> set[int]:
        return {report.record.job_id for report in self.archive.reports.values() if report.record.has_ended}
