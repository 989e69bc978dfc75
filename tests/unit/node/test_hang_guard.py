# SPDX-License-Identifier: Apache-2.0
"""A process whose files hang costs its own job's numbers only, until it goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmscope.node.cgroup.names import ProcessOwners
from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.gpu.reader import place_processes
from slurmscope.node.gpu.records import Gpu, GpuProcess
from slurmscope.node.job_finder import JobMeter, ReadingOptions
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import GroupKey, JobKey, JobUse
from slurmscope.node.kernel_files import MOST_HANGING, MOST_OF_USER, HangGuard, Hanging
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.tracker import JobTracker
from tests.fakes.live_jobs import FakeFinder, FakeJob
from tests.leftovers import nothing_left
from tests.processes import until
from tests.unit.node.proc_tree import ProcTree, written

PATIENCE_SECONDS = 0.3
HOSTILE, HEALTHY = JobKey(1), JobKey(2)


def hang(tree: ProcTree, pid: int, name: str = "stat") -> Callable[[], None]:
    """Make a file of a process hang, until the returned function is called."""
    path = tree.root / str(pid) / name
    text = path.read_bytes()
    path.unlink()
    os.mkfifo(path)

    def go_on() -> None:
        with path.open("wb") as pipe:
            path.unlink()
            path.write_bytes(text)
            pipe.write(text)

    return go_on


@contextmanager
def guarded(tree: ProcTree) -> Iterator[ProcessReader]:
    reader = ProcessReader(tree.root, HangGuard(tree.root, patience_seconds=PATIENCE_SECONDS))
    yield reader
    reader.close()


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    tree = ProcTree(tmp_path / "proc")
    for pid in (10, 11, 12):
        tree.add(pid, pid, io=written(1000))
    return tree


def test_process_that_hangs_is_left_out_and_the_others_are_read(tree: ProcTree) -> None:
    go_on = hang(tree, 11)
    with nothing_left(), guarded(tree) as reader:
        first, second = reader.read([10, 11, 12]), reader.read([10, 11, 12])
        assert {"hang": 1} == dict(reader.denials.faults)
        go_on()
        until(lambda: len(reader.read([10, 11, 12])) == 3)

    assert [[10, 12]] * 2 == [[sample.pid for sample in samples] for samples in (first, second)]


def test_process_that_was_known_keeps_its_last_sample(tree: ProcTree) -> None:
    with guarded(tree) as reader:
        known = {sample.pid: sample for sample in reader.read([10, 11])}
        go_on = hang(tree, 11)
        reader.read([10, 11], known)
        again = reader.read([10, 11], known)
        go_on()

    assert list(known.values()) == again


def test_user_with_several_hanging_processes_is_read_no_more(tree: ProcTree) -> None:
    pids = range(20, 20 + MOST_OF_USER + 5)
    for pid in pids:
        tree.add(pid, pid)
        os.chown(tree.root / str(pid), 4711, -1)
    with guarded(tree) as reader:
        ends = [hang(tree, pid) for pid in pids]
        samples = reader.read([*pids, 10])
        hangs = reader.denials.faults["hang"]
        for pid, go_on in zip(pids, ends, strict=True):
            if pid < 20 + MOST_OF_USER:
                go_on()

    assert [10] == [sample.pid for sample in samples]
    assert MOST_OF_USER == hangs


def test_nothing_is_read_while_too_many_threads_hang(tree: ProcTree) -> None:
    guard = HangGuard(tree.root, patience_seconds=0.01)
    release = threading.Event()
    with nothing_left():
        for number in range(MOST_HANGING):
            with pytest.raises(Hanging):
                guard.run(release.wait, number)
        with pytest.raises(Hanging):
            guard.run(lambda: pytest.fail("this must not run"))
        release.set()
        until(lambda: guard.run_for(10, lambda: True, otherwise=False))
        guard.close()


def test_error_of_the_work_is_that_of_the_caller(tree: ProcTree) -> None:
    guard = HangGuard(tree.root)
    with nothing_left():
        with pytest.raises(ZeroDivisionError):
            guard.run(lambda: 1 // 0)
        assert 3 == guard.run(lambda: guard.run(lambda: 3))
        guard.close()


def test_slow_work_that_goes_on_is_not_given_up(tree: ProcTree) -> None:
    guard = HangGuard(tree.root, patience_seconds=0.5)

    def work() -> str:
        for pid in range(10):
            guard.at(pid)
            time.sleep(0.1)
        return "done"

    assert "done" == guard.run(work)
    guard.close()


def test_thread_that_was_given_up_reads_nothing_more(tree: ProcTree) -> None:
    guard = HangGuard(tree.root, patience_seconds=0.05)
    release, was_late = threading.Event(), threading.Event()

    def work() -> None:
        guard.at(10)
        release.wait()
        guard.at(11)
        was_late.set()

    with nothing_left():
        with pytest.raises(Hanging) as hanging:
            guard.run(work)
        assert 10 == hanging.value.pid
        release.set()
        guard.run(lambda: None)
        guard.close()

    assert not was_late.is_set()


@pytest.mark.parametrize("file", ["stat", "io", "environ"])
def test_job_with_a_hanging_process_keeps_its_values_and_its_neighbour_stays_fresh(tree: ProcTree, file: str) -> None:
    (tree.root / "10" / "environ").write_bytes(b"SLURM_JOB_ID=1\0")
    finder = FakeFinder()
    hostile = finder.add(FakeJob(HOSTILE, uid=1, pids=[10]))
    finder.add(FakeJob(HEALTHY, uid=2, pids=[12]))
    options = ReadingOptions(environment=("SLURM_JOB_ACCOUNT",))
    with nothing_left(), guarded(tree) as reader:
        registry = JobRegistry(finder, lambda: JobMeter(reader, options), young_seconds=())
        registry.errors.include("process", reader.denials.faults)
        with JobTracker(finder, registry, ChangeWatcher()) as tracker:
            if file != "environ":  # which is read until it was found once
                tracker.snapshot()
            go_on = hang(tree, 10, file)
            amounts = []
            for amount in (2000, 3000, 4000):
                hostile.seconds = float(amount)
                tree.add(12, 12, io=written(amount))
                tracker.snapshot()
                uses = {use.key: use for use in tracker.snapshot().jobs}
                amounts.append(write_chars(uses[HEALTHY]))
                assert float(amount) == uses[HOSTILE].groups[GroupKey()].cpu.total_seconds
                assert (None if file == "environ" else 1000) == write_chars(uses[HOSTILE])
            errors = tracker.snapshot().read_errors
            go_on()
            tree.add(10, 10, io=written(5000))
            hostile.seconds = 5000.0  # who writes uses CPU time: without that, processes are not read again
            until(lambda: {use.key: write_chars(use) for use in tracker.snapshot().jobs}[HOSTILE] == 5000)

    assert [2000, 3000, 4000] == amounts
    assert 1 == errors["process_hang"]
    assert errors["process_time"] >= 3


def write_chars(use: JobUse) -> int | None:
    return use.processes.io.write_chars if use.processes and use.processes.io else None


def test_owner_of_a_hanging_process_is_not_known(tree: ProcTree) -> None:
    (tree.root / "11" / "status").write_text("Uid:\t7\t7\t7\t7\n")
    (tree.root / "12" / "status").write_text("Uid:\t8\t8\t8\t8\n")
    go_on = hang(tree, 11, "status")
    with nothing_left():
        guard = HangGuard(tree.root, patience_seconds=PATIENCE_SECONDS)
        assert 8 == ProcessOwners(tree.root, guard).common_user([11, 12])
        go_on()
        guard.close()


def test_gpu_process_that_hangs_has_no_place(tree: ProcTree) -> None:
    gpu = Gpu(index=0, uuid="GPU-0", processes=(GpuProcess(pid=10), GpuProcess(pid=11)))
    for pid in (10, 11):
        (tree.root / str(pid) / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_12/step_0\n")
    go_on = hang(tree, 10)
    with nothing_left():
        guard = HangGuard(tree.root, patience_seconds=PATIENCE_SECONDS)
        placed = place_processes(gpu, 1e9, tree.root, guard=guard).processes or ()
        go_on()
        guard.close()

    assert [None, 12] == [process.place and process.place.job_id for process in placed]


def test_processes_under_many_user_ids_of_one_container_count_for_the_owner_of_the_job(tree: ProcTree) -> None:
    finder = FakeFinder()
    pids = range(100, 100 + MOST_HANGING + 1)
    for pid in pids:
        tree.add(pid, pid, io=written(1000))
        # As newuidmap(1) gives them to one user.
        os.chown(tree.root / str(pid), 100_000 + pid, -1)
        finder.add(FakeJob(JobKey(pid), uid=1, pids=[pid]))
    finder.add(FakeJob(HEALTHY, uid=2, pids=[12]))
    ends = [hang(tree, pid, "io") for pid in pids]
    with nothing_left():
        guard = HangGuard(tree.root, patience_seconds=0.05)
        reader = ProcessReader(tree.root, guard)
        registry = JobRegistry(finder, lambda: JobMeter(reader, ReadingOptions()), young_seconds=())
        with JobTracker(finder, registry, ChangeWatcher()) as tracker:
            amounts = []
            for amount in (2000, 3000):
                tree.add(12, 12, io=written(amount))
                amounts.append({use.key: write_chars(use) for use in tracker.snapshot().jobs}[HEALTHY])
            hangs = reader.denials.faults["hang"]
        for pid, go_on in zip(pids, ends, strict=True):
            if pid < 100 + hangs:
                go_on()
        reader.close()

    assert [2000, 3000] == amounts
    assert MOST_OF_USER == hangs
