# SPDX-License-Identifier: Apache-2.0
"""The whole reading: driver, processes and kernel, in one answer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.cgroup.tree import CgroupLayout, LayoutKind
from slurmscope.node.exporter import open_gpus
from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import DriverCounters, GpuReader
from slurmscope.node.gpu.records import Gpu, GpuReason, Gpus
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from tests.fakes.device_programs import ACCEPT, DENY, Rule, cgroup_with, slurm_program
from tests.fakes.nvml.library import FakeNvml
from tests.unit.node.gpu.test_processes import make_process

JOB = JobKey(job_id=12)
V2 = CgroupLayout(kind=LayoutKind.V2, unified=Path("/sys/fs/cgroup"))


def reading(jobs: NodeJobs) -> SharedReading:
    return SharedReading("node_jobs", lambda: jobs, interval_seconds=0)


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """Give a /proc with a driver and one process of a job."""
    root = tmp_path / "proc"
    (root / "driver/nvidia").mkdir(parents=True)
    make_process(root, 10, started_at=0.0, cgroup="0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n")
    return root


@pytest.fixture
def argv(driver: FakeNvml, procfs: Path) -> tuple[str, ...]:
    """Give the command of a child that finds the fake driver."""
    launcher = procfs.parent / "child.sh"
    variables = " ".join(f"{name}='{driver.environment[name]}'" for name in ("FAKE_NVML", "FAKE_NVML_LOG"))
    launcher.write_text(f'#!/bin/sh\nexec env {variables} "$@"\n', encoding="ascii")
    launcher.chmod(0o755)
    return (str(launcher), *CHILD)


@pytest.fixture
def reader(driver: FakeNvml, procfs: Path, argv: tuple[str, ...]) -> Iterator[GpuReader]:
    """Give a reader that names its needs as the agent does."""
    made = GpuReader(
        environment=driver.environment,
        procfs_root=procfs,
        argv=argv,
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


def test_error_of_the_kernels_log_counts_when_the_driver_can_be_read_again(
    driver: FakeNvml, procfs: Path, argv: tuple[str, ...], tmp_path: Path
) -> None:
    driver.add_gpus(1)
    os.mkfifo(tmp_path / "kmsg")
    now = 0.0
    made = GpuReader(
        environment=driver.environment,
        procfs_root=procfs,
        device_files=tmp_path,
        argv=argv,
        clock=lambda: now,
    )
    with closing(made) as reader, (tmp_path / "kmsg").open("wb", buffering=0) as log:
        (gpu,) = reader.read().devices
        domain, bus, device = re.findall("[0-9A-Fa-f]{2,8}", gpu.bus_id)[:3]
        driver.say("crash nvmlDeviceGetCount")
        log.write(f"3,7,9000,-;NVRM: Xid (PCI:{domain[-4:]}:{bus}:{device}): 79, GPU has fallen off.".encode())
        failed = reader.read()
        driver.take_back("crash")
        now += 1000.0
        faults = [reader.read().faults for _ in range(2)]

    assert () == failed.devices
    assert [{("0", "", 79): 1}] * 2 == [{key: fault.count for key, fault in each.xids.items()} for each in faults]


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


def test_reader_of_the_agent_knows_the_owner_of_a_process_without_cgroups(
    driver: FakeNvml, procfs: Path, argv: tuple[str, ...]
) -> None:
    make_process(procfs, 20, started_at=0.0, cgroup="0::/system.slice/slurmd.service\n")
    make_process(procfs, 21, started_at=0.0, cgroup="0::/system.slice/slurmd.service\n")
    driver.add_gpus(1)
    driver.say("process 0 20 4096", "process 0 21 4096")
    jobs = NodeJobs(jobs=(JobUse(key=JOB, pids=frozenset({20})), JobUse(key=JobKey(13), has_ended=True)))

    with closing(open_gpus(reading(jobs), V2, driver.environment, procfs, argv)) as opened:
        placed = {process.pid: process.place for process in opened.read().devices[0].processes or ()}

    assert {20: ProcessPlace(job_id=12), 21: ProcessPlace()} == placed


def test_many_processes_without_cgroups_make_the_agent_read_its_jobs_once(
    driver: FakeNvml, procfs: Path, argv: tuple[str, ...]
) -> None:
    for pid in range(20, 60):
        make_process(procfs, pid, started_at=0.0, cgroup="0::/system.slice/slurmd.service\n")
    driver.add_gpus(2)
    driver.say(*(f"process {gpu} {pid} 4096" for gpu in range(2) for pid in range(20, 60)))
    jobs = reading(NodeJobs(jobs=(JobUse(key=JOB, pids=frozenset({20})),)))

    with closing(open_gpus(jobs, V2, driver.environment, procfs, argv)) as opened:
        assert [40, 40] == [len(gpu.processes or ()) for gpu in opened.read().devices]

    # For their cgroups, for the owners of processes, and for the GPUs that they hold: each may take seconds.
    assert jobs.attempts <= 3


def test_reader_of_the_agent_asks_the_kernel_which_gpus_a_job_may_open(
    driver: FakeNvml, procfs: Path, argv: tuple[str, ...]
) -> None:
    driver.add_gpus(2)
    program = slurm_program([Rule(195, 0, DENY), Rule(195, 1, ACCEPT)])
    with cgroup_with(program) as cgroup:
        jobs = NodeJobs(jobs=(JobUse(key=JOB, cgroup=str(cgroup)), JobUse(key=JobKey(13))))
        with closing(open_gpus(reading(jobs), V2, driver.environment, procfs, argv)) as opened:
            assert {JOB: {"GPU-00000001-0000-4000-8000-000000000000"}} == opened.read().allowed


def test_reader_of_the_agent_reads_the_devices_hierarchy_of_v1(
    driver: FakeNvml, procfs: Path, argv: tuple[str, ...], tmp_path: Path
) -> None:
    driver.add_gpus(2)
    hierarchies = {name: tmp_path / name for name in ("freezer", "devices")}
    folder = tmp_path / "devices/slurm/uid_1/job_12"
    folder.mkdir(parents=True)
    (folder / "devices.list").write_text("c 195:1 rwm\n")
    jobs = NodeJobs(jobs=(JobUse(key=JOB, cgroup=str(tmp_path / "freezer/slurm/uid_1/job_12")),))
    layout = CgroupLayout(kind=LayoutKind.V1, hierarchies=hierarchies)

    with closing(open_gpus(reading(jobs), layout, driver.environment, procfs, argv)) as opened:
        assert {JOB: {"GPU-00000001-0000-4000-8000-000000000000"}} == opened.read().allowed
    without = CgroupLayout(kind=LayoutKind.V1, hierarchies={"freezer": tmp_path / "freezer"})
    with closing(open_gpus(reading(jobs), without, driver.environment, procfs, argv)) as opened:
        assert {} == opened.read().allowed


def test_gpus_are_read_when_jobs_are_not(driver: FakeNvml, procfs: Path, argv: tuple[str, ...]) -> None:
    def fail() -> NodeJobs:
        raise SourceError("no cgroups")

    driver.add_gpus(1)
    failing = SharedReading("node_jobs", fail, interval_seconds=0)

    with closing(open_gpus(failing, V2, driver.environment, procfs, argv)) as opened:
        assert 1 == len(opened.read().devices)


def test_counters_of_the_driver_never_fall_or_leap() -> None:
    counters = DriverCounters()

    def read(now: float, joules: float, seconds: float) -> tuple[float | None, float]:
        gpu = Gpu(index=0, uuid="GPU-a", energy_joules=joules, throttled_seconds={"thermal": seconds})
        steady = counters.go_on(gpu, now)
        return steady.energy_joules, steady.throttled_seconds["thermal"]

    first = read(0, 9e6, 500)
    used = read(15, 9e6 + 6000, 510)
    broken = read(30, 0, 0)  # a board that reports 0 once
    back = read(45, 9e6 + 18_000, 540)
    loaded_again = read(60, 40, 1)
    goes_on = [read(75, 40, 1), read(90, 40, 1), read(105, 6040, 16)]

    assert [(9e6, 500), (9e6 + 6000, 510)] == [first, used]
    assert [used] * 3 == [broken, back, loaded_again]
    # Energy may be read less often than its page is served.
    assert [used, used, (9e6 + 12_000, 525)] == goes_on


def test_lost_gpu_has_no_counters_to_go_on() -> None:
    lost = Gpu(index=3, problem=GpuReason.LOST)
    assert lost is DriverCounters().go_on(lost, 1.0)
