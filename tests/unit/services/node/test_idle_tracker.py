# SPDX-License-Identifier: Apache-2.0
"""An idle node without cgroups is polled cheaply, and scanned as soon as a job may have started."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from slurmscope.model.job_use import JobKey
from slurmscope.services.node.job_registry import JobRegistry
from slurmscope.services.node.job_tracker import QUIET_SCAN_SECONDS, JobTracker
from slurmscope.sources.machine.changes import ChangeWatcher
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader
from tests.processes import until


@dataclass
class IdleFinder(FakeFinder):
    """Find jobs by processes, and be quiet as long as a test wants."""

    quiet: bool = True
    polls: int = 0

    def is_quiet(self) -> bool:
        """Count the polls."""
        self.polls += 1
        return self.quiet


class Clock:
    """Run as the real one, or be far ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def test_quiet_node_is_polled_but_not_scanned(tmp_path: Path) -> None:
    finder, clock = IdleFinder(root=tmp_path, uses_processes=True), Clock()
    registry = JobRegistry(finder, FakeReader, clock=clock)
    with JobTracker(finder, registry, ChangeWatcher(), clock=clock) as tracker:
        tracker.snapshot()
        scans, polls, began = finder.scans, finder.polls, clock()
        until(lambda: finder.polls >= polls + 3)
        assert finder.scans - scans <= 1 + (clock() - began) / QUIET_SCAN_SECONDS
        job = finder.add(FakeJob(JobKey(7)))
        finder.quiet = False
        until(lambda: job.reads)


def test_quiet_node_is_scanned_after_a_while(tmp_path: Path) -> None:
    finder, clock = IdleFinder(root=tmp_path, uses_processes=True), Clock()
    registry = JobRegistry(finder, FakeReader, clock=clock)
    with JobTracker(finder, registry, ChangeWatcher(), clock=clock) as tracker:
        tracker.snapshot()
        scans = finder.scans
        clock.ahead = 1000.0
        until(lambda: finder.scans > scans)
