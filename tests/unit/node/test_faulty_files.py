# SPDX-License-Identifier: Apache-2.0
"""Check that a file that cannot be read or parsed costs its own job at most, never another one."""

from __future__ import annotations

import logging
import math
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.job_finder import ReadingOptions
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.jobs import COLLECTOR, JobUseOptions
from slurmscope.node.procfs.job_scan import ProcessDetail
from tests.fixtures.cgroup.make import unpack
from tests.processes import holding_long_path
from tests.unit.node.proc_tree import FIXTURES

CAPTURES = ("v1-slurm-22.05", "v2-slurm-22.05")
READING = ReadingOptions(
    has_steps=True, has_tasks=True, detail=ProcessDetail(switches=True), environment=("SLURM_JOB_ACCOUNT",)
)
DIGITS = b"9" * 400
GARBAGE = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"", b"-5\n", b"nan\n", b"inf\n", DIGITS, b"9" * 5000, b"some total=" + DIGITS, b"\0" * 100]),
)


def snapshot(cgroup_root: Path, procfs_root: Path) -> NodeJobs:
    """Read all jobs twice, as two scrapes do."""
    options = TrackingOptions(cgroup_root=cgroup_root, procfs_root=procfs_root, reading=READING)
    with open_job_tracker(options) as tracker:
        tracker.snapshot()
        return tracker.snapshot()


def by_key(jobs: NodeJobs) -> dict[JobKey, JobUse]:
    return {job.key: job for job in jobs.jobs}


def assert_exportable(jobs: NodeJobs) -> None:
    """Every value is a finite number that is not negative."""
    for family in COLLECTOR.collect(JobUseOptions(steps=True), node_jobs=jobs):
        for labels, value in dict(family.samples).items():
            assert isinstance(value, int | float)
            assert math.isfinite(value), (family.metric.name, labels)
            assert value >= 0, (family.metric.name, labels)


@dataclass(frozen=True)
class Captured:
    """Hold a captured machine with two jobs, and the files of the first."""

    root: Path
    bad: JobKey
    good: JobUse
    files: tuple[Path, ...]

    def snapshot(self) -> NodeJobs:
        return snapshot(self.root / "sys/fs/cgroup", self.root / "proc")

    @contextmanager
    def changed(self, file: Path, data: bytes) -> Iterator[None]:
        before = file.read_bytes()
        file.write_bytes(data)
        try:
            yield
        finally:
            file.write_bytes(before)


@pytest.fixture(scope="module", params=CAPTURES)
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Unpack a capture in which each of two jobs has processes with all their files."""
    root = unpack(request.param, tmp_path_factory.mktemp("machine"))
    cgroups = root / "sys/fs/cgroup"
    if request.param.startswith("v1"):
        for folder in sorted(cgroups.glob("*/slurm*/uid_*/job_1")):
            shutil.copytree(folder, folder.with_name("job_2"))
            for procs in folder.with_name("job_2").rglob("cgroup.procs"):
                procs.write_text("".join(f"{int(pid) + 50_000}\n" for pid in procs.read_text().split()))
        folders = {number: sorted(cgroups.glob(f"*/slurm*/uid_*/job_{number}")) for number in (1, 2)}
    else:
        folders = {number: [cgroups / f"system.slice/n{number}_slurmstepd.scope/job_1"] for number in (1, 2)}
    processes = {number: add_processes(root / "proc", folders[number]) for number in (1, 2)}
    jobs = by_key(snapshot(cgroups, root / "proc"))
    bad, good = sorted(jobs, key=lambda key: (key.job_id, key.node_name))
    files = [path for folder in (*folders[1], *processes[1]) for path in sorted(folder.rglob("*")) if path.is_file()]
    return Captured(root, bad, jobs[good], tuple(files))


def add_processes(procfs: Path, folders: list[Path]) -> list[Path]:
    """Give all processes of a job the files of a real one."""
    pids = {pid for folder in folders for file in folder.rglob("cgroup.procs") for pid in file.read_text().split()}
    for pid in pids:
        folder = procfs / pid
        folder.mkdir(exist_ok=True)
        source = FIXTURES / "first" / "287"
        for name in ("stat", "io", "limits", "environ"):
            data = (source / name).read_bytes()
            if name == "stat":
                data = pid.encode() + data[data.index(b" ") :]
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
        with (folder / "status").open("ab") as status:  # a captured one may have a few lines only
            status.write((source / "status").read_bytes())
        (folder / "fd").mkdir()
        (folder / "fd" / "0").symlink_to("/scratch/file")
    return [procfs / pid for pid in sorted(pids)]


def test_captured_jobs_have_processes(captured: Captured) -> None:
    jobs = by_key(captured.snapshot())

    assert {captured.bad, captured.good.key} == set(jobs)
    assert all(job.processes and job.processes.io and job.processes.open_files for job in jobs.values())
    assert len(captured.files) > 100


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), garbage=GARBAGE)
def test_garbage_in_any_file_costs_only_its_own_job(captured: Captured, data: st.DataObject, garbage: bytes) -> None:
    file = data.draw(st.sampled_from(captured.files))
    with captured.changed(file, garbage):
        jobs = captured.snapshot()

    assert captured.good == by_key(jobs)[captured.good.key]
    assert_exportable(jobs)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_in_any_file_cost_only_its_own_job(captured: Captured, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(captured.files))
    text = file.read_bytes()
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 20)))
    inserted = data.draw(st.one_of(st.binary(max_size=10), st.sampled_from([b"", b"9" * 400, b"-"])))
    with captured.changed(file, text[:begin] + inserted + text[end:]):
        jobs = captured.snapshot()

    assert captured.good == by_key(jobs)[captured.good.key]
    assert_exportable(jobs)


def test_huge_counter_costs_that_value_and_is_counted(captured: Captured) -> None:
    names = ("memory.current", "memory.usage_in_bytes")
    file = next(file for file in captured.files if file.name in names and file.parent.name.startswith("job_"))
    with captured.changed(file, DIGITS):
        jobs = captured.snapshot()

    assert jobs.read_errors[f"cgroup_{file.name}"] > 0
    assert captured.bad in by_key(jobs)


def test_file_under_a_very_long_path_costs_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Use real processes: any user can open such a file, and readlink then fails with ENAMETOOLONG."""
    scope = tmp_path / "cgroup" / "system.slice" / "slurmstepd.scope"
    (tmp_path / "deep").mkdir()
    with holding_long_path(tmp_path / "deep") as bad, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as good:
        for job, pid in ((1, bad), (2, good.pid)):
            folder = scope / f"job_{job}"
            folder.mkdir(parents=True)
            (folder / "cpu.stat").write_text(f"usage_usec {job}000000\n")
            (folder / "cgroup.procs").write_text(f"{pid}\n")
        (tmp_path / "cgroup" / "cgroup.controllers").write_text("cpu memory\n")
        with caplog.at_level(logging.WARNING):
            jobs = snapshot(tmp_path / "cgroup", Path("/proc"))
        assert good.stdin
        good.stdin.close()

    uses = by_key(jobs)
    assert {JobKey(1), JobKey(2)} == set(uses)
    processes, others = uses[JobKey(1)].processes, uses[JobKey(2)].processes
    assert processes is not None
    assert others is not None
    assert (True, None, None) == (bool(processes.open_files), processes.distinct_files, processes.uses_scratch)
    assert others.distinct_files is not None
    assert jobs.read_errors["process_fd_target"] >= 1
    assert 1 == sum("cannot read a file of a process" in record.message for record in caplog.records)


def test_source_is_not_available_if_the_file_of_a_job_cannot_be_read(captured: Captured) -> None:
    names = ("memory.current", "memory.usage_in_bytes")
    file = next(file for file in captured.files if file.name in names and file.parent.name.startswith("job_"))
    before = captured.snapshot().available
    file.rename(file.with_suffix(".moved"))
    file.mkdir()  # reading it fails, also for root
    try:
        after = captured.snapshot()
    finally:
        file.rmdir()
        file.with_suffix(".moved").rename(file)

    assert (True, True) == (before["cgroup_memory"], before["cgroup_cpu"])
    assert (False, True) == (after.available["cgroup_memory"], after.available["cgroup_cpu"])
    assert after.read_errors[f"cgroup_{file.name}"] > 0


def test_job_whose_processes_cannot_be_listed_is_no_leftover(captured: Captured) -> None:
    listed = [file for file in captured.files if file.name in ("cgroup.procs", "cgroup.events")]
    texts = {file: file.read_bytes() for file in listed}
    for file in listed:
        file.unlink()
        file.mkdir()
    try:
        jobs = captured.snapshot()
    finally:
        for file, text in texts.items():
            file.rmdir()
            file.write_bytes(text)

    assert captured.bad in by_key(jobs)
    assert jobs.read_errors["job"] == 0


def test_context_switches_that_cannot_be_read_are_left_out(captured: Captured) -> None:
    moved = [file for file in captured.files if file.name == "status"]
    for file in moved:
        file.rename(file.with_suffix(".moved"))
    try:
        jobs = by_key(captured.snapshot())
    finally:
        for file in moved:
            file.with_suffix(".moved").rename(file)

    bad, good = jobs[captured.bad].processes, jobs[captured.good.key].processes
    assert bad is not None
    assert good is not None
    assert (None, None) == (bad.voluntary_switches, bad.involuntary_switches)
    assert good.voluntary_switches is not None
