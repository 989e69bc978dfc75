# SPDX-License-Identifier: Apache-2.0
"""Check that a job costs the same on a node with few jobs and on one with many."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.node.cgroup.tree import CgroupTree, detect_layout
from slurmscope.node.changes import ChangeWatcher, Inotify, InotifyUnavailable
from slurmscope.node.job_finder import JobFinder, JobMeter, LiveJob, ReadingOptions
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import CgroupUse, JobKey, JobUse
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdTree
from slurmscope.node.tracker import JobTracker
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader

PATIENCE_SECONDS = 60.0
FILES = {
    "cgroup.procs": "",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\n",
    "memory.current": "4096\n",
    "memory.stat": "anon 4096\nfile 0\n",
    "memory.peak": "8192\n",
}


def make_jobs(root: Path, jobs: int) -> Path:
    """Write a cgroup v2 tree with jobs of one step and one task."""
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory\n")
    for number in range(1, jobs + 1):
        top = root / "system.slice" / "slurmstepd.scope" / f"job_{number}"
        for folder in (top, top / "step_batch", top / "step_batch" / "user" / "task_0"):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in FILES.items():
                (folder / name).write_text(text)
    return root


def no_inotify() -> Inotify:
    """Be a kernel without room for one more watch."""
    raise InotifyUnavailable("no more instances")


def count_reads(root: Path, *, descriptors: int, has_inotify: bool) -> int:
    """Return the read calls of one snapshot, as the kernel counts them for this thread."""
    reader = ProcessReader(Path("/proc"))
    tree = CgroupTree(detect_layout(root, Path("/proc")), descriptors=descriptors, clock=lambda: 1000.0)
    stepds = StepdTree(reader)
    finder = JobFinder(tree, stepds)
    registry = JobRegistry(finder, lambda: JobMeter(reader, ReadingOptions()))
    tracker = JobTracker(finder, registry, ChangeWatcher(Inotify if has_inotify else no_inotify))
    tracker.snapshot()
    before = kernel_reads()
    tracker.snapshot()
    after = kernel_reads()
    for opened in (tracker, tree, stepds, reader):
        opened.close()
    return after - before


def kernel_reads() -> int:
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr:"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("cgroups")
    return make_jobs(folder / "few", 20), make_jobs(folder / "many", 400)


@pytest.mark.parametrize("has_inotify", [True, False])
@pytest.mark.parametrize("descriptors", [0, 200])
def test_reads_of_a_job_do_not_grow_with_the_number_of_jobs(
    trees: tuple[Path, Path], descriptors: int, has_inotify: bool
) -> None:
    few, many = trees
    of_few = count_reads(few, descriptors=descriptors, has_inotify=has_inotify) / 20
    of_many = count_reads(many, descriptors=descriptors, has_inotify=has_inotify) / 400
    # Each file of the job once, and the process list of each of its three folders below; and what all jobs share.
    assert of_many <= of_few
    assert of_many <= len(FILES) + 5


class CountedJob(FakeJob):
    """Count how often the cgroup is read."""

    cgroup_reads = 0

    def read(self) -> CgroupUse | None:
        """Count."""
        self.cgroup_reads += 1
        return super().read()


def test_snapshot_reads_a_polled_job_once() -> None:
    finder = FakeFinder()
    job = CountedJob(JobKey(7))
    finder.add(job)
    tracker = JobTracker(finder, JobRegistry(finder, FakeReader), ChangeWatcher(no_inotify))
    tracker.snapshot()
    before = job.cgroup_reads
    tracker.snapshot()
    tracker.close()
    assert 1 == job.cgroup_reads - before


class BlockedReader(FakeReader):
    """Block the first full read until a test lets it go."""

    def __init__(self, blocked: threading.Event, released: threading.Event) -> None:
        super().__init__()
        self._blocked = blocked
        self._released = released

    def read(self, job: LiveJob, seconds: float = math.inf) -> JobUse | None:
        """Wait, and count."""
        self._blocked.set()
        self._released.wait(PATIENCE_SECONDS)
        return super().read(job)


def test_closing_waits_for_one_job_only() -> None:
    finder = FakeFinder()
    jobs = [finder.add(FakeJob(JobKey(number))) for number in range(100)]
    blocked, released = threading.Event(), threading.Event()
    tracker = JobTracker(finder, JobRegistry(finder, lambda: BlockedReader(blocked, released)), ChangeWatcher())
    tracker.start()
    answers: list[BaseException | None] = []
    asking = threading.Thread(target=lambda: answers.append(failure_of(tracker)))
    asking.start()
    assert blocked.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=tracker.close)
    closing.start()
    while not tracker._is_stopping:
        pass
    released.set()
    for thread in (closing, asking):
        thread.join(PATIENCE_SECONDS)
    assert 1 == sum(job.reads for job in jobs)
    assert ["jobs are no longer tracked: the agent is stopping"] == [str(answer) for answer in answers]


def failure_of(tracker: JobTracker) -> SourceError | None:
    """Return how a snapshot fails."""
    try:
        tracker.snapshot()
    except SourceError as error:
        return error
    return None


def test_more_jobs_than_open_files_are_all_read(tmp_path: Path) -> None:
    root = make_jobs(tmp_path / "cgroup", 60)
    done = subprocess.run(
        [sys.executable, "-m", "slurmscope", "node", "--once", "--path.cgroup", str(root)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 128)),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        text=True,
    )
    shown = [line for line in done.stdout.splitlines() if line.startswith("jobs_memory_current_bytes{")]
    assert 60 == len(shown)
    assert "Too many open files" not in done.stderr
