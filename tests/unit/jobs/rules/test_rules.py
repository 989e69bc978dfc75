# SPDX-License-Identifier: Apache-2.0
"""Each rule speaks on its side of each threshold, and is silent on the other; examples are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.findings import judge
from slurmscope.jobs.rule import Finding, Severity
from slurmscope.jobs.summary import Coverage, GpuFault, GpuWork, HeldGpu, JobSummary, NodeSummary, OtherGpus, UsedShare
from tests.fakes.job_summaries import (
    GIB,
    all_findings,
    covered,
    in_kernel,
    make_summary,
    with_cores,
    with_gpus,
    with_io,
    with_nodes,
)
from tests.fakes.reports import START, make_record
from tests.fakes.resubmission import header

CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO


def written_in_kernel(calls: float) -> JobSummary:
    """Make a job that wrote 120,000 KiB in so many calls."""
    job = in_kernel(31.0, 73.0, 0)
    return replace(job, io=replace(job.io, read_bytes=0.0, write_bytes=120_000 * 1024.0, writes=calls))


def severity(summary: JobSummary, rule: str) -> Severity | None:
    return next((finding.severity for finding in all_findings(summary) if finding.rule == rule), None)


def near(working_peak_bytes: float, limit_bytes: float | None = None) -> JobSummary:
    node = NodeSummary(node="n1", working_peak_bytes=working_peak_bytes, limit_bytes=limit_bytes)
    return make_summary(nodes=(node,))


def suspended(summary: JobSummary) -> JobSummary:
    return replace(summary, record=replace(summary.record, suspended_seconds=60))


def with_shares(*cores: tuple[float, float | None]) -> JobSummary:
    """Make a job with so many busy cores, of so many, on each of its nodes."""
    nodes = tuple(NodeSummary(node=f"n{index}", mean_cores=b, cpus=c) for index, (b, c) in enumerate(cores))
    return make_summary(record={"node_count": len(cores), "cpus": 64}, nodes=nodes)


def worked(**ratios: float) -> JobSummary:
    """Make a job whose GPUs counted these shares of the run."""
    named: dict[str, Any] = {f"{name}_ratio": ratio for name, ratio in ratios.items()}
    work = GpuWork(**named)
    return with_gpus(mean_utilization=0.9, work=work)


def test_nothing_is_found_in_a_job_with_which_all_is_well() -> None:
    assert () == judge(make_summary())


def moved(*, busy: float, sm: float | None, mib_per_second: float | None, gpus: int = 1) -> JobSummary:
    """Make a job of two hours whose GPUs moved so much data a second over PCIe, each."""
    total = None if mib_per_second is None else gpus * mib_per_second * 7200 * (1 << 20)
    devices = tuple(HeldGpu(node="n1", gpu=str(number)) for number in range(gpus))
    work = GpuWork(busy_ratio=busy, sm_ratio=sm, pcie_bytes=total)
    return with_gpus(gpus, mean_utilization=busy, work=work, devices=devices)


def fed(busy: float | None, cores: float, *, cpus: int = 8, gpus: int = 1) -> JobSummary:
    """Make a job whose GPUs were busy for this share while so many of its cores were."""
    summary = with_gpus(gpus, mean_utilization=0.9, work=GpuWork(busy_ratio=busy, sm_ratio=0.1))
    time = UsedShare(requested=cpus * 7200.0, used=cores * 7200.0, coverage=covered())
    record = replace(summary.record, cpus=cpus)
    return replace(summary, record=record, cpu=replace(summary.cpu, time=time, mean_cores=cores))


def each_busy(*ratios: float | None, **gpu: object) -> JobSummary:
    """Make a job whose GPUs were busy for these shares."""
    devices = tuple(HeldGpu(node="n1", gpu=str(number), mean_utilization=r) for number, r in enumerate(ratios))
    return with_gpus(len(ratios), **{"mean_utilization": 0.9, "devices": devices, **gpu})


def stuck(seconds: float | None, *, until: float = 7200.0) -> JobSummary:
    """Make a job of two hours with a GPU that was stuck for so long, until so long after the start."""
    since = None if seconds is None else START + until - seconds
    device = HeldGpu(node="n1", gpu="0", stuck_seconds=seconds, stuck_since_seconds=since)
    return with_gpus(1, mean_utilization=1.0, devices=(device,))


def throttled(**seconds: float) -> JobSummary:
    return with_gpus(1, mean_utilization=0.9, work=GpuWork(throttled_seconds=seconds))


def faulty(*xids: int) -> JobSummary:
    faults = tuple(GpuFault(node="n1", gpu="0", xid=xid, last_seconds=START + 60.0) for xid in xids)
    return with_gpus(1, mean_utilization=0.9, faults=faults)


CASES: list[tuple[str, JobSummary, Severity | None]] = [
    # Loads as measured on an H200, then the edges.
    ("gpu_only_copies", moved(busy=0.0001, sm=0.0, mib_per_second=55_036), WARNING),  # copies from the host
    ("gpu_only_copies", moved(busy=0.18, sm=0.0002, mib_per_second=152), None),  # tiny kernels
    ("gpu_only_copies", moved(busy=0.17, sm=0.15, mib_per_second=491), None),  # small network, batches by numpy
    ("gpu_only_copies", moved(busy=0.0, sm=0.0199, mib_per_second=1024), WARNING),
    ("gpu_only_copies", moved(busy=0.0, sm=0.02, mib_per_second=1024), None),
    ("gpu_only_copies", moved(busy=0.0, sm=0.0, mib_per_second=1023.9), None),
    ("gpu_only_copies", moved(busy=0.0, sm=0.0, mib_per_second=1024, gpus=4), WARNING),
    ("gpu_only_copies", moved(busy=0.0, sm=0.0, mib_per_second=None), None),
    ("gpu_only_copies", moved(busy=0.0, sm=None, mib_per_second=5000), None),
    ("gpu_launch_bound", moved(busy=0.18, sm=0.0002, mib_per_second=152), WARNING),  # tiny kernels
    ("gpu_launch_bound", moved(busy=0.9999, sm=0.0076, mib_per_second=0.1), None),  # one thread spins
    ("gpu_launch_bound", moved(busy=0.1, sm=0.0199, mib_per_second=10), WARNING),
    ("gpu_launch_bound", moved(busy=0.0999, sm=0.0, mib_per_second=10), None),
    ("gpu_launch_bound", moved(busy=0.1, sm=0.02, mib_per_second=10), None),
    ("gpu_launch_bound", moved(busy=0.1, sm=0.0, mib_per_second=9.9), None),
    ("gpu_launch_bound", moved(busy=0.1, sm=0.0, mib_per_second=None), None),
    ("gpu_starved", fed(0.193, 1.0), WARNING),  # busy 20 % of the time, one core at 100 %
    ("gpu_starved", fed(0.98, 1.0), None),  # training in bfloat16
    ("gpu_starved", fed(0.02, 0.85), WARNING),
    ("gpu_starved", fed(0.0199, 1.0), None),
    ("gpu_starved", fed(0.4999, 1.3), WARNING),
    ("gpu_starved", fed(0.5, 1.0), None),
    ("gpu_starved", fed(0.2, 0.849), None),
    ("gpu_starved", fed(0.2, 1.31), None),
    ("gpu_starved", fed(0.2, 6.8), WARNING),  # all cores are busy
    ("gpu_starved", fed(0.2, 6.79), None),
    ("gpu_starved", fed(0.2, 2.0, gpus=2), WARNING),
    ("gpu_starved", fed(None, 1.0), None),
    ("gpu_starved", suspended(fed(0.2, 1.0)), None),
    ("gpu_some_idle", each_busy(0.73, 0.0), WARNING),
    ("gpu_some_idle", each_busy(0.1, 0.0199), WARNING),
    ("gpu_some_idle", each_busy(0.0999, 0.0), None),
    ("gpu_some_idle", each_busy(0.5, 0.02), None),
    ("gpu_some_idle", each_busy(0.73, 0.0, held_idle=1), None),  # no process: another rule
    ("gpu_some_idle", each_busy(0.73, 0.0, 0.0, held_idle=1), WARNING),
    ("gpu_some_idle", each_busy(0.73, 0.0, None), None),
    ("gpu_some_idle", each_busy(0.73, 0.0, others=OtherGpus(count=1)), None),
    ("gpu_some_idle", each_busy(0.73, 0.0, coverage=covered(run_ratio=0.5)), None),
    ("gpu_some_idle", suspended(each_busy(0.73, 0.0)), None),
    ("gpu_unused_memory", with_gpus(mean_utilization=0.0199, peak_memory_bytes=4 * GIB), CRITICAL),
    ("gpu_unused_memory", with_gpus(mean_utilization=0.02, peak_memory_bytes=4 * GIB), None),
    ("gpu_unused_memory", with_gpus(mean_utilization=0.0, peak_memory_bytes=4 * GIB - 1), None),
    ("gpu_unused_memory", with_gpus(mean_utilization=0.0), None),
    (
        "gpu_unused_memory",
        with_gpus(mean_utilization=0.0, peak_memory_bytes=9 * GIB, coverage=covered(run_ratio=0.5)),
        None,
    ),
    ("gpu_stuck", stuck(600.0), CRITICAL),
    ("gpu_stuck", stuck(599.9), None),
    ("gpu_stuck", stuck(1200.0, until=6600.0), CRITICAL),
    ("gpu_stuck", stuck(1200.0, until=6599.0), WARNING),  # it went on afterwards
    ("gpu_stuck", stuck(None), None),
    ("gpu_throttled", throttled(thermal=360.1), WARNING),
    ("gpu_throttled", throttled(thermal=360.0), None),
    ("gpu_throttled", throttled(power_cap=7200.0), None),  # full load
    ("gpu_throttled", throttled(), None),
    ("gpu_throttled", replace(throttled(thermal=400.0), run_seconds=0.0), None),
    ("gpu_fault", faulty(31), WARNING),
    ("gpu_fault", faulty(79), CRITICAL),
    ("gpu_fault", faulty(31, 79), CRITICAL),
    ("gpu_fault", faulty(), None),
    # cpu_idle: below 80 %, critical below 25 %, from 300 s on.
    ("cpu_idle", make_summary(busy=0.8), None),
    ("cpu_idle", make_summary(busy=0.79), WARNING),
    ("cpu_idle", make_summary(busy=0.25, cpu={"peak_cores": 2.0}), WARNING),
    ("cpu_idle", make_summary(busy=0.249, cpu={"peak_cores": 2.0}), CRITICAL),
    ("cpu_idle", make_summary(busy=0.1, run_seconds=299.0), None),
    ("cpu_idle", make_summary(busy=0.1, run_seconds=300.0), CRITICAL),
    ("cpu_idle", make_summary(busy=0.1, coverage=covered(run_ratio=0.79)), None),
    ("cpu_idle", make_summary(busy=0.1, record={"gres": (Gres(name="gpu", count=1),)}), None),
    ("cpu_idle", make_summary(busy=0.1, record={"cpus": 0}), None),
    # cpu_uneven_over_time: mean below 75 % of the peak.
    ("cpu_uneven_over_time", make_summary(busy=0.75, cpu={"peak_cores": 4.0}), None),
    ("cpu_uneven_over_time", make_summary(busy=0.74, cpu={"peak_cores": 4.0}), WARNING),  # it explains idle cores
    ("cpu_uneven_over_time", make_summary(busy=0.74, cpu={"peak_cores": None}), None),
    ("cpu_uneven_over_time", make_summary(busy=0.1, cpu={"peak_cores": 0.9}), None),
    ("cpu_uneven_over_time", make_summary(busy=0.1, record={"cpus": 1}, cpu={"peak_cores": 1.0}), None),
    # core_imbalance: any core below 80 % of the mean: 960 of (4 x 1000, one less) and so on.
    ("core_imbalance", with_cores(1000.0, 1000.0, 1000.0, 750.0), None),  # mean 937.5, bound 750
    ("core_imbalance", with_cores(1000.0, 1000.0, 1000.0, 749.0), WARNING),  # mean 937.25, bound 749.8
    ("core_imbalance", with_cores(59.0, 59.0, 119.0, 0.0), None),  # mean 59.25
    ("core_imbalance", with_cores(60.0, 60.0, 120.0, 0.0), WARNING),  # mean 60
    ("core_imbalance", with_cores(1000.0), None),
    ("core_imbalance", with_cores(1000.0, 1.0, run_seconds=299.0), None),
    ("core_imbalance", with_cores(1000.0, 1.0, coverage=Coverage(nodes=2, nodes_measured=1, run_ratio=1.0)), None),
    # serial_code: 0.85 to 1.05 of several cores, critical from 8 cores on.
    ("serial_code", make_summary(busy=0.2125), WARNING),  # 0.85 cores
    ("serial_code", make_summary(busy=0.21), None),
    ("serial_code", make_summary(busy=0.2625), WARNING),  # 1.05 cores
    ("serial_code", make_summary(busy=0.265), None),
    ("serial_code", make_summary(busy=0.25, cpu={"peak_cores": 1.5}), WARNING),
    ("serial_code", make_summary(busy=0.25, cpu={"peak_cores": 1.51}), None),
    ("serial_code", make_summary(busy=1 / 7, record={"cpus": 7}), WARNING),
    ("serial_code", make_summary(busy=1 / 8, record={"cpus": 8}), CRITICAL),
    ("serial_code", make_summary(busy=1.0, record={"cpus": 1}), None),
    ("serial_code", make_summary(busy=0.25, run_seconds=299.0), None),
    ("serial_code", make_summary(busy=0.125, record={"cpus": 8, "nodes": ("a", "b"), "node_count": 2}), None),
    # stopped_early: 600 s and a tenth of the run; critical from half of it on. The run is 7,200 s.
    ("stopped_early", make_summary(cpu={"idle_tail_seconds": 719.0}), None),
    ("stopped_early", make_summary(cpu={"idle_tail_seconds": 720.0}), WARNING),
    ("stopped_early", make_summary(cpu={"idle_tail_seconds": 3599.0}), WARNING),
    ("stopped_early", make_summary(cpu={"idle_tail_seconds": 3600.0}), CRITICAL),
    ("stopped_early", make_summary(run_seconds=1000.0, cpu={"idle_tail_seconds": 599.0}), None),
    ("stopped_early", make_summary(run_seconds=1000.0, cpu={"idle_tail_seconds": 600.0}), CRITICAL),
    ("stopped_early", make_summary(run_seconds=0.0, cpu={"idle_tail_seconds": 600.0}), None),
    ("stopped_early", make_summary(cpu={"idle_tail_seconds": None}), None),
    # Suspended: four of eight hours nothing could be done.
    ("stopped_early", make_summary(record={"suspended_seconds": 14400}, cpu={"idle_tail_seconds": 3600.0}), None),
    ("cpu_uneven_over_time", make_summary(busy=0.5, record={"suspended_seconds": 1}, cpu={"peak_cores": 4.0}), None),
    # Slurm gave two threads of one core to a job that asked for one, or eight cores for the memory of one.
    ("serial_code", make_summary(busy=0.5, record={"cpus": 2, "requested_cpus": 1}), None),
    ("cpu_idle", make_summary(busy=0.5, record={"cpus": 2, "requested_cpus": 1}), None),
    (
        "cpu_uneven_over_time",
        make_summary(busy=0.4, record={"cpus": 2, "requested_cpus": 1}, cpu={"peak_cores": 2.0}),
        None,
    ),
    ("serial_code", make_summary(busy=0.5, record={"cpus": 2, "requested_cpus": 2}), WARNING),
    ("cpu_idle", make_summary(busy=0.4, record={"cpus": 8, "requested_cpus": 4}), None),  # 3.2 of 4
    ("cpu_idle", make_summary(busy=0.39, record={"cpus": 8, "requested_cpus": 4}), WARNING),
    ("cpu_idle", make_summary(busy=0.24, record={"cpus": 8, "requested_cpus": 4}), WARNING),  # 1.92 of 4
    ("cpu_idle", make_summary(busy=0.1, record={"cpus": 8, "requested_cpus": 4}), CRITICAL),  # 0.8 of 4
    # Whoever asks for whole nodes asks for all of their cores.
    (
        "cpu_idle",
        make_summary(busy=0.4, record={"cpus": 8, "requested_cpus": 4, "submit_line": "sbatch --exclusive x"}),
        WARNING,
    ),
    # memory_over_requested: below half of 8 GiB, critical below a tenth; at least 1 GiB unused and above 1 GiB a core.
    ("memory_over_requested", make_summary(memory={"working_peak_bytes": 4 * GIB}), None),
    ("memory_over_requested", make_summary(memory={"working_peak_bytes": 4 * GIB - 1}), WARNING),
    ("memory_over_requested", make_summary(memory={"working_peak_bytes": 0.8 * GIB}), WARNING),
    ("memory_over_requested", make_summary(memory={"working_peak_bytes": 0.79 * GIB}), CRITICAL),
    ("memory_over_requested", make_summary(memory={"working_peak_bytes": GIB, "requested_bytes": 4 * GIB}), None),
    (
        "memory_over_requested",
        make_summary(memory={"working_peak_bytes": GIB, "requested_bytes": 4 * GIB + 1}),
        WARNING,
    ),
    (
        "memory_over_requested",
        make_summary(record={"cpus": 1}, memory={"working_peak_bytes": 0.2 * GIB, "requested_bytes": 1.1 * GIB}),
        None,
    ),
    (
        "memory_over_requested",
        make_summary(record={"cpus": 1}, memory={"working_peak_bytes": 0.2 * GIB, "requested_bytes": 1.2 * GIB}),
        WARNING,
    ),
    ("memory_over_requested", make_summary(run_seconds=299.0, memory={"working_peak_bytes": GIB}), None),
    ("memory_over_requested", make_summary(record={"state": "FAILED"}, memory={"working_peak_bytes": GIB}), None),
    ("memory_over_requested", make_summary(record={"state": "RUNNING"}, memory={"working_peak_bytes": GIB}), None),
    ("memory_over_requested", make_summary(record={"state": "TIMEOUT"}, memory={"working_peak_bytes": GIB}), WARNING),
    ("memory_over_requested", make_summary(memory={"requested_bytes": None, "working_peak_bytes": GIB}), None),
    # memory_near_limit: from 95 % of a node's limit on.
    ("memory_near_limit", near(94.9, 100.0), None),
    ("memory_near_limit", near(95.0, 100.0), WARNING),
    ("memory_near_limit", near(7.6 * GIB), WARNING),
    ("memory_near_limit", near(7.5 * GIB), None),
    (
        "memory_near_limit",
        make_summary(memory={"requested_bytes": None}, nodes=(NodeSummary(node="n1", working_peak_bytes=7.9 * GIB),)),
        None,
    ),
    # oom_kill: any.
    ("oom_kill", make_summary(memory={"oom_kills": 1}), CRITICAL),
    ("oom_kill", make_summary(memory={"oom_kills": None}, record={"state": "OUT_OF_MEMORY"}), CRITICAL),
    # memory_growing: from 1.3 on, from 1 GiB on, a warning from half of what was asked for on; from 1,800 s on.
    ("memory_growing", make_summary(memory={"growth_ratio": 1.29}), None),
    ("memory_growing", make_summary(memory={"growth_ratio": 1.3}), WARNING),
    ("memory_growing", make_summary(memory={"growth_ratio": 1.3, "working_peak_bytes": 4 * GIB - 1}), INFO),
    ("memory_growing", make_summary(memory={"growth_ratio": 1.3, "working_peak_bytes": 4 * GIB}), WARNING),
    ("memory_growing", make_summary(memory={"growth_ratio": 2.0, "working_peak_bytes": GIB - 1}), None),
    ("memory_growing", make_summary(memory={"growth_ratio": 2.0}, run_seconds=1799.0), None),
    ("memory_growing", make_summary(memory={"growth_ratio": 2.0}, run_seconds=1800.0), WARNING),
    ("memory_growing", make_summary(memory={"growth_ratio": 2.0, "requested_bytes": None}), INFO),
    # time_over_requested: below half of the limit, a warning below a tenth, at least 1 h unused, from 900 s on.
    ("time_over_requested", make_summary(record={"time_limit_seconds": 14400}), None),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 14401}), INFO),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 72000}), INFO),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 72001}), WARNING),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 4500}, run_seconds=901.0), None),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 4500}, run_seconds=900.0), INFO),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 90000}, run_seconds=899.0), None),
    ("time_over_requested", make_summary(record={"time_limit_seconds": 90000, "state": "FAILED"}), None),
    ("time_over_requested", make_summary(record={"time_limit_seconds": None}), None),
    # timed_out, node_failed: by state.
    ("timed_out", make_summary(record={"state": "TIMEOUT"}), CRITICAL),
    ("timed_out", make_summary(record={"state": "COMPLETED"}), None),
    ("node_failed", make_summary(record={"state": "NODE_FAIL"}), CRITICAL),
    ("node_failed", make_summary(record={"state": "BOOT_FAIL"}), CRITICAL),
    ("node_failed", make_summary(record={"state": "FAILED"}), None),
    # too_short: below 60 s.
    ("too_short", make_summary(run_seconds=59.0), INFO),
    ("too_short", make_summary(run_seconds=60.0), None),
    ("too_short", make_summary(run_seconds=0.0), None),
    ("too_short", make_summary(run_seconds=1.0), INFO),
    ("too_short", make_summary(run_seconds=5.0, record={"state": "FAILED"}), None),
    # gpu_idle below 2 %, gpu_low below 25 %, milder with 32 GiB on each.
    ("gpu_idle", with_gpus(mean_utilization=0.019), CRITICAL),
    ("gpu_idle", with_gpus(mean_utilization=0.02), None),
    ("gpu_idle", replace(with_gpus(mean_utilization=0.0), run_seconds=299.0), None),
    ("gpu_idle", with_gpus(mean_utilization=0.0, coverage=covered(run_ratio=0.5)), None),
    ("gpu_low", with_gpus(mean_utilization=0.019), None),
    ("gpu_low", with_gpus(mean_utilization=0.02), WARNING),
    ("gpu_low", with_gpus(mean_utilization=0.249), WARNING),
    ("gpu_low", with_gpus(mean_utilization=0.25), None),
    ("gpu_low", suspended(with_gpus(mean_utilization=0.2)), None),
    ("gpu_low", with_gpus(mean_utilization=0.2, peak_memory_bytes=64 * GIB - 1), WARNING),
    ("gpu_low", with_gpus(mean_utilization=0.2, peak_memory_bytes=64 * GIB), INFO),
    # What an H200 counted of these loads, and the edges.
    ("gpu_busy_without_work", worked(busy=0.9999, sm=0.0076), WARNING),  # one thread spins
    ("gpu_busy_without_work", worked(busy=0.18, sm=0.0002), WARNING),  # 2,000 tiny kernels a batch
    ("gpu_busy_without_work", worked(busy=0.0001, sm=0.0), None),  # copies from the host, or nothing
    ("gpu_busy_without_work", worked(busy=0.193, sm=0.147), None),  # starved, but at work
    ("gpu_busy_without_work", worked(busy=0.1, sm=0.0199), WARNING),
    ("gpu_busy_without_work", worked(busy=0.1, sm=0.02), None),
    ("gpu_busy_without_work", worked(busy=0.0999, sm=0.0), None),
    ("gpu_busy_without_work", worked(busy=1.0), None),
    ("gpu_busy_without_work", replace(worked(busy=1.0, sm=0.0), run_seconds=299.0), None),
    ("gpu_tensor_unused", worked(busy=0.998, sm=0.97, tensor=0.0, fp32=0.76, dram=0.05), INFO),  # FP32, TF32 off
    ("gpu_tensor_unused", worked(busy=0.998, sm=0.96, tensor=0.935, fp32=0.0, dram=0.18), None),  # bfloat16
    ("gpu_tensor_unused", worked(busy=0.99, sm=0.98, tensor=0.966, fp32=0.0, dram=0.1), None),  # FP64
    ("gpu_tensor_unused", worked(busy=0.995, sm=0.99, tensor=0.0, fp32=0.016, dram=0.87), None),  # elementwise
    ("gpu_tensor_unused", worked(tensor=0.0999, fp32=0.3), INFO),
    ("gpu_tensor_unused", worked(tensor=0.1, fp32=0.3), None),
    ("gpu_tensor_unused", worked(tensor=0.0, fp32=0.2999), None),
    ("gpu_tensor_unused", worked(fp32=0.9), None),
    ("gpu_memory_bound", worked(busy=0.997, sm=0.99, tensor=0.0, fp32=0.0, dram=0.88), INFO),  # copies on the device
    ("gpu_memory_bound", worked(dram=0.7), INFO),
    ("gpu_memory_bound", worked(dram=0.699), None),
    ("gpu_memory_bound", worked(busy=1.0), None),
    ("gpu_memory_bound", with_gpus(work=GpuWork(dram_ratio=0.9), coverage=covered(run_ratio=0.5)), None),
    ("gpu_memory_bound", with_gpus(work=GpuWork(dram_ratio=0.9), devices=(HeldGpu(node="n1", gpu="0", jobs=2),)), None),
    ("gpu_held_without_process", with_gpus(held_idle=0), None),
    ("gpu_held_without_process", with_gpus(0, held_idle=1), None),
    ("gpu_held_without_process", with_gpus(1, held_idle=1), CRITICAL),
    ("gpu_held_without_process", with_gpus(held_idle=1), WARNING),
    ("gpu_held_without_process", with_gpus(held_idle=2), CRITICAL),
    ("gpu_held_without_process", replace(with_gpus(held_idle=2), run_seconds=299.0), None),
    # scratch_unused: 1 GiB and more, elsewhere; from 300 s on.
    ("scratch_unused", with_io(uses_scratch=False, storage_bytes=GIB), INFO),
    ("scratch_unused", with_io(uses_scratch=False, storage_bytes=GIB - 1), None),
    ("scratch_unused", with_io(uses_scratch=True, storage_bytes=GIB), None),
    ("scratch_unused", with_io(uses_scratch=None, storage_bytes=GIB), None),
    # Pipes, /dev/null, /dev/zero and tmpfs: file systems moved nothing.
    ("scratch_unused", with_io(uses_scratch=False, read_bytes=9 * GIB, write_bytes=9 * GIB, storage_bytes=0.0), None),
    ("scratch_unused", with_io(uses_scratch=False, read_bytes=GIB, write_bytes=GIB), None),
    ("scratch_unused", replace(with_io(uses_scratch=False, storage_bytes=GIB), run_seconds=9.0), None),
    # kernel_time: 120,000 files of 1 KiB, with 73 s in the kernel and 31 s in the program.
    ("kernel_time", in_kernel(31.0, 73.0, 240_000), WARNING),
    ("kernel_time", in_kernel(90.0, 60.0, 240_000), WARNING),
    ("kernel_time", in_kernel(90.1, 60.0, 240_000), None),
    ("kernel_time", in_kernel(31.0, 59.9, 240_000), None),
    # 120,000 KiB in 1,875 calls are 64 KiB each: the kernel copies data.
    ("kernel_time", in_kernel(31.0, 73.0, 1875), None),
    ("kernel_time", in_kernel(31.0, 73.0, 1876), WARNING),
    # Writes are calls as reads are.
    ("kernel_time", written_in_kernel(1876.0), WARNING),
    ("kernel_time", written_in_kernel(1875.0), None),
    ("kernel_time", replace(in_kernel(31.0, 73.0, 240_000), run_seconds=59.0), None),
    ("kernel_time", in_kernel(None, 73.0, 240_000), None),
    ("kernel_time", in_kernel(31.0, None, 240_000), None),
    # small_files: from 1,000 files on, below 5 MB for each.
    ("small_files", with_io(peak_open_files=1000.0, read_bytes=4e9, write_bytes=999_999_999.0), WARNING),
    ("small_files", with_io(peak_open_files=1000.0, read_bytes=4e9, write_bytes=1e9), None),
    ("small_files", with_io(peak_open_files=999.0, read_bytes=0.0, write_bytes=1.0), None),
    ("small_files", with_io(peak_open_files=0.0, read_bytes=0.0, write_bytes=1.0), None),
    # metadata_storm: above 100 a second; 7,200 s are 720,000.
    ("metadata_storm", with_io(metadata_operations=720_000.0), None),
    ("metadata_storm", with_io(metadata_operations=720_001.0), WARNING),
    ("metadata_storm", replace(with_io(metadata_operations=1e9), run_seconds=59.0), None),
    ("metadata_storm", replace(with_io(metadata_operations=1e9), run_seconds=60.0), WARNING),
    # tiny_requests: below 1,024 bytes for each of a million calls and more, 1,000 a second and more.
    ("tiny_requests", with_io(reads=7.2e6, writes=0.0, read_bytes=7.2e6 * 1023, write_bytes=0.0), WARNING),
    ("tiny_requests", with_io(reads=7.2e6, writes=0.0, read_bytes=7.2e6 * 1024, write_bytes=0.0), None),
    ("tiny_requests", with_io(reads=7.1e6, writes=0.0, read_bytes=1.0, write_bytes=0.0), None),
    (
        "tiny_requests",
        replace(with_io(reads=5e5, writes=499_999.0, read_bytes=1.0, write_bytes=0.0), run_seconds=100.0),
        None,
    ),
    (
        "tiny_requests",
        replace(with_io(reads=5e5, writes=5e5, read_bytes=1.0, write_bytes=0.0), run_seconds=100.0),
        WARNING,
    ),
    ("tiny_requests", replace(with_io(reads=1e7, writes=0.0, read_bytes=1.0, write_bytes=0.0), run_seconds=59.0), None),
    (
        "tiny_requests",
        replace(with_io(reads=1e7, writes=0.0, read_bytes=1.0, write_bytes=0.0), run_seconds=60.0),
        WARNING,
    ),
    # too_many_threads: above twice the cores, and above 4; a hint while they sleep.
    ("too_many_threads", make_summary(program_threads={"a": 8.0}), None),
    ("too_many_threads", make_summary(program_threads={"a": 9.0}), INFO),
    ("too_many_threads", make_summary(program_threads={"a": 9.0}, mean_running_threads=5.0), INFO),
    ("too_many_threads", make_summary(program_threads={"a": 9.0}, mean_running_threads=5.1), WARNING),
    ("too_many_threads", make_summary(program_threads={"a": 4.0}, record={"cpus": 1}), None),
    ("too_many_threads", make_summary(program_threads={"a": 5.0}, record={"cpus": 1}), INFO),
    ("too_many_threads", make_summary(program_threads={"a": 5.0}, record={"cpus": 0}), None),
    ("too_many_threads", make_summary(program_threads={"a": 99.0}, mean_running_threads=0.0), INFO),
    *(
        ("too_many_threads", make_summary(program_threads={name: 99.0}, mean_running_threads=50.0), None)
        for name in ("srun", "mpirun", "mpiexec", "prted", "orted", "hydra_pmi_proxy", "ssh", "slurmstepd")
    ),
    # node_imbalance: a node below half of the mean; critical below a twentieth of it.
    ("node_imbalance", with_nodes(4.0, 4.0, 1.6), None),  # mean 3.2, bound 1.6
    ("node_imbalance", with_nodes(4.0, 4.0, 1.5), WARNING),  # mean 3.17
    ("node_imbalance", with_nodes(4.0, 4.0, 0.0), CRITICAL),
    ("node_imbalance", with_nodes(0.39, 0.0), None),  # mean 0.195
    ("node_imbalance", with_nodes(0.4, 0.0), CRITICAL),
    ("node_imbalance", with_nodes(4.0), None),
    # Nodes that gave different numbers of cores are compared by the share of them that was busy.
    ("node_imbalance", with_shares((62.0, 62.0), (2.0, 2.0)), None),
    ("node_imbalance", with_shares((63.0, 63.0), (1.0, 1.0)), None),
    ("node_imbalance", with_shares((63.0, 63.0), (0.0, 1.0)), CRITICAL),
    ("node_imbalance", with_shares((4.0, 4.0), (0.0, None)), None),
    ("node_imbalance", with_nodes(4.0, 0.0, run_seconds=299.0), None),
    ("node_imbalance", with_nodes(4.0, 0.0, coverage=Coverage(nodes=2, nodes_measured=1, run_ratio=1.0)), None),
    # too_many_nodes: at most half of the nodes would do; a node has 16 cores and 32 GiB.
    ("too_many_nodes", make_summary(record={"node_count": 2, "cpus": 16}), INFO),
    ("too_many_nodes", make_summary(record={"node_count": 2, "cpus": 17}), None),
    ("too_many_nodes", make_summary(record={"node_count": 1, "cpus": 1}), None),
    ("too_many_nodes", make_summary(record={"node_count": 2}, memory={"requested_bytes": 32 * GIB}), INFO),
    ("too_many_nodes", make_summary(record={"node_count": 2}, memory={"requested_bytes": 32 * GIB + 1}), None),
    ("too_many_nodes", make_summary(record={"node_count": 2}, run_seconds=299.0), None),
    ("too_many_nodes", make_summary(record={"node_count": 2, "gres": (Gres(name="gpu", count=2),)}), None),
]


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [(64.0, 32 * GIB, 1.0), (8.0, 32 * GIB, 4.0), (64.0, 16 * GIB, 2.0), (None, 32 * GIB, None), (8.0, None, None)],
)
def test_enough_nodes_are_counted_in_nodes_of_the_cluster(
    cpus: float | None, memory: float | None, expected: float | None
) -> None:
    spread = make_summary(record={"node_count": 8, "cpus": 32}, memory={"requested_bytes": 32 * GIB})
    sized = replace(spread, node_cpus=cpus, node_memory_bytes=memory)

    found = [finding.numbers["enough_nodes"] for finding in all_findings(sized) if finding.rule == "too_many_nodes"]
    assert ([] if expected is None else [expected]) == found


@pytest.mark.parametrize(("rule", "summary", "expected"), CASES)
def test_rule_speaks_on_its_side_of_the_threshold(rule: str, summary: JobSummary, expected: Severity | None) -> None:
    assert expected == severity(summary, rule)


def test_completed_job_is_checked_by_accounting_where_nothing_was_measured() -> None:
    told = UsedShare(requested=28800.0, used=14400.0)
    unmeasured = Coverage(nodes=1, nodes_measured=0, run_ratio=0.0)
    completed = make_summary(cpu={"time": told}, coverage=unmeasured)

    assert WARNING == severity(completed, "cpu_idle")
    # Slurm misses CPU time of processes that were killed.
    assert severity(replace(completed, record=make_record(state="TIMEOUT")), "cpu_idle") is None


def test_memory_that_slurm_saw_in_use_was_needed() -> None:
    seen = {"requested_bytes": 64 * GIB, "working_peak_bytes": 2 * GIB, "slurm_peak_bytes": 50 * GIB}
    summary = make_summary(memory=seen | {"slurm_peak_is_whole": False})

    assert severity(summary, "memory_over_requested") is None
    assert 50 * GIB == summary.memory.best_peak_bytes


def test_max_rss_of_one_task_stands_for_the_job_but_that_of_one_of_many_does_not() -> None:
    told = {"working_peak_bytes": None, "slurm_peak_bytes": GIB, "coverage": covered(run_ratio=0.0)}

    assert INFO == severity(make_summary(memory=told), "memory_over_requested")
    assert severity(make_summary(memory=told | {"slurm_peak_is_whole": False}), "memory_over_requested") is None


def test_max_rss_alone_suggests_no_memory() -> None:
    # It misses peaks: a request a fifth above it could get the next run OOM-killed.
    told = {"requested_bytes": 64 * GIB, "working_peak_bytes": None, "slurm_peak_bytes": 0.5 * GIB}
    summary = make_summary(
        memory=told | {"coverage": covered(run_ratio=0.0)},
        record={"submit_line": "sbatch --cpus-per-task=4 --mem-per-cpu=16G x", "memory_bytes": 64 << 30},
        busy=0.25,
    )
    findings = {finding.rule: finding for finding in judge(summary)}

    assert (INFO, "") == (findings["memory_over_requested"].severity, findings["memory_over_requested"].suggestion)
    assert "misses peaks" in findings["memory_over_requested"].explanation
    # Fewer cores keep the memory.
    assert "#SBATCH --cpus-per-task=1 --mem-per-cpu=64G" == findings["serial_code"].suggestion


KILLED = {"state": "FAILED", "exit_signal": 9}


@pytest.mark.parametrize(
    ("record", "memory", "expected"),
    [
        (KILLED, {"slurm_peak_bytes": 21.2 * GIB}, "21.2 GiB of 8 GiB per node (265 %)"),
        (KILLED, {"working_peak_bytes": 21.2 * GIB}, "21.2 GiB of 8 GiB per node (265 %)"),
        (KILLED | {"state": "CANCELLED"}, {"slurm_peak_bytes": 21.2 * GIB}, "21.2 GiB of 8 GiB per node (265 %)"),
        (KILLED | {"node_count": 2}, {"slurm_peak_bytes": 5 * GIB}, "5 GiB of 4 GiB per node (125 %)"),
        (KILLED, {"slurm_peak_bytes": 8 * GIB}, ""),
        (KILLED | {"exit_signal": 11}, {"slurm_peak_bytes": 21.2 * GIB}, ""),
        (KILLED | {"exit_signal": None}, {"slurm_peak_bytes": 21.2 * GIB}, ""),
        ({"state": "COMPLETED"}, {"slurm_peak_bytes": 21.2 * GIB}, ""),
        (KILLED, {"slurm_peak_bytes": 21.2 * GIB, "requested_bytes": None}, ""),
    ],
)
def test_job_killed_above_its_memory_is_explained(
    record: dict[str, object], memory: dict[str, object], expected: str
) -> None:
    found = [finding for finding in judge(make_summary(record=record, memory=memory)) if finding.rule == "oom_kill"]

    assert bool(expected) == bool(found)
    assert all(expected in finding.explanation for finding in found)


def test_job_killed_above_its_memory_is_told_to_request_what_it_used() -> None:
    summary = make_summary(record=KILLED, memory={"slurm_peak_bytes": 21.2 * GIB})

    # A fifth more than 21.2 GiB, rounded up; half as much again as it had would be 12.
    assert ["#SBATCH --mem=26G"] == [each.suggestion for each in judge(summary) if each.rule == "oom_kill"]


def test_job_that_hung_is_not_told_to_request_more_time() -> None:
    stuck = make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 3600.0})
    busy = make_summary(record={"state": "TIMEOUT"})

    advice = {each.advice for each in all_findings(stuck) if each.rule == "timed_out"}
    assert {False} == {"Request more time" in text for text in advice}
    assert {True} == {"Request more time" in each.advice for each in all_findings(busy) if each.rule == "timed_out"}


@pytest.mark.parametrize(
    ("summary", "rule", "silent"),
    [
        (make_summary(busy=0.25), "serial_code", {"cpu_idle", "cpu_uneven_over_time"}),
        (make_summary(busy=0.5, cpu={"idle_tail_seconds": 3600.0, "peak_cores": 4.0}), "stopped_early",
         {"cpu_idle", "cpu_uneven_over_time"}),
        (make_summary(record={"state": "OUT_OF_MEMORY"}, memory={"working_peak_bytes": GIB}), "oom_kill",
         {"memory_over_requested", "memory_near_limit"}),
        (make_summary(memory={"working_peak_bytes": GIB, "oom_kills": 3}), "oom_kill", {"memory_over_requested"}),
        (with_gpus(held_idle=2, mean_utilization=0.0), "gpu_held_without_process", {"gpu_idle", "gpu_low"}),
        (with_gpus(mean_utilization=0.0), "gpu_idle", {"gpu_low"}),
        (with_gpus(4, held_idle=1, mean_utilization=0.0), "gpu_idle", {"gpu_held_without_process", "gpu_low"}),
        # One of 64 computed all the time: 1.6 % of all, and the others had no process.
        (with_gpus(64, held_idle=63, mean_utilization=1 / 64), "gpu_held_without_process", {"gpu_idle", "gpu_low"}),
        (with_gpus(4, held_idle=1, mean_utilization=0.2), "gpu_held_without_process", {"gpu_idle", "gpu_low"}),
        (with_nodes(4.0, 0.0, busy=0.5), "node_imbalance", {"cpu_idle"}),
    ],
)  # fmt: skip
def test_one_cause_is_reported_once(summary: JobSummary, rule: str, silent: set[str]) -> None:
    rules = {finding.rule for finding in judge(summary)}

    assert rule in rules
    assert set() == rules & silent


@pytest.mark.parametrize(("shared", "is_named"), [(None, False), (1.79 * GIB, False), (1.81 * GIB, True)])
def test_files_in_tmpfs_are_named_where_memory_ran_out(shared: float | None, is_named: bool) -> None:
    # 6 GiB were needed: three tenths are 1.8 GiB.
    memory = {"oom_kills": 1, "shared_peak_bytes": shared}
    (finding,) = (each for each in judge(make_summary(memory=memory)) if each.rule == "oom_kill")

    assert is_named == ("1.81 GiB were shared memory or files in tmpfs, such as /dev/shm" in finding.explanation)


@pytest.mark.parametrize("rule", ["tiny_requests", "metadata_storm", "small_files"])
def test_what_floods_the_kernel_explains_its_time(rule: str) -> None:
    summary = in_kernel(100.0, 900.0, 10_000_000)
    io = replace(summary.io, metadata_operations=1e9 if rule == "metadata_storm" else None)
    if rule != "tiny_requests":
        io = replace(io, reads=240_000.0)
    if rule == "small_files":
        io = replace(io, peak_open_files=1e5)

    assert [(rule, ["kernel_time"])] == [
        (finding.rule, [each.rule for each in finding.consequences]) for finding in judge(replace(summary, io=io))
    ]


@pytest.mark.parametrize(
    ("size", "is_named"),
    # Twice 8 GiB fit on a node of 32 GiB, and not on one of 12 GiB; without its size nothing can be said.
    [(32 * GIB, False), (12 * GIB, True), (8 * GIB, True), (None, False)],
)
def test_size_of_a_node_is_named_where_it_limits_the_next_request(size: float | None, is_named: bool) -> None:
    summary = replace(make_summary(record={"state": "OUT_OF_MEMORY"}), node_memory_bytes=size)
    (finding,) = (each for each in judge(summary) if each.rule == "oom_kill")

    assert is_named == ("A node has" in finding.explanation)


def test_memory_per_gpu_is_that_of_the_gpus_of_a_node() -> None:
    # 8 GiB for the two GPUs of each of two nodes; twice as much is 8 GiB for each GPU.
    record = {
        "state": "OUT_OF_MEMORY", "node_count": 2, "nodes": ("n1", "n2"), "cpus": 8,
        "gres": (Gres(name="gpu", count=4),), "submit_line": "sbatch --gpus-per-node=2 --mem-per-gpu=4G x.sh",
    }  # fmt: skip
    summary = make_summary(record=record, memory={"requested_bytes": 16 * GIB})

    assert "#SBATCH --mem-per-gpu=8G" == found_in(summary, "oom_kill").suggestion
    assert ("#SBATCH --mem-per-gpu=8G",) == header(summary)


def test_memory_per_core_is_not_suggested_where_cores_are_unknown() -> None:
    record = {"state": "OUT_OF_MEMORY", "cpus": None, "submit_line": "sbatch --mem-per-cpu=2G x.sh"}

    assert "" == found_in(make_summary(record=record), "oom_kill").suggestion


@pytest.mark.parametrize(("state", "is_said"), [("COMPLETED", True), ("FAILED", False), ("RUNNING", False)])
def test_job_that_completed_after_an_oom_kill_may_lack_results(state: str, is_said: bool) -> None:
    finding = found_in(make_summary(record={"state": state}, memory={"oom_kills": 1}), "oom_kill")

    assert is_said == ("its results may be incomplete" in finding.explanation)


def test_memory_that_was_not_measured_throughout_is_not_near_its_limit() -> None:
    nodes = (NodeSummary(node="n1", cpus=4.0, working_peak_bytes=8 * GIB, limit_bytes=8 * GIB),)
    measured, other = make_summary(nodes=nodes), make_summary(nodes=nodes, memory={"coverage": covered(1, 0.5)})

    assert "memory_near_limit" in {finding.rule for finding in judge(measured)}
    assert "memory_near_limit" not in {finding.rule for finding in judge(other)}


def found_in(summary: JobSummary, rule: str) -> Finding:
    (finding,) = (each for each in judge(summary) if each.rule == rule)
    return finding


@pytest.mark.parametrize(("growth", "is_said"), [(1.3, True), (1.29, False), (None, False)])
def test_growth_is_mentioned_beside_an_oom_kill(growth: float | None, is_said: bool) -> None:
    finding = found_in(make_summary(memory={"oom_kills": 1, "growth_ratio": growth}), "oom_kill")

    assert is_said == ("Its memory grew until the end" in finding.explanation)


def test_files_in_tmpfs_are_compared_with_the_need_of_a_node() -> None:
    # 1.5 GiB on each of two nodes that needed 6 GiB each: a quarter.
    memory = {"oom_kills": 1, "requested_bytes": 16 * GIB, "working_peak_bytes": 12 * GIB, "shared_peak_bytes": 3 * GIB}
    record = {"node_count": 2, "nodes": ("n1", "n2"), "cpus": 8}

    assert "tmpfs" not in found_in(make_summary(record=record, memory=memory), "oom_kill").explanation


@pytest.mark.parametrize(("state", "text"), [("COMPLETED", "At its end the job used"), ("RUNNING", "The job now uses")])
def test_growing_memory_is_that_of_now_while_a_job_runs(state: str, text: str) -> None:
    finding = found_in(make_summary(record={"state": state}, memory={"growth_ratio": 2.0}), "memory_growing")

    assert finding.explanation.startswith(text)


@pytest.mark.parametrize("count", [2, 3])
def test_memory_of_nodes_that_needed_little_cannot_be_left_out(count: int) -> None:
    # One node needed 6.5 of its 8 GiB, the others nothing: memory is requested for each.
    names = tuple(f"n{number}" for number in range(count))
    peaks = (6.5 * GIB, *[0.0] * (count - 1))
    nodes = tuple(NodeSummary(node=n, working_peak_bytes=p, cpus=4.0) for n, p in zip(names, peaks, strict=True))
    record = {"node_count": count, "nodes": names, "cpus": 4 * count}
    memory = {"requested_bytes": count * 8 * GIB, "working_peak_bytes": 6.5 * GIB}
    finding = found_in(make_summary(record=record, nodes=nodes, memory=memory), "memory_over_requested")

    assert "" == finding.suggestion
    assert "Divide the data more evenly" in finding.advice


def test_most_specific_finding_about_gpus_is_the_only_one() -> None:
    spinning = replace(
        moved(busy=0.9999, sm=0.0076, mib_per_second=0.1).gpu,
        devices=(HeldGpu(node="n1", gpu="0", stuck_seconds=7000.0, stuck_since_seconds=START + 200.0),),
    )
    copying = replace(moved(busy=0.0001, sm=0.0, mib_per_second=55_036).gpu, peak_memory_bytes=9 * GIB)
    launching = moved(busy=0.18, sm=0.0002, mib_per_second=152).gpu
    feeding = replace(fed(0.2, 1.0).gpu, mean_utilization=0.2)
    found = {
        "gpu_stuck": replace(with_gpus(1), gpu=spinning),
        "gpu_only_copies": replace(with_gpus(1), gpu=copying),
        "gpu_launch_bound": replace(fed(0.18, 1.0), gpu=launching),
        "gpu_starved": replace(fed(0.2, 1.0), gpu=feeding),
        "gpu_unused_memory": with_gpus(1, mean_utilization=0.0, peak_memory_bytes=9 * GIB),
        "gpu_idle": with_gpus(1, mean_utilization=0.0, peak_memory_bytes=GIB // 2),
    }
    assert {rule: {rule} for rule in found} == {
        rule: {each.rule for each in judge(summary) if each.rule.startswith("gpu")} for rule, summary in found.items()
    }


def test_idle_gpu_of_two_is_named_with_the_line_that_leaves_it_out() -> None:
    summary = each_busy(0.73, 0.0)
    record = replace(summary.record, submit_line="sbatch --gpus=2 --mem=8G x.sh")
    finding = found_in(replace(summary, record=record), "gpu_some_idle")
    assert "#SBATCH --gpus=1" == finding.suggestion
    assert "1 of 2 GPUs had a process but computed nothing (GPU 1 of n1)" in finding.explanation
    assert "73 %" in finding.explanation
    many = found_in(each_busy(0.73, 0.0, 0.0, 0.0, 0.0), "gpu_some_idle")
    assert "GPU 3 of n1, ...)" in many.explanation


@pytest.mark.parametrize(("gpus", "is_collective"), [(1, False), (2, True)])
def test_single_stuck_gpu_waits_for_no_other(gpus: int, is_collective: bool) -> None:
    held = HeldGpu(node="n1", gpu="0", stuck_seconds=7000.0, stuck_since_seconds=START + 200.0)
    finding = found_in(with_gpus(gpus, mean_utilization=1.0, devices=(held,)), "gpu_stuck")
    assert is_collective == ("collective operation" in finding.advice)


def test_fault_names_gpu_time_meaning_and_whose_fault_it_is() -> None:
    lost = GpuFault(node="n7", gpu="3", xid=79, last_seconds=1_790_000_000.0)
    wrong = GpuFault(node="n7", gpu="1", mig="2/0", xid=31, count=5)
    hardware = found_in(with_gpus(1, faults=(wrong, lost)), "gpu_fault")
    program = found_in(with_gpus(1, faults=(wrong,)), "gpu_fault")

    # date -u -d @1790000000
    assert hardware.explanation.startswith("GPU 3 of n7 reported Xid 79 at 2026-09-21 14:13:20 UTC: ")
    assert "fell off the PCIe bus" in hardware.explanation
    assert "usually a fault of the hardware. 1 more kind of errors" in hardware.explanation
    assert "--exclude=n7" in hardware.advice
    assert program.explanation.startswith("GPU 1 MIG 2/0 of n7 reported Xid 31 (5 times): ")
    assert "usually the program's fault" in program.explanation
    assert "compute-sanitizer" in program.advice


def test_throttled_time_is_given_by_reason() -> None:
    finding = found_in(throttled(thermal=720.0, power_brake=60.0, power_cap=7000.0, reliability=0.0), "gpu_throttled")
    assert "10 % of the run: 12 min (thermal), 1 min (power brake)." in finding.explanation


def test_starved_job_that_uses_all_cores_is_told_to_request_more() -> None:
    assert "--cpus-per-gpu" in found_in(fed(0.2, 7.9), "gpu_starved").advice
    assert "num_workers=8" in found_in(fed(0.2, 1.0), "gpu_starved").advice


def test_many_busy_cores_are_written_out() -> None:
    text = found_in(fed(0.2, 120.0, cpus=128), "gpu_starved").explanation
    assert "kept 120 of 128 cores busy" in text


def test_idle_gpus_without_a_process_are_not_said_to_have_one() -> None:
    text = found_in(each_busy(0.73, 0.0, 0.0, 0.0, held_idle=2), "gpu_some_idle").explanation
    assert "3 of 4 GPUs computed nothing, 2 of them without a process (GPU 1 of n1, " in text
    assert (
        "2 of 3 GPUs had a process but computed nothing ("
        in found_in(each_busy(0.73, 0.0, 0.0), "gpu_some_idle").explanation
    )
