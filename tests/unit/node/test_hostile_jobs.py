# SPDX-License-Identifier: Apache-2.0
"""A job that is made to be slow to read, or to fill memory, costs its own numbers only."""

from __future__ import annotations

import math
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.job_finder import JobMeter, LiveJob, ReadingOptions
from slurmscope.node.job_registry import JOB_SECONDS, LATE, USER_SECONDS, USER_SHARE, JobRegistry, ReadingTime
from slurmscope.node.job_use import JobKey, JobUse
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.job_scan import ProcessDetail
from slurmscope.node.procfs.process import OpenFiles, Process
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.tracker import READING_SECONDS, JobTracker
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader
from tests.unit.node.script import Script

HOSTILE, HEALTHY = JobKey(1), JobKey(2)
MEGABYTE = 1_000_000
SCRAPE_SECONDS = 15.0

has_counts = pytest.mark.skipif(
    Path("/proc/self/fd").stat().st_size == 0, reason="this kernel does not count descriptors (before Linux 6.2)"
)


class Clock:
    """Stand still until a test, or a slow job, advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


CROWD = """
def crowd(number, work):
    reading, writing = os.pipe()
    for _ in range(number):
        if os.fork() == 0:
            work()
            os.write(writing, b".")
            time.sleep(600)
    for _ in range(number):
        os.read(reading, 1)
    print("ready", flush=True)
"""
# A few children that inherit all that their parent has open.
HOLDER = f"""{CROWD}
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
null = os.open(os.devnull, os.O_RDONLY)
held = [os.dup(null) for _ in range(DESCRIPTORS)]
crowd(8, lambda: None)
sys.stdin.readline()
"""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the least of a few tries: what it takes on a machine that does nothing else."""
    tries = []
    for _ in range(5):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)


@has_counts
def test_descriptors_beyond_the_room_of_a_job_cost_next_to_nothing(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    costs = []
    for descriptors in (20, 19_900):
        program = script(HOLDER.replace("DESCRIPTORS", str(descriptors)))
        program.expect("ready")
        detail, pids = ProcessDetail(target_limit=100), program.pids()
        use = JobProcesses(reader, detail).read(pids)
        assert use is not None
        assert sum(psutil.Process(pid).num_fds() for pid in pids) == use.open_files
        costs.append(cpu_seconds(lambda detail=detail, pids=pids: JobProcesses(reader, detail).read(pids)))  # type: ignore[misc]

    assert costs[1] < 10 * costs[0]


def test_descriptors_are_not_counted_for_ever_where_the_kernel_does_not(reader: ProcessReader, tmp_path: Path) -> None:
    # As in older kernels, folders there have no size.
    (tmp_path / "fd").symlink_to("/sys/kernel")
    process = Process(1, os.open(tmp_path, os.O_PATH), reader.denials)
    counted, not_counted = process.open_files(10, print), process.open_files(10, print, may_list=False)
    process.close()

    assert (len(list(Path("/sys/kernel").iterdir())), True) == counted
    assert OpenFiles(None, has_targets=True) == not_counted


def test_long_paths_take_no_memory(script: Callable[[str], Script], reader: ProcessReader, tmp_path: Path) -> None:
    program = script(f"""{CROWD}
os.chdir({str(tmp_path)!r})
name = "\\U0001f600" + "x" * 200
while len(os.getcwdb()) < 3500:
    os.mkdir(name)
    os.chdir(name)
files = [open("file%d" % number, "w") for number in range(50)]
crowd(20, lambda: None)
sys.stdin.readline()
""")
    program.expect("ready")
    job, pids = JobProcesses(reader), program.pids()
    tracemalloc.start()
    try:
        uses = [job.read(pids) for _ in range(3)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The paths alone would take 3.5 MB as bytes, and 14 MB as text.
    assert all(use is not None and use.distinct_files is not None and use.distinct_files >= 50 for use in uses)
    assert peak < MEGABYTE


def test_job_that_takes_too_long_keeps_its_values_until_there_is_time(script: Callable[[str], Script]) -> None:
    # Of one whose files are kept open, a sleeping job would take no time.
    reader = ProcessReader(Path("/proc"))
    program = script(f"""{CROWD}
crowd(5, lambda: write(1_000_000))
sys.stdin.readline()
""")
    program.expect("ready")
    clock = Clock()

    def slow() -> float:
        clock.now += 1.0
        return clock.now

    job = JobProcesses(reader, clock=slow)

    def read(seconds: float) -> tuple[int, int | None, bool] | None:
        use = job.read(program.pids(), seconds=seconds)
        return (use.io.write_chars if use.io else -1, use.open_files, job.was_cut) if use else None

    first = read(4)
    whole, cut, bare, again = read(math.inf), read(4), read(18), read(math.inf)

    assert first is None
    assert whole is not None
    assert 5 * MEGABYTE <= whole[0] < 6 * MEGABYTE
    assert (*whole[:2], True) == cut
    # After half of the time, only what totals are made of is read.
    assert (whole[0], None, False) == bare
    assert whole == again
    reader.close()


@dataclass
class SlowReader(FakeReader):
    """Take as long as the job says, or as long as there is time."""

    def __init__(self, clock: Clock, needed_seconds: Callable[[LiveJob], float]) -> None:
        super().__init__()
        self._hand = clock
        self._needed_seconds = needed_seconds
        self._was_cut = False

    @property
    def was_cut(self) -> bool:
        return self._was_cut

    def read(self, job: LiveJob, seconds: float = math.inf) -> JobUse | None:
        needed = self._needed_seconds(job)
        self._was_cut = needed > seconds
        self._hand.now += min(needed, seconds)
        return super().read(job)


@pytest.mark.parametrize("users", [[1], list(range(1000, 1040))])
def test_slow_jobs_of_others_never_delay_a_healthy_one(users: list[int]) -> None:
    clock, finder = Clock(), FakeFinder()
    healthy = finder.add(FakeJob(HEALTHY, uid=2))
    registry = JobRegistry(
        finder, lambda: SlowReader(clock, lambda job: 0.01 if job is healthy else 60.0), young_seconds=(), clock=clock
    )
    tracker = JobTracker(finder, registry, ChangeWatcher(), clock=clock)
    tracker.snapshot()
    hostile = [finder.add(FakeJob(JobKey(100 + uid), uid=uid)) for uid in users]
    ages, spent = [], 0.0
    for _ in range(20):
        began, reads = clock.now, healthy.reads
        snapshot = tracker.snapshot()
        assert reads + 1 == healthy.reads
        spent += clock.now - began
        ages.append(clock.now - began)
        clock.now = max(clock.now, began + SCRAPE_SECONDS)
    tracker.close()

    assert max(ages) <= READING_SECONDS + JOB_SECONDS
    assert spent <= len(users) * (USER_SECONDS + 20 * SCRAPE_SECONDS * USER_SHARE + JOB_SECONDS)
    assert all(job.reads >= 1 for job in hostile)
    assert snapshot.read_errors[LATE] > 10


def test_user_gets_time_back() -> None:
    clock = Clock()
    readings = ReadingTime(clock)
    assert JOB_SECONDS == readings.left("alice")
    with readings.charged("alice"):
        clock.now += 4.0
    assert readings.left("alice") < 0
    assert JOB_SECONDS == readings.left("bob")
    clock.now += 5.0
    assert 0 == pytest.approx(readings.left("alice"))
    clock.now += USER_SECONDS / USER_SHARE
    assert JOB_SECONDS == readings.left("alice")


@dataclass(eq=False)
class RealJob(FakeJob):
    """Be a job with the processes of a program."""

    program: Script | None = field(default=None)

    def members(self) -> Members:
        assert self.program is not None
        return Members(user=tuple(sorted(self.program.pids())))


# Many of everything: processes, threads, descriptors, long paths and names, and processes that come and go.
MANY = f"""{CROWD}
import ctypes, resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
os.chdir(FOLDER)
name = "\\U0001f600" + "x" * 200
while len(os.getcwdb()) < 3500:
    os.mkdir(name)
    os.chdir(name)
files = [open("file%d" % number, "w") for number in range(2000)]
held = [os.dup(files[0].fileno()) for _ in range(10_000)]

def many():
    ctypes.CDLL(None).prctl(15, ("\\U0001f600%d" % os.getpid()).encode(), 0, 0, 0)
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

crowd(60, many)
while True:
    pid = os.fork()
    if pid == 0:
        write(1_000_000)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_generic_hostile_job_leaves_a_neighbour_fresh_and_memory_bounded(
    script: Callable[[str], Script], reader: ProcessReader, tmp_path: Path
) -> None:
    program = script(MANY.replace("FOLDER", repr(str(tmp_path))))
    healthy = script("""
while sys.stdin.readline():
    write(1_000_000)
    print("written", flush=True)
""")
    program.expect("ready")
    finder = FakeFinder()
    finder.add(RealJob(HOSTILE, uid=1, program=program))
    finder.add(RealJob(HEALTHY, uid=2, program=healthy))
    options = ReadingOptions(detail=ProcessDetail(switches=True))
    registry = JobRegistry(finder, lambda: JobMeter(reader, options))
    before = psutil.Process().memory_info().rss
    written = []
    with JobTracker(finder, registry, ChangeWatcher()) as tracker:
        for _ in range(5):
            healthy.go_on()
            healthy.expect("written")
            uses = {use.key: use.processes for use in tracker.snapshot().jobs}
            written.append(uses[HEALTHY].io.write_chars)  # type: ignore[union-attr]
    grown = psutil.Process().memory_info().rss - before

    assert [n * MEGABYTE for n in range(1, 6)] == [amount // MEGABYTE * MEGABYTE for amount in written]
    hostile = uses[HOSTILE]
    # On a busy machine it may never have been read whole; part of it would be no number.
    assert hostile is None or hostile.processes > 60
    assert grown < 50 * MEGABYTE
