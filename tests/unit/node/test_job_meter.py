# SPDX-License-Identifier: Apache-2.0
"""Check that one job is read with its processes and its environment, with real processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.checks import ProcessSources, has_capabilities
from slurmscope.node.job_finder import ENVIRONMENT_TRIES, IDLE_LIMIT, LEADER_LIMIT, JobMeter, ReadingOptions
from slurmscope.node.job_use import WHOLE_JOB, GroupKey, JobKey
from slurmscope.node.procfs.job_scan import ProcessDetail
from slurmscope.node.procfs.reader import ProcessReader
from tests.fakes.live_jobs import FakeJob
from tests.unit.node.proc_tree import ProcTree, written

KEY = JobKey(7)


@dataclass(eq=False)
class JobWithProcesses(FakeJob):
    """Be a job with given processes."""

    stepd: list[int] = field(default_factory=list)
    is_complete: bool = True

    def members(self) -> Members:
        """Show the processes."""
        return Members(stepd=tuple(self.stepd), user=tuple(self.pids), is_complete=self.is_complete)


@pytest.fixture
def reader() -> Iterator[ProcessReader]:
    """Give the real procfs."""
    opened = ProcessReader(Path("/proc"))
    yield opened
    opened.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process with an environment like a job's."""
    environment = {"SLURM_JOB_ACCOUNT": "physics", "OTHER": "x"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # It answers, so it is the program by now and not the copy of ours that became it.
        process.stdin.write(b"x\n")
        process.stdin.flush()
        assert b"x\n" == process.stdout.readline()
        yield process
        process.stdin.close()


def test_cgroup_and_processes_are_read_together(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    job = JobWithProcesses(KEY, seconds=3.0, pids=[child.pid])
    use = JobMeter(reader, ReadingOptions()).read(job)
    assert use is not None
    assert use.processes is not None
    assert (3.0, 1001, 1) == (use.groups[WHOLE_JOB].cpu.total_seconds, use.uid, use.processes.processes)


def test_job_whose_cgroup_is_gone_still_has_processes(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    use = JobMeter(reader, ReadingOptions()).read(JobWithProcesses(KEY, seconds=None, pids=[child.pid]))
    assert use is not None
    assert use.processes is not None
    assert ({}, 1) == (use.groups, use.processes.processes)


def test_processes_that_cannot_be_listed_for_a_while_are_counted_once(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(11, 11, ticks=100, io=written(50))
    job = JobWithProcesses(KEY, seconds=3.0, pids=[11])
    with closing(ProcessReader(tmp_path)) as reader:
        meter = JobMeter(reader, ReadingOptions())
        uses = [meter.read(job)]
        job.pids, job.is_complete = [], False
        uses += [meter.read(job) for _ in range(3)]
        job.pids, job.is_complete = [11], True
        uses += [meter.read(job) for _ in range(3)]

    assert [(1, 50)] * 7 == [
        use and use.processes and (use.processes.processes, use.processes.io and use.processes.io.write_chars)
        for use in uses
    ]
    assert 1 == len({use and use.processes and use.processes.cpu_seconds for use in uses})


def test_job_without_cgroup_and_processes_is_gone(reader: ProcessReader) -> None:
    job = JobWithProcesses(KEY, seconds=None)
    reading = JobMeter(reader, ReadingOptions())
    assert (None, None) == (reading.read(job), reading.read_cgroup(job))


@pytest.mark.parametrize(("has_steps", "expected"), [(False, set()), (True, {GroupKey("batch")})])
def test_steps_are_read_when_wanted(reader: ProcessReader, has_steps: bool, expected: set[GroupKey]) -> None:
    use = JobMeter(reader, ReadingOptions(has_steps=has_steps)).read_cgroup(FakeJob(KEY))
    assert use is not None
    assert {WHOLE_JOB, *expected} == use.groups.keys()


def test_wanted_variables_are_read_and_no_others(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    reading = JobMeter(reader, ReadingOptions(environment=("SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION")))
    use = reading.read(JobWithProcesses(KEY, pids=[child.pid]))
    assert use is not None
    assert {"SLURM_JOB_ACCOUNT": "physics"} == use.environment


def test_environment_is_kept_when_its_process_is_gone(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    job = JobWithProcesses(KEY, pids=[child.pid])
    reading = JobMeter(reader, ReadingOptions(environment=("SLURM_JOB_ACCOUNT",)))
    reading.read(job)
    job.pids.clear()
    use = reading.read(job)
    assert use is not None
    assert {"SLURM_JOB_ACCOUNT": "physics"} == use.environment


def test_missing_environment_is_not_read_forever(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    job = JobWithProcesses(KEY)
    reading = JobMeter(reader, ReadingOptions(environment=("SLURM_JOB_ACCOUNT",)))
    reading.read(job)  # no process to read: this does not count
    job.pids = [os.getpid()]
    for _ in range(ENVIRONMENT_TRIES):
        reading.read(job)
    job.pids = [child.pid]
    use = reading.read(job)
    assert use is not None
    assert {} == use.environment


def test_leaders_are_those_whom_slurmstepd_started(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    reading = JobMeter(reader, ReadingOptions())
    job = JobWithProcesses(KEY, pids=[child.pid, os.getppid()], stepd=[os.getpid()])
    assert [child.pid] == reading.leaders(job)


def test_without_slurmstepd_leaders_are_those_whose_parent_is_not_in_the_job(
    reader: ProcessReader, child: subprocess.Popen[bytes]
) -> None:
    reading = JobMeter(reader, ReadingOptions())
    assert [os.getpid()] == reading.leaders(JobWithProcesses(KEY, pids=[os.getpid(), child.pid]))


def test_only_so_many_leaders_are_named(reader: ProcessReader) -> None:
    children = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(LEADER_LIMIT + 2)]
    pids = sorted(process.pid for process in children)
    leaders = JobMeter(reader, ReadingOptions()).leaders(JobWithProcesses(KEY, pids=pids, stepd=[os.getpid()]))
    for process in children:
        process.communicate(timeout=60)
    assert pids[:LEADER_LIMIT] == leaders


def test_process_that_may_need_memory_is_left(reader: ProcessReader, child: subprocess.Popen[bytes]) -> None:
    assert JobMeter(reader, ReadingOptions()).count_left(JobWithProcesses(KEY, pids=[child.pid])) is None


def test_sleep_of_the_extern_step_and_zombies_need_no_memory(reader: ProcessReader) -> None:
    meter = JobMeter(reader, ReadingOptions())
    with subprocess.Popen(["sleep", "600"]) as idle, subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert 2 == meter.count_left(JobWithProcesses(KEY, pids=[idle.pid, zombie.pid]))
        idle.kill()
    assert 0 == meter.count_left(JobWithProcesses(KEY, stepd=[os.getpid()]))


def test_many_processes_are_not_looked_at_one_by_one(reader: ProcessReader) -> None:
    assert JobMeter(reader, ReadingOptions()).count_left(JobWithProcesses(KEY, pids=[2**22] * (IDLE_LIMIT + 1))) is None


def test_processes_that_are_hidden_may_need_memory(reader: ProcessReader, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobWithProcesses(KEY, pids=[2**22 + 1])  # there is no such process
    meter = JobMeter(reader, ReadingOptions())
    assert 1 == meter.count_left(job)
    monkeypatch.setattr(reader, "hides_processes", lambda: True)
    assert meter.count_left(job) is None


def test_nothing_beyond_the_one_line_is_read_when_not_wanted(
    reader: ProcessReader, child: subprocess.Popen[bytes]
) -> None:
    detail = ProcessDetail(io=False, files=False, threads=False)
    use = JobMeter(reader, ReadingOptions(detail=detail)).read(JobWithProcesses(KEY, pids=[child.pid]))
    assert use is not None
    assert use.processes is not None
    assert (None, None) == (use.processes.io, use.processes.open_files)


@pytest.mark.parametrize(
    ("effective", "expected"),
    [("0000000000080004", True), ("000001ffffffffff", True), ("0000000000080000", False), ("0000000000000004", False)],
)
def test_both_capabilities_are_needed(tmp_path: Path, effective: str, expected: bool) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tpython\nCapPrm:\t{'f' * 16}\nCapEff:\t{effective}\n")
    assert expected is has_capabilities(tmp_path)


def test_unknown_capabilities_are_none(tmp_path: Path) -> None:
    assert not has_capabilities(tmp_path)


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[tuple[ProcessReader, ProcessSources]]:
    """Give a procfs in which this process has all capabilities."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("CapEff:\t000001ffffffffff\n")
    reader = ProcessReader(tmp_path)
    yield reader, ProcessSources(reader)
    reader.close()


ALL = {"processes": True, "process_io": True, "process_files": True, "process_environment": True}


def test_with_capabilities_all_is_well_before_the_first_job(sources: tuple[ProcessReader, ProcessSources]) -> None:
    assert ALL == sources[1].available(has_jobs=False)


def test_without_capabilities_files_of_others_are_missing_until_a_job_shows_otherwise(tmp_path: Path) -> None:
    reader = ProcessReader(tmp_path)
    sources = ProcessSources(reader)
    missing = dict.fromkeys(("process_io", "process_files", "process_environment"), False)
    assert ALL | missing == sources.available(has_jobs=False)
    assert ALL == sources.available(has_jobs=True)
    reader.close()


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        ("io", {"process_io"}),
        ("fd_target", {"process_files"}),
        ("environ", {"process_environment"}),
        ("process", set(ALL)),
    ],
)
def test_denied_source_is_unavailable_until_it_is_readable(
    sources: tuple[ProcessReader, ProcessSources], denied: str, missing: set[str]
) -> None:
    reader, told = sources
    reader.denials.counts[denied] += 1
    assert ALL | dict.fromkeys(missing, False) == told.available(has_jobs=True)
    assert ALL | dict.fromkeys(missing, False) == told.available(has_jobs=False)
    assert ALL == told.available(has_jobs=True)


def test_environments_that_are_slow_to_read_take_no_more_than_the_time_of_the_job(tmp_path: Path) -> None:
    tree, now = ProcTree(tmp_path / "proc"), 1000.0
    for pid in (10, 11, 12):
        tree.add(pid, pid)
        (tree.root / str(pid) / "environ").write_bytes(b"SLURM_JOB_ACCOUNT=physics\0" if pid == 12 else b"A=1\0")

    def slow() -> float:
        nonlocal now
        now += 1.0
        return now

    job = FakeJob(JobKey(1), pids=[10, 11, 12])
    meter = JobMeter(ProcessReader(tree.root), ReadingOptions(environment=("SLURM_JOB_ACCOUNT",)), clock=slow)

    cut = meter.read(job, seconds=2.5)
    assert (cut is not None and cut.environment, meter.was_cut) == ({}, True)
    whole = meter.read(job)
    assert (whole is not None and whole.environment, meter.was_cut) == ({"SLURM_JOB_ACCOUNT": "physics"}, False)
