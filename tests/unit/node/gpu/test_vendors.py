# SPDX-License-Identifier: Apache-2.0
"""The GPUs of all vendors become the same metrics where the quantity is the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.metrics.write import Format, write
from slurmscope.node.gpu.attribution import map_gpus
from slurmscope.node.gpu.collector import COLLECTOR, GpusOptions
from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from tests.fakes.kernel_gpus import GIB, KernelGpus
from tests.fakes.nvml.library import FakeNvml
from tests.unit.node.gpu.test_processes import make_process

PID = 10
JOBS = NodeJobs(
    jobs=(
        JobUse(
            key=JobKey(job_id=12),
            uid=0,
            pids=frozenset({PID}),
            environment={"SLURM_JOB_GPUS": "0", "SLURM_JOB_NUM_NODES": "1"},
        ),
    ),
    host_name="n1",
)
PAIR = ("12", "n1", "0", "")
INTERVAL_SECONDS = 0.5
Machine = Callable[[KernelGpus, FakeNvml], Callable[[float], None]]
"""Makes a machine whose first GPU is busy 60 % of the time; returns what lets it work for a while."""


def nvidia(files: KernelGpus, driver: FakeNvml) -> Callable[[float], None]:
    (files.procfs / "driver/nvidia").mkdir(parents=True)
    driver.add_gpus(2)
    driver.say(
        "gpm 0 1 60", "gpm 1 1 0", f"process 0 {PID} {20 * GIB}", "set nvmlDeviceGetPowerUsage@0 431000",
        f"set nvmlDeviceGetMemoryInfo_v2@0 {64 * GIB} 0 {43 * GIB} {21 * GIB}", "set nvmlDeviceGetTemperatureV@0 55",
    )  # fmt: skip

    def work(seconds: float) -> None:
        driver.say(f"set nvmlDeviceGetTotalEnergyConsumption@0 {9_000_000_500 + 431_000 * seconds:.0f}")

    return work


def amd(files: KernelGpus, _: FakeNvml) -> Callable[[float], None]:
    for number in (0, 1):
        files.add_amd(
            number, gpu_busy_percent=60, mem_busy_percent=30, mem_info_vram_total=64 * GIB,
            mem_info_vram_used=21 * GIB, hwmon_power1_average=431_000_000, hwmon_temp1_input=55_000,
        )  # fmt: skip
    files.add_kfd_process(PID, gpu0=20 * GIB, gpu1=0)
    return lambda _: None


def intel(files: KernelGpus, _: FakeNvml) -> Callable[[float], None]:
    for number in (0, 1):
        pdev = files.add(number, "xe", hwmon_energy1_input=0, **{"tile0/physical_vram_size_bytes": 64 * GIB})

    def work(seconds: float) -> None:
        cycles = {"cycles-ccs": int(600 * seconds), "total-cycles-ccs": 1 + int(1000 * seconds)}
        files.add_client(PID, "0000:c1:00.0", {**cycles, "resident-vram0": f"{20 * 1024} MiB"})
        files.set("0000:c1:00.0", hwmon_energy1_input=int(431e6 * seconds))

    assert pdev
    return work


BOTH = {
    "gpu_info", "gpu_readable", "gpu_lost", "gpu_utilization_ratio", "gpu_memory_size_bytes", "gpu_energy_joules_total",
    "gpu_processes", "gpu_counters_source_info", "gpu_busy_seconds_total", "jobs_gpu_held", "jobs_gpu_held_idle",
    "jobs_gpu_disputed", "jobs_gpu_claim", "jobs_gpu_held_device_info", "jobs_gpu_held_jobs",
    "jobs_gpu_held_memory_size_bytes", "jobs_gpu_held_memory_bytes", "jobs_gpu_held_utilization_ratio",
    "jobs_gpu_memory_bytes", "jobs_gpu_utilization_ratio", "jobs_gpu_counters_estimated", "jobs_gpu_busy_seconds_total",
    "jobs_gpu_energy_joules_total", "jobs_gpus_used", "utilization_gpu", "memory_total",
}  # fmt: skip
MORE = {"gpu_power_watts", "gpu_memory_used_bytes", "gpu_temperature_celsius", "gpu_memory_utilization_ratio"}
"""What xe does not report."""


@pytest.fixture
def read(tmp_path: Path, driver: FakeNvml) -> Iterator[Callable[[Machine], dict[str, dict[tuple[str, ...], float]]]]:
    """Return what Prometheus gets from the second of two readings of a machine."""
    files = KernelGpus(tmp_path)
    make_process_of_job(files)
    variables = [f"{name}={text}" for name, text in driver.environment.items() if name.startswith("FAKE_NVML")]
    reader = GpuReader(
        environment=driver.environment,
        procfs_root=files.procfs,
        sysfs=files.sysfs,
        device_files=tmp_path,
        job_pids=lambda: {1001: {PID}},
        find_holds=lambda gpus: map_gpus(gpus, JOBS),
        argv=("/usr/bin/env", *variables, *CHILD),
    )

    def make(machine: Machine) -> dict[str, dict[tuple[str, ...], float]]:
        work = machine(files, driver)
        work(1.0)
        reader.read()
        began = time.monotonic()
        time.sleep(INTERVAL_SECONDS)
        work(1.0 + time.monotonic() - began)
        return parse(COLLECTOR.collect(GpusOptions(slurm_numbers="auto"), gpus=reader.read(), node_jobs=JOBS))

    with closing(reader):
        yield make


def make_process_of_job(files: KernelGpus) -> None:
    files.procfs.mkdir()
    cgroup = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n"
    make_process(files.procfs, PID, started_at=0.0, cgroup=cgroup)


def parse(families: object) -> dict[str, dict[tuple[str, ...], float]]:
    text = b"".join(write(families, Format.TEXT)).decode()  # type: ignore[arg-type]
    return {
        sample.name: {tuple(each.labels.values()): each.value for each in family.samples}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("machine", "source", "expected"),
    [(nvidia, "gpm", BOTH | MORE), (amd, "gauge", BOTH | MORE), (intel, "engines", BOTH)],
)
def test_same_load_has_the_same_metrics_on_all_vendors(
    read: Callable[[Machine], dict[str, dict[tuple[str, ...], float]]],
    machine: Machine,
    source: str,
    expected: set[str],
) -> None:
    found = read(machine)

    assert set() == expected - set(found)
    assert {("0", "", source): 1, ("1", "", source): 1} == found["gpu_counters_source_info"]
    assert {PAIR: 1} == found["jobs_gpu_held"]
    assert {PAIR: 0} == found["jobs_gpu_held_idle"]
    assert {("12", "n1", "0", "", name): 1 for name in ("environment", "processes")} == found["jobs_gpu_claim"]
    assert {PAIR: 20 * GIB} == found["jobs_gpu_held_memory_bytes"]
    assert {PAIR: 64 * GIB} == found["jobs_gpu_held_memory_size_bytes"]
    assert {("0",): 1, ("1",): 1} == found["gpu_readable"]
    assert 0.6 == pytest.approx(found["gpu_utilization_ratio"]["0", ""], abs=0.01)
    # The first reading begins to count; the interval is as long as asked for, or longer on a busy machine.
    assert 0.6 * INTERVAL_SECONDS <= 1.01 * found["jobs_gpu_busy_seconds_total"][PAIR]
    assert 431 * INTERVAL_SECONDS <= 1.01 * found["jobs_gpu_energy_joules_total"][PAIR]
