# SPDX-License-Identifier: Apache-2.0
"""GPUs that real Slurm gave to real jobs are found on the node; only the driver's library is a stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from lab import ALICE, BOB, SlurmLab
from lab.cgroups import has_cgroup_v1
from slurmscope.node.gpu.attribution import ENVIRONMENT_NAMES, GpuMapping, Source, map_gpus
from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.reader import ProcessReader
from tests.fakes.nvml.library import FakeNvml, build_library

needs_cgroups = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    """Give a driver with as many GPUs as a node of the lab has."""
    fake = FakeNvml(library=build_library(tmp_path), folder=tmp_path)
    fake.add_gpus(2)
    return fake


@pytest.fixture
def reader(driver: FakeNvml, tmp_path: Path) -> Iterator[GpuReader]:
    """Give a reader over the real /proc."""
    variables = [f"{name}={text}" for name, text in driver.environment.items() if name.startswith("FAKE_NVML")]
    made = GpuReader(
        environment=driver.environment,
        procfs_root=Path("/proc"),
        device_files=tmp_path,
        argv=("/usr/bin/env", *variables, *CHILD),
    )
    (tmp_path / "nvidiactl").touch()
    with closing(made):
        yield made


def submit(lab: SlurmLab, user: str, *arguments: str, script: str = "exec sleep 300") -> int:
    job = lab.submit(user, "--partition=gpus", "--mem=100M", *arguments, script=script)
    lab.wait_state(job, {"RUNNING"})
    return job


def held_indexes(lab: SlurmLab, job: int, node: str) -> set[int]:
    """Return what the controller says the job holds on a node."""
    shown = lab.run("scontrol", "--oneliner", "--details", "show", "job", str(job))
    found = re.findall(rf"Nodes=(\S*{node}\S*) .*?GRES=gpu:a100:\d+\(IDX:(\S+?)\)", shown)
    assert found, shown
    first, _, last = found[0][1].partition("-")
    return set(range(int(first), int(last or first) + 1))


def find_sleep(lab: SlurmLab, job: int, node: str) -> int:
    """Return the process of a job that sleeps, once it is there."""
    found: list[int] = []

    def look() -> bool:
        for process in psutil.process_iter():
            try:
                names = process.environ()
                is_wanted = names.get("SLURM_JOB_ID") == str(job) and names.get("SLURMD_NODENAME") == node
                if is_wanted and process.name() == "sleep":
                    found.append(process.pid)
            except psutil.Error:
                continue
        return bool(found)

    lab.wait_for(look, what=f"a process of job {job} on {node}")
    return found[0]


def job_use(job: int, node: str, pid: int) -> JobUse:
    """Read a job as the agent does: its user, and the environment of one of its processes."""
    with closing(ProcessReader(Path("/proc"))) as processes, processes.process(pid) as process:
        assert not isinstance(process, Missing)
        environment = process.environment(ENVIRONMENT_NAMES)
        assert not isinstance(environment, Missing)
    return JobUse(key=JobKey(job_id=job, node_name=node), uid=psutil.Process(pid).uids().real, environment=environment)


def joined(reader: GpuReader, jobs: Iterable[JobUse]) -> GpuMapping:
    return map_gpus(reader.read(), NodeJobs(jobs=tuple(jobs)))


def indexes(mapping: GpuMapping, job: int, source: Source) -> set[int]:
    return {hold.gpu.index for hold in mapping.holds if hold.job.job_id == job and source in hold.sources}


@needs_cgroups
def test_two_jobs_on_one_node_hold_what_the_controller_says(
    clean_lab: SlurmLab, driver: FakeNvml, reader: GpuReader
) -> None:
    node = clean_lab.nodes[-1]
    jobs = [submit(clean_lab, user, f"--nodelist={node}", "--gres=gpu:1") for user in (ALICE, BOB)]
    pids = [find_sleep(clean_lab, job, node) for job in jobs]
    expected = [held_indexes(clean_lab, job, node) for job in jobs]
    (busy,) = expected[0]
    driver.say(f"process {busy} {pids[0]} 4096")

    mapping = joined(reader, [job_use(job, node, pid) for job, pid in zip(jobs, pids, strict=True)])

    assert expected == [indexes(mapping, job, Source.ENVIRONMENT) for job in jobs]
    assert [{busy}, set()] == [indexes(mapping, job, Source.PROCESSES) for job in jobs]
    assert {jobs[0]: False, jobs[1]: True} == {hold.job.job_id: hold.is_idle for hold in mapping.holds}
    assert not any(hold.is_disputed for hold in mapping.holds)


@needs_cgroups
def test_process_on_a_gpu_of_another_job_is_disputed(clean_lab: SlurmLab, driver: FakeNvml, reader: GpuReader) -> None:
    node = clean_lab.nodes[-1]
    jobs = [submit(clean_lab, user, f"--nodelist={node}", "--gres=gpu:1") for user in (ALICE, BOB)]
    pids = [find_sleep(clean_lab, job, node) for job in jobs]
    (own,) = held_indexes(clean_lab, jobs[0], node)
    (other,) = held_indexes(clean_lab, jobs[1], node)
    driver.say(f"process {own} {pids[0]} 4096", f"process {other} {pids[0]} 4096")

    mapping = joined(reader, [job_use(job, node, pid) for job, pid in zip(jobs, pids, strict=True)])

    disputed = {(hold.job.job_id, hold.gpu.index) for hold in mapping.holds if hold.is_disputed}
    assert {(jobs[0], other), (jobs[1], other)} == disputed


def test_step_on_the_second_node_holds_the_gpus_of_that_node(clean_lab: SlurmLab, reader: GpuReader) -> None:
    first, second = clean_lab.nodes[-2:]
    submit(clean_lab, BOB, f"--nodelist={second}", "--gres=gpu:1")
    job = submit(clean_lab, ALICE, f"--nodelist={first},{second}", "--nodes=2", "--gres=gpu:1", script="srun sleep 300")
    expected = {node: held_indexes(clean_lab, job, node) for node in (first, second)}

    found = {}
    for node in (first, second):
        use = job_use(job, node, find_sleep(clean_lab, job, node))
        found[node] = indexes(joined(reader, [use]), job, Source.ENVIRONMENT)

    assert expected[first] != expected[second], "the test wants different GPUs"
    assert expected == found


def test_job_without_gpus_claims_none(clean_lab: SlurmLab, reader: GpuReader) -> None:
    node = clean_lab.nodes[-1]
    job = submit(clean_lab, ALICE, f"--nodelist={node}")

    assert () == joined(reader, [job_use(job, node, find_sleep(clean_lab, job, node))]).holds
