# SPDX-License-Identifier: Apache-2.0
"""GPUs and their holders become metrics; what is not known has no series."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.metrics.family import Family
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, write
from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.collector import COLLECTOR, GpusOptions
from slurmscope.node.gpu.records import (
    Absence,
    Fault,
    Gpu,
    GpuCounters,
    GpuFaults,
    GpuProcess,
    GpuReason,
    Gpus,
    JobGpuCounters,
)
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs

GIB = 1 << 30
COUNTED = (
    "busy", "sm_active", "tensor_active", "dram_active", "pcie_received", "pcie_transmitted", "nvlink_received",
    "nvlink_transmitted", "fp32", "hmma",
)  # fmt: skip
FULL = Gpu(
    index=0,
    uuid="GPU-aaaaaaaa",
    model="NVIDIA H200",
    minor=1,
    bus_id="00000000:0A:00.0",
    utilization_ratio=0.29,
    memory_utilization_ratio=0.57,
    memory_size_bytes=80 * GIB,
    memory_used_bytes=3 * GIB,
    memory_free_bytes=76 * GIB,
    power_watts=250.5,
    energy_joules=9000.25,
    temperature_celsius=41.0,
    throttled_seconds={"power_cap": 12.5},
    health={
        "ecc_corrected": 1.0,
        "remapped_corrected": 0.0,
        "remap_pending": 0.0,
        "remap_failed": 0.0,
        "pcie_replays": 2.0,
        "nvlink_replay": 3.0,
        "recovery_action": 0.0,
        "fabric_state": 3.0,
        "fabric_degraded": 0.0,
        "link_ratio_symbol": 1e-15,
    },
    counters=GpuCounters(source="gpm", seconds=100.0, totals={name: 10.0 + n for n, name in enumerate(COUNTED)}),
    processes=(GpuProcess(pid=1, memory_bytes=2 * GIB, uid=1000, place=ProcessPlace(job_id=7)),),
)
BARE = Gpu(index=1, uuid="GPU-bbbbbbbb")
LOST = Gpu(index=2, problem=GpuReason.LOST)
CUT = Gpu(index=3, uuid="GPU-dddddddd", minor=3, has_instances=True, power_watts=99.0)
INSTANCE = Gpu(
    index=3,
    uuid="MIG-dddddddd-1",
    minor=3,
    parent_uuid="GPU-dddddddd",
    gpu_instance=2,
    compute_instance=0,
    memory_size_bytes=10 * GIB,
    processes=(),
)
JOBS = NodeJobs(
    jobs=(
        JobUse(key=JobKey(job_id=7), uid=1000, environment={"CUDA_VISIBLE_DEVICES": "GPU-aaaaaaaa"}),
        JobUse(
            key=JobKey(job_id=8, node_name="n2"), uid=1001, environment={"CUDA_VISIBLE_DEVICES": "MIG-dddddddd-1,9"}
        ),
        JobUse(key=JobKey(job_id=9), uid=1002, environment={"SLURM_JOB_GPUS": "0"}),
    )
)
GPUS = Gpus(
    devices=(FULL, BARE, LOST, CUT, INSTANCE),
    job_counters={
        (JobKey(job_id=7), "GPU-aaaaaaaa"): JobGpuCounters(
            totals={name: 1.0 + n for n, name in enumerate((*COUNTED, "energy", "throttled_power_cap"))}
        ),
        (JobKey(job_id=8, node_name="n2"), "MIG-dddddddd-1"): JobGpuCounters(absence=Absence.MPS),
    },
    unavailable={"devices": GpuReason.NO_PERMISSION},
)
NO_JOBS = NodeJobs()


def collect(gpus: Gpus, jobs: NodeJobs = NO_JOBS, numbers: str = "auto") -> list[Family]:
    return list(COLLECTOR.collect(GpusOptions(slurm_numbers=numbers), gpus=gpus, node_jobs=jobs))


def page(gpus: Gpus, jobs: NodeJobs = NO_JOBS, numbers: str = "auto") -> dict[str, dict[tuple[str, ...], float]]:
    """Return what Prometheus would read: by name, label values to value."""
    text = b"".join(write(collect(gpus, jobs, numbers), Format.TEXT)).decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_values_of_devices_are_in_base_units() -> None:
    found = page(GPUS)

    assert {("0", ""): 0.29} == found["gpu_utilization_ratio"]
    assert {("0", ""): 0.57} == found["gpu_memory_utilization_ratio"]
    assert {("0", ""): 80 * GIB, ("3", "2/0"): 10 * GIB} == found["gpu_memory_size_bytes"]
    assert {("0", ""): 3 * GIB} == found["gpu_memory_used_bytes"]
    assert {("0", ""): 250.5, ("3", ""): 99.0} == found["gpu_power_watts"]
    assert {("0", ""): 9000.25} == found["gpu_energy_joules_total"]
    assert {("0", ""): 41.0} == found["gpu_temperature_celsius"]
    assert {("0", ""): 1, ("3", "2/0"): 0} == found["gpu_processes"]


def test_every_device_is_described() -> None:
    expected = {
        ("0", "", "GPU-aaaaaaaa", "NVIDIA H200", "1", "00000000:0A:00.0", ""),
        ("1", "", "GPU-bbbbbbbb", "", "", "", ""),
        ("3", "", "GPU-dddddddd", "", "3", "", ""),
        ("3", "2/0", "MIG-dddddddd-1", "", "3", "", "GPU-dddddddd"),
    }
    assert expected == set(page(GPUS)["gpu_info"])


def test_lost_gpu_is_not_readable_and_has_no_values() -> None:
    found = page(GPUS)

    assert {("0",): 1, ("1",): 1, ("2",): 0, ("3",): 1} == found.pop("gpu_readable")
    assert not [labels for samples in found.values() for labels in samples if labels[0] == "2"]


def test_pairs_of_job_and_gpu_are_exported_with_their_sources() -> None:
    found = page(GPUS, JOBS)

    assert {("7", "", "0", ""): 1, ("8", "n2", "3", "2/0"): 1} == found["jobs_gpu_held"]
    assert {("7", "", "0", ""): 0, ("8", "n2", "3", "2/0"): 1} == found["jobs_gpu_held_idle"]
    assert {("7", "", "0", ""): 0, ("8", "n2", "3", "2/0"): 0} == found["jobs_gpu_disputed"]
    assert {
        ("7", "", "0", "", "environment"): 1,
        ("7", "", "0", "", "processes"): 1,
        ("8", "n2", "3", "2/0", "environment"): 1,
    } == found["jobs_gpu_claim"]
    assert {("9", ""): 1} == found["jobs_gpu_unresolved"]


def test_known_sums_of_jobs_are_exported() -> None:
    found = page(GPUS, JOBS)

    assert {("7", ""): 2 * GIB, ("8", "n2"): 0} == found["jobs_gpu_memory_bytes"]
    assert {("7", ""): 0.29} == found["jobs_gpu_utilization_ratio"]


def test_each_gpu_of_a_job_has_its_own_size_and_use() -> None:
    """A whole GPU and a MIG instance count with their own memory, not with that of the whole card."""
    found = page(GPUS, JOBS)

    whole, instance = ("7", "", "0", ""), ("8", "n2", "3", "2/0")
    assert {whole: 80 * GIB, instance: 10 * GIB} == found["jobs_gpu_held_memory_size_bytes"]
    assert {whole: 2 * GIB, instance: 0} == found["jobs_gpu_held_memory_bytes"]
    assert {whole: 0.29} == found["jobs_gpu_held_utilization_ratio"]
    assert {whole: 1, instance: 1} == found["jobs_gpu_held_jobs"]
    described = {(*whole, "GPU-aaaaaaaa", "NVIDIA H200"), (*instance, "MIG-dddddddd-1", "")}
    assert described == set(found["jobs_gpu_held_device_info"])


def test_jobs_that_share_a_gpu_have_their_own_memory_and_no_utilization() -> None:
    share = {"CUDA_VISIBLE_DEVICES": "GPU-aaaaaaaa", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    jobs = NodeJobs(jobs=tuple(JobUse(key=JobKey(job_id=number), uid=1, environment=share) for number in (7, 8)))
    other = GpuProcess(pid=2, memory_bytes=5 * GIB, place=ProcessPlace(job_id=8))
    found = page(Gpus(devices=(replace(FULL, processes=(*(FULL.processes or ()), other)),)), jobs)

    one, two = ("7", "", "0", ""), ("8", "", "0", "")
    assert {one: 2, two: 2} == found["jobs_gpu_held_jobs"]
    assert {one: 2 * GIB, two: 5 * GIB} == found["jobs_gpu_held_memory_bytes"]
    assert {one: 80 * GIB, two: 80 * GIB} == found["jobs_gpu_held_memory_size_bytes"]
    assert "jobs_gpu_held_utilization_ratio" not in found


@pytest.mark.parametrize("size", [None, 0])
def test_unknown_size_of_a_gpu_has_no_series(size: int | None) -> None:
    found = page(Gpus(devices=(replace(FULL, memory_size_bytes=size),)), JOBS)

    assert {("7", "", "0", ""): 1} == found["jobs_gpu_held"]
    assert "jobs_gpu_held_memory_size_bytes" not in found


@pytest.mark.parametrize(("numbers", "expected"), [("auto", set()), ("index", {"0"}), ("minor", {"1"})])
def test_option_says_what_the_numbers_of_slurm_are(numbers: str, expected: set[str]) -> None:
    turned = Gpus(devices=(Gpu(index=0, minor=1, uuid="GPU-a"), Gpu(index=1, minor=0, uuid="GPU-b")))
    job = JobUse(key=JobKey(job_id=7), environment={"SLURM_JOB_GPUS": "0"})

    found = page(turned, NodeJobs(jobs=(job,)), numbers)

    assert expected == {labels[2] for labels in found.get("jobs_gpu_held", {})}


def test_older_names_have_their_older_units() -> None:
    found = page(GPUS, JOBS)

    assert {("7", "", "0"): 1, ("8", "n2", "3"): 1} == found["jobs_gpus_used"]
    assert {("0",): 41} == found["temperature_gpu"]
    assert {("0",): 29} == found["utilization_gpu"]
    assert {("0",): 57} == found["utilization_memory"]
    assert {("0",): 81920} == found["memory_total"]
    assert {("0",): 77824} == found["memory_free"]
    assert {("0",): 3072} == found["memory_used"]


def test_node_without_a_driver_is_silent() -> None:
    assert [] == collect(Gpus(unavailable={"nvml": GpuReason.DRIVER_NOT_LOADED}), JOBS)


def test_unavailable_driver_is_reported() -> None:
    found = page(Gpus(unavailable={"nvml": GpuReason.NOT_INSTALLED}), JOBS)
    assert {"gpu_source_unavailable": {("nvml", "not_installed"): 1}} == found


def test_unavailable_device_rules_are_reported() -> None:
    assert {("devices", "no_permission"): 1} == page(GPUS)["gpu_source_unavailable"]


def test_counters_are_served_by_gpu_and_by_job() -> None:
    found = page(GPUS, JOBS)

    assert {("0", ""): 10.0} == found["gpu_busy_seconds_total"]
    assert {("0", "", "fp32"): 18.0, ("0", "", "hmma"): 19.0} == found["gpu_pipe_active_seconds_total"]
    assert {("0", "", "power_cap"): 12.5} == found["gpu_throttled_seconds_total"]
    sources = {("0", "", "gpm"): 1.0, ("1", "", "none"): 1.0, ("3", "2/0", "none"): 1.0}
    assert sources == found["gpu_counters_source_info"]
    assert {("8", "n2", "3", "2/0", "mps"): 1.0} == found["jobs_gpu_counters_unavailable"]
    assert {("7", "", "0", ""): 3.0} == found["jobs_gpu_tensor_active_seconds_total"]
    assert {("7", "", "0", "", "hmma"): 10.0, ("7", "", "0", "", "fp32"): 9.0} == found[
        "jobs_gpu_pipe_active_seconds_total"
    ]
    assert {("7", "", "0", ""): 11.0} == found["jobs_gpu_energy_joules_total"]
    assert {("7", "", "0", "", "power_cap"): 12.0} == found["jobs_gpu_throttled_seconds_total"]
    assert {("7", "", "0", ""): 0.0} == found["jobs_gpu_counters_estimated"]


def test_all_that_is_served_is_declared_and_may_be_served() -> None:
    guard = Guard()
    faults = GpuFaults(
        xids={("0", "", 31): Fault(count=1, last_at=5.0)},
        job_xids={(JobKey(job_id=7), "0", "", 31): Fault(count=1, last_at=5.0)},
        lost={("2", ""): True},
    )
    families = collect(replace(GPUS, faults=faults), JOBS)

    served = [family.metric for family in guard.admit(families)]

    assert {} == dict(guard.dropped)
    assert set(COLLECTOR.metrics) == set(served)


def test_gpus_of_jobs_without_a_node_name_have_the_host_name() -> None:
    found = page(GPUS, replace(JOBS, host_name="n17"))

    assert {("7", "n17"), ("8", "n2")} <= {labels[:2] for labels in found["jobs_gpu_held"]}
    assert {("7", "n17"): 2 * GIB, ("8", "n2"): 0} == found["jobs_gpu_memory_bytes"]
    assert {("7", "n17"): 0.29} == found["jobs_gpu_utilization_ratio"]
    assert {("7", "n17", "0")} == set(found["jobs_gpus_used"]) - {("8", "n2", "3")}
