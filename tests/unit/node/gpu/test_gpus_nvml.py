# SPDX-License-Identifier: Apache-2.0
"""The whole reading: driver, processes and kernel, in one answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.gpu.records import GpuReason, Gpus, ProcessPlace
from slurmscope.node.job_use import JobKey
from tests.fakes.device_programs import ACCEPT, DENY, Rule, cgroup_with, slurm_program
from tests.fakes.nvml.library import FakeNvml
from tests.unit.node.gpu.test_processes import make_process

JOB = JobKey(job_id=12)


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """Give a /proc with a driver and one process of a job."""
    root = tmp_path / "proc"
    (root / "driver/nvidia").mkdir(parents=True)
    make_process(root, 10, started_at=0.0, cgroup="0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n")
    return root


@pytest.fixture
def reader(driver: FakeNvml, procfs: Path) -> Iterator[GpuReader]:
    """Give a reader that names its needs as the agent does."""
    launcher = procfs.parent / "child.sh"
    variables = " ".join(f"{name}='{driver.environment[name]}'" for name in ("FAKE_NVML", "FAKE_NVML_LOG"))
    launcher.write_text(f'#!/bin/sh\nexec env {variables} "$@"\n', encoding="ascii")
    launcher.chmod(0o755)
    made = GpuReader(
        environment=driver.environment,
        procfs_root=procfs,
        argv=(str(launcher), *CHILD),
        job_cgroups=lambda: {JOB: procfs / "nowhere"},
    )
    with closing(made):
        yield made


def test_processes_of_the_driver_are_placed_in_jobs(driver: FakeNvml, reader: GpuReader) -> None:
    driver.add_gpus(2)
    driver.say("process 1 10 4096", "process 1 11 8192")

    gpus = reader.read()

    placed = {process.pid: process.place for process in gpus.devices[1].processes or ()}
    assert {10: ProcessPlace(job_id=12), 11: None} == placed
    assert {} == gpus.unavailable


def test_failing_driver_is_an_answer_and_no_error(driver: FakeNvml, reader: GpuReader) -> None:
    driver.say("code nvmlInitWithFlags 18")
    assert Gpus(unavailable={"nvml": GpuReason.VERSION_MISMATCH}) == reader.read()


def test_missing_driver_is_an_answer_and_no_error(driver: FakeNvml, tmp_path: Path) -> None:
    reader = GpuReader(environment={}, procfs_root=tmp_path, device_files=tmp_path)
    with closing(reader):
        assert Gpus(unavailable={"nvml": GpuReason.DRIVER_NOT_LOADED}) == reader.read()
    assert not driver.calls()


def test_kernel_reports_which_gpus_a_job_may_open(driver: FakeNvml, procfs: Path, reader: GpuReader) -> None:
    driver.add_gpus(2)
    program = slurm_program([Rule(195, 0, DENY), Rule(195, 1, ACCEPT)])
    with cgroup_with(program) as cgroup:
        (procfs / "nowhere").symlink_to(cgroup)
        gpus = reader.read()

    assert {JOB: {"GPU-00000001-0000-4000-8000-000000000000"}} == gpus.allowed
    assert {} == gpus.unavailable
