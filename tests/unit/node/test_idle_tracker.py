# SPDX-License-Identifier: Apache-2.0
"""An idle node without cgroups is polled cheaply, and scanned as soon as a job may have started."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.job_finder import LiveJob
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import JobKey
from slurmscope.node.tracker import (
    POLL_COST_FACTOR,
    QUIET_POLL_SECONDS,
    QUIET_SCAN_SECONDS,
    WATCHED_POLL_SECONDS,
    JobTracker,
)
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader
from tests.processes import until

# The next scan is due after twenty seconds, which this test does not wait for.
SLOW_SECONDS = 0.1


@dataclass
class IdleFinder(FakeFinder):
    """Find jobs by processes, and be quiet as long as a test wants."""

    quiet: bool = True
    polls: int = 0
    programs: list[Path] | None = None

    def is_quiet(self) -> bool:
        """Count the polls."""
        self.polls += 1
        return self.quiet

    def watch_programs(self) -> list[Path] | None:
        """Return the programs that a test wants to be watched."""
        return self.programs


class SlowFinder(IdleFinder):
    """Take so much CPU time that the next scan is due much later."""

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Be busy."""
        until = time.thread_time() + SLOW_SECONDS
        while time.thread_time() < until:
            pass
        return super().scan()


class RecordingChanges(ChangeWatcher):
    """Note how long a quiet node is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.quiet_waits: list[float] = []

    def has_any(self, seconds: float) -> bool:
        """Note the time, and wait."""
        self.quiet_waits.append(seconds)
        return super().has_any(seconds)


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


def test_executed_slurmstepd_is_followed_by_a_scan_at_once(tmp_path: Path) -> None:
    program = tmp_path / "slurmstepd"
    shutil.copy("/bin/true", program)
    finder = IdleFinder(root=tmp_path, uses_processes=True, programs=[program])
    with JobTracker(finder, JobRegistry(finder, FakeReader), ChangeWatcher()) as tracker:
        tracker.snapshot()
        for _ in range(3):
            scans = finder.scans
            subprocess.run([program], check=True)
            until(lambda scans=scans: finder.scans > scans, QUIET_SCAN_SECONDS / 2)  # type: ignore[misc]


@pytest.mark.parametrize("is_watchable", [True, False])
def test_poll_is_rare_while_the_kernel_reports_new_steps(tmp_path: Path, is_watchable: bool) -> None:
    program = tmp_path / "slurmstepd"
    if is_watchable:
        program.touch()
    finder = IdleFinder(root=tmp_path, uses_processes=True, programs=[program])
    changes = RecordingChanges()
    with JobTracker(finder, JobRegistry(finder, FakeReader), changes) as tracker:
        tracker.snapshot()
        until(lambda: changes.quiet_waits)
    assert (WATCHED_POLL_SECONDS if is_watchable else QUIET_POLL_SECONDS) == changes.quiet_waits[0]
