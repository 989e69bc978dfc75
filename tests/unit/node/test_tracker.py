# SPDX-License-Identifier: Apache-2.0
"""Check that the tracker notices jobs by itself, reads them before they are gone, and is idle without events."""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.node.changes import ChangeWatcher, Inotify, InotifyUnavailable, WakeUp
from slurmscope.node.job_finder import LiveJob
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import WHOLE_JOB, CgroupUse, JobKey, JobUse, NodeJobs
from slurmscope.node.tracker import SCAN_GAP_SECONDS, SCAN_SECONDS, SNAPSHOT_SECONDS, CpuBudget, JobTracker
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader
from tests.leftovers import nothing_left

KEY = JobKey(7)
PATIENCE_SECONDS = 60.0
YOUNG_SECONDS = (0.01, 0.02)


@dataclass
class Node:
    """Hold a folder in which jobs have folders, and the tracker that watches it."""

    finder: FakeFinder
    tracker: JobTracker

    def begin(self, key: JobKey = KEY, **shown: object) -> FakeJob:
        """Let a job come: it is there, and so is its folder."""
        path = self.finder.root / f"job_{key.job_id}"
        job = self.finder.add(FakeJob(key, path=path, **shown))  # type: ignore[arg-type]
        path.mkdir()
        return job

    def end(self, job: FakeJob) -> None:
        """Let a job go, with its folder."""
        assert job.path is not None
        self.finder.remove(job)
        job.seconds = None
        job.path.rmdir()

    def only(self) -> JobUse:
        (use,) = self.tracker.snapshot().jobs
        return use


@contextmanager
def tracking(
    root: Path,
    open_inotify: Callable[[], Inotify] = Inotify,
    reading: Callable[[], FakeReader] = FakeReader,
    budget: CpuBudget | None = None,
    changes: ChangeWatcher | None = None,
) -> Iterator[Node]:
    finder = FakeFinder(root=root)
    registry = JobRegistry(finder, reading, young_seconds=YOUNG_SECONDS)
    with JobTracker(finder, registry, changes or ChangeWatcher(open_inotify), budget=budget) as tracker:
        tracker.snapshot()
        yield Node(finder, tracker)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Give a node without jobs whose tracker runs."""
    with tracking(tmp_path) as made:
        yield made


def open_nothing() -> Inotify:
    """Be a kernel that has no inotify left."""
    raise InotifyUnavailable("no more instances")


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; how long is up to the machine."""
    patience = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < patience, "it never came to hold"
        time.sleep(0.005)


def settle(node: Node, job: FakeJob) -> None:
    """Wait until a new job is no longer read because it is new; on a busy machine several reads may become one."""
    until(lambda: job.reads and node.tracker._registry.next_due_seconds() is None)
    node.tracker.snapshot()  # by the same thread, so a read that has begun is over


def seconds(use: JobUse) -> float | None:
    return use.groups[WHOLE_JOB].cpu.total_seconds


def test_snapshot_has_all_jobs_as_they_are_now(node: Node) -> None:
    job = node.begin(seconds=1.0)
    until(lambda: job.reads)
    job.seconds = 2.0
    node.finder.stale_cgroups = 3
    taken = node.tracker.snapshot()
    assert ([2.0], "v1", 3) == ([seconds(use) for use in taken.jobs], taken.layout, taken.stale_cgroups)


def test_tracker_that_is_not_started_still_reads_jobs(tmp_path: Path) -> None:
    finder = FakeFinder(root=tmp_path)
    finder.add(FakeJob(KEY, seconds=4.0))
    tracker = JobTracker(
        finder, JobRegistry(finder, FakeReader), ChangeWatcher(), available=lambda: {"process_io": False}
    )
    taken = tracker.snapshot()
    tracker.close()
    assert ([4.0], {"process_io": False, "inotify": True}) == ([seconds(use) for use in taken.jobs], taken.available)


def test_job_is_noticed_without_a_snapshot_request(node: Node) -> None:
    job = node.begin(seconds=0.5)
    until(lambda: job.reads)


def test_jobs_are_noticed_at_once_after_their_root_was_removed_and_made_again(node: Node, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("former"))  # not removed: the kernel ends no watch of a removed cgroup
    tmp_path.mkdir()
    node.tracker.snapshot()
    began = time.monotonic()
    job = node.begin(seconds=0.5)
    until(lambda: job.reads)
    assert time.monotonic() - began < SCAN_SECONDS / 2


def test_job_between_two_snapshots_is_not_missed(node: Node) -> None:
    job = node.begin(seconds=0.5)
    until(lambda: job.reads)
    node.end(job)
    assert (0.5, True) == (seconds(node.only()), node.only().has_ended)


def test_job_is_read_when_one_of_its_directories_is_removed(node: Node) -> None:
    job = node.begin(seconds=0.5)
    until(lambda: job.reads)
    settle(node, job)
    assert job.path is not None
    (job.path / "step_0").mkdir()
    job.seconds, reads = 9.0, job.reads
    (job.path / "step_0").rmdir()
    until(lambda: job.reads > reads)
    node.end(job)
    assert 9.0 == seconds(node.only())


def test_job_is_read_when_the_first_process_of_a_task_ends(node: Node) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        job = node.begin(seconds=0.5, pids=[process.pid])
        settle(node, job)
        job.seconds, reads = 9.0, job.reads
        process.communicate(timeout=60)
        until(lambda: job.reads > reads)
        job.pids.clear()
    node.end(job)
    assert 9.0 == seconds(node.only())


def test_job_with_many_processes_is_read_in_a_moment_at_its_end(node: Node) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        job = node.begin(seconds=0.5, pids=[process.pid], processes=1000)
        settle(node, job)
        job.seconds, reads = 9.0, job.reads
        process.communicate(timeout=60)
        until(lambda: seconds(tracked_use(node)) == 9.0)
        assert reads == job.reads
        job.pids.clear()


def ended_after(node: Node, *, is_read: bool, leaves_process: bool = False) -> bool:
    """Let the last task of a job end, with a higher peak than before, and return whether its peak is called final."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        job = node.begin(seconds=0.5, peak_bytes=20, pids=[process.pid])
        settle(node, job)
        assert not tracked_use(node).is_peak_final
        job.peak_bytes = 700
        job.seconds = 9.0 if is_read else None
        job.pids[:] = [os.getpid()] if leaves_process else []
        job.processes = len(job.pids)
        process.communicate(timeout=60)
        until(lambda: not is_read or seconds(tracked_use(node)) == 9.0)
    node.end(job)
    use = node.only()
    assert (700 if is_read else 20) == use.groups[WHOLE_JOB].memory.peak_bytes
    return use.is_peak_final


def test_peak_that_is_read_after_the_last_task_is_final(node: Node) -> None:
    assert ended_after(node, is_read=True)


def test_peak_is_not_final_where_the_cgroup_is_gone_before_it_is_read(node: Node) -> None:
    assert not ended_after(node, is_read=False)


def test_peak_is_not_final_where_a_process_was_left_at_the_last_reading(node: Node) -> None:
    assert not ended_after(node, is_read=True, leaves_process=True)


def tracked_use(node: Node) -> JobUse:
    """Return what the tracker knows, without making it read."""
    (tracked,) = node.tracker._registry.live
    return tracked.use


@dataclass(eq=False)
class SeenJob(FakeJob):
    """Record how many scans there were when this job was read."""

    finder: FakeFinder = field(default_factory=FakeFinder)
    scans: list[int] = field(default_factory=list)

    def read(self) -> CgroupUse | None:
        """Show the CPU time."""
        self.scans.append(self.finder.scans)
        return super().read()


def test_new_job_is_scanned_until_its_user_is_known(node: Node) -> None:
    path = node.finder.root / "job_7"
    job = SeenJob(KEY, path=path, uid=None, finder=node.finder)
    node.finder.add(job)
    path.mkdir()
    settle(node, job)
    first, *later = job.scans
    assert max(later) > first


class NotedSleeps(ChangeWatcher):
    """Note how long the tracker wants to sleep, and what wakes it up."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted_seconds: float | None = 0.0
        self.heard: list[object] = []

    def wait(self, seconds: float | None) -> WakeUp:
        """Sleep."""
        self.wanted_seconds = seconds
        heard = super().wait(seconds)
        self.wanted_seconds = 0.0
        self.heard += [*heard.events, *heard.ended_pids]
        return heard

    def is_long_sleep(self) -> bool:
        """Return whether the tracker sleeps until its next regular scan."""
        return (self.wanted_seconds or 0.0) > SCAN_SECONDS / 2


def test_idle_tracker_sleeps(tmp_path: Path) -> None:
    changes = NotedSleeps()
    with tracking(tmp_path, changes=changes) as node:
        job = node.begin()
        settle(node, job)
        until(changes.is_long_sleep)
        changes.heard.clear()
        # Reading all jobs gives no sign that wakes it up again.
        node.tracker.snapshot()
        until(changes.is_long_sleep)

    assert [] == changes.heard


def test_storm_of_directories_causes_few_scans(node: Node) -> None:
    began, before = time.monotonic(), node.finder.scans
    for number in range(3000):
        (node.finder.root / f"other_{number % 10}").mkdir()
        (node.finder.root / f"other_{number % 10}").rmdir()
    elapsed = time.monotonic() - began
    # A scan repeats itself if it has found new directories to watch, four times at most.
    assert node.finder.scans - before <= 4 * (elapsed / SCAN_GAP_SECONDS + 2)


def test_job_is_noticed_after_a_storm(node: Node) -> None:
    for number in range(1000):
        (node.finder.root / f"other_{number}").mkdir()
    job = node.begin(seconds=0.5)
    until(lambda: job.reads)


class SpentBudget(CpuBudget):
    """Have nothing left, for as long as a test lasts."""

    def low_seconds(self) -> float:
        """Say so."""
        return PATIENCE_SECONDS


def test_job_that_ends_is_read_even_when_no_cpu_time_is_left(tmp_path: Path) -> None:
    with (
        tracking(tmp_path, budget=SpentBudget(0.05, 1.0)) as node,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process,
    ):
        job = node.begin(seconds=0.5, pids=[process.pid])
        node.tracker.snapshot()  # no other scan runs now
        job.seconds, reads = 9.0, job.reads
        process.communicate(timeout=60)
        until(lambda: seconds(tracked_use(node)) == 9.0)
        assert reads == job.reads
        job.pids.clear()


def test_failed_scan_does_not_end_the_tracking(node: Node) -> None:
    node.finder.fails = True
    scans = node.finder.scans
    job = node.begin()
    until(lambda: node.finder.scans > scans)
    node.finder.fails = False
    until(lambda: job.reads)


def test_machine_without_inotify_is_polled(tmp_path: Path) -> None:
    with tracking(tmp_path, open_nothing) as node:
        job = node.begin(seconds=0.5)
        settle(node, job)
        job.seconds = 9.0
        scans = node.finder.scans
        until(lambda: node.finder.scans >= scans + 2)
        node.end(job)
        taken = node.tracker.snapshot()
    assert ([9.0], False) == ([seconds(use) for use in taken.jobs], taken.available["inotify"])


def test_jobs_without_cgroups_are_polled(node: Node) -> None:
    node.finder.uses_processes = True
    node.tracker.snapshot()
    job = node.finder.add(FakeJob(KEY, seconds=0.5))
    until(lambda: job.reads)


def test_failed_scan_is_reported_and_the_next_one_succeeds(node: Node) -> None:
    job = node.begin()
    until(lambda: job.reads)
    node.finder.fails = True
    with pytest.raises(SourceError, match="cannot list the cgroups"):
        node.tracker.snapshot()
    node.finder.fails = False
    assert KEY == node.only().key


def test_request_while_scans_fail_gets_their_error_at_once(node: Node) -> None:
    node.finder.fails = True
    scans = node.finder.scans
    (node.finder.root / "job_8").mkdir()  # a scan is due, fails, and is due again at once
    until(lambda: node.finder.scans > scans)
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(SourceError, match="cannot list the cgroups"):
            node.tracker.snapshot()
    assert time.monotonic() - began < SNAPSHOT_SECONDS / 2
    node.finder.fails = False


class BrokenReading(FakeReader):
    """Be a reader with a bug."""

    def read(self, job: LiveJob, seconds: float = math.inf) -> JobUse | None:
        """Fail when the job says so."""
        assert isinstance(job, FakeJob)
        if job.uid is None:
            raise RuntimeError("a bug")
        return super().read(job)


def test_bug_in_reading_one_job_costs_that_job_only(tmp_path: Path) -> None:
    with tracking(tmp_path, reading=BrokenReading) as node:
        job = node.begin(uid=None)
        healthy = node.begin(JobKey(8))
        taken = node.tracker.snapshot()
        assert [healthy.key] == [use.key for use in taken.jobs]
        assert taken.read_errors["job"] > 0
        job.uid = 1001
        assert {KEY, healthy.key} == {use.key for use in node.tracker.snapshot().jobs}


def test_parallel_snapshot_requests_are_all_answered(node: Node) -> None:
    node.begin(seconds=0.5)
    answers: list[NodeJobs] = []
    threads = [threading.Thread(target=lambda: answers.append(node.tracker.snapshot())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [1] * 8 == [len(taken.jobs) for taken in answers]


def test_closing_ends_the_thread_and_gives_descriptors_back(tmp_path: Path) -> None:
    with nothing_left():
        with tracking(tmp_path) as node:
            job = node.begin(pids=[os.getpid()])
            until(lambda: job.reads)
        node.tracker.close()
    with pytest.raises(SourceError, match="agent is stopping"):
        node.tracker.snapshot()


class SlowFinder(FakeFinder):
    """Block the tracker's thread until a test lets it go."""

    blocked: threading.Event
    released: threading.Event

    def watch_paths(self) -> list[Path]:
        """Wait."""
        self.blocked.set()
        self.released.wait(PATIENCE_SECONDS)
        return []


def test_snapshot_request_while_the_tracker_stops_does_not_wait(tmp_path: Path) -> None:
    finder = SlowFinder(root=tmp_path)
    finder.blocked, finder.released = threading.Event(), threading.Event()
    tracker = JobTracker(finder, JobRegistry(finder, FakeReader), ChangeWatcher())
    tracker.start()
    finder.blocked.wait(PATIENCE_SECONDS)
    answers: list[NodeJobs | SourceError] = []

    def ask() -> None:
        try:
            answers.append(tracker.snapshot())
        except SourceError as error:
            answers.append(error)

    before, after = threading.Thread(target=ask), threading.Thread(target=ask)
    before.start()
    closing = threading.Thread(target=tracker.close)
    closing.start()
    until(lambda: tracker._is_stopping)
    after.start()
    after.join(PATIENCE_SECONDS)
    assert [True] == ["agent is stopping" in str(answer) for answer in answers]
    finder.released.set()
    for thread in (before, closing):
        thread.join(PATIENCE_SECONDS)
    assert 2 == len(answers)
