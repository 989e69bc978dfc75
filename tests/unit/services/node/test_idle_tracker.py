# SPDX-License-Identifier: Apache-2.0
"""An idle node without cgroups is polled cheaply, and scanned as soon as a job may have started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.model.job_use import JobKey
from slurmscope.services.node.job_meter import LiveJob
from slurmscope.services.node.job_registry import JobRegistry
from slurmscope.services.node.job_tracker import POLL_COST_FACTOR, QUIET_SCAN_SECONDS, JobTracker
from slurmscope.sources.machine.changes import ChangeWatcher
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader
from tests.processes import until

# The next scan is due after twenty seconds, which this test does not wait for.
SLOW_SECONDS = 0.1


@dataclass
class IdleFinder(FakeFinder):
    """Find jobs by processes, and be quiet as long as a test wants."""

    quiet: bool = True
    polls: int = 0

    def is_quiet(self) -> bool:
        """Count the polls."""
        self.polls += 1
        return self.quiet


class SlowFinder(IdleFinder):
    """Take so much CPU time that the next scan is due much later."""

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Be busy."""
        until = time.thread_time() + SLOW_SECONDS
        while time.thread_time() < until:
            pass
        return super().scan()


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


def test_sign_of_a_new_job_does_not_wait_for_the_next_scan(tmp_path: Path) -> None:
    finder = SlowFinder(root=tmp_path, uses_processes=True)
    with JobTracker(finder, JobRegistry(finder, FakeReader), ChangeWatcher()) as tracker:
        tracker.snapshot()
        began, polls = time.monotonic(), finder.polls
        until(lambda: finder.polls > polls + 1)
        job = finder.add(FakeJob(JobKey(7)))
        finder.quiet = False
        until(lambda: job.reads)
        assert time.monotonic() - began < POLL_COST_FACTOR * SLOW_SECONDS


def test_quiet_node_is_scanned_after_a_while(tmp_path: Path) -> None:
    finder, clock = IdleFinder(root=tmp_path, uses_processes=True), Clock()
    registry = JobRegistry(finder, FakeReader, clock=clock)
    with JobTracker(finder, registry, ChangeWatcher(), clock=clock) as tracker:
        tracker.snapshot()
        scans = finder.scans
        clock.ahead = 1000.0
        until(lambda: finder.scans > scans)
