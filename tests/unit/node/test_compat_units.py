# SPDX-License-Identifier: Apache-2.0
"""Metrics with an older name have the older unit: each is its twin in base units times a fixed factor."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.cluster import scheduler
from slurmscope.cluster.rpc import MessageRpcs, StatisticsValues, UserRpcs
from slurmscope.cluster.scheduler import Diag
from slurmscope.exporter.collector import NoOptions
from slurmscope.node import jobs as job_use
from slurmscope.node.gpu import collector as gpu_collector
from slurmscope.node.gpu.collector import GpusOptions
from slurmscope.node.gpu.records import Gpu, Gpus
from slurmscope.node.job_use import CgroupUse, CpuUse, GroupKey, IoUse, JobKey, JobUse, NodeJobs, ProcessUse
from slurmscope.node.jobs import JobUseOptions

MIB = 1_048_576
USE = JobUse(
    key=JobKey(7),
    busy_cores=2.5,
    groups={
        GroupKey(): CgroupUse(cpu=CpuUse(total_seconds=12.5, user_seconds=10.25, system_seconds=2.25, cores=(4, 5))),
    },
    processes=ProcessUse(
        processes=3,
        threads_in={},
        resident_bytes=96 * MIB,
        distinct_files=38,
        open_files=40,
        io=IoUse(read_chars=9, write_chars=9, reads=100, writes=200, read_bytes=3 * MIB, write_bytes=5 * MIB),
    ),
)
CARD = Gpu(
    index=0,
    uuid="GPU-a",
    temperature_celsius=41.0,
    utilization_ratio=0.29,
    memory_utilization_ratio=0.57,
    memory_size_bytes=80 * 1024 * MIB,
    memory_used_bytes=3 * 1024 * MIB,
    memory_free_bytes=76 * 1024 * MIB,
)
# Two seconds and more: a factor that is slightly off shows only in large values.
DIAG = Diag(
    daemon=StatisticsValues.of(["Server thread count: 12", "DBD Agent queue size: 5"]),
    messages=(MessageRpcs(message="REQUEST_PING", requests=4, seconds=8.000_004),),
    users=(UserRpcs(user="root", uid=0, requests=3, seconds=3600.000_001),),
)


def served() -> dict[str, dict[Any, Any]]:
    """Return the samples of all collectors here by metric name."""
    jobs = NodeJobs(jobs=(USE,))
    families = [
        *job_use.COLLECTOR.collect(JobUseOptions(), node_jobs=jobs),
        *gpu_collector.COLLECTOR.collect(GpusOptions(), gpus=Gpus(devices=(CARD,)), node_jobs=jobs),
        *scheduler.COLLECTOR.collect(NoOptions(), diag=DIAG),
    ]
    return {family.metric.name: dict(family.samples) for family in families}


@pytest.mark.parametrize(
    ("name", "twin", "factor"),
    [
        ("jobs_user_time", "jobs_cpu_user_seconds_total", 100),
        ("jobs_system_time", "jobs_cpu_system_seconds_total", 100),
        ("jobs_cpu_time_total", "jobs_cpu_seconds_total", 1),
        ("jobs_read_mb", "jobs_storage_read_bytes_total", 1 / MIB),
        ("jobs_write_mb", "jobs_storage_write_bytes_total", 1 / MIB),
        ("jobs_read_count", "jobs_io_reads_total", 1),
        ("jobs_write_count", "jobs_io_writes_total", 1),
        ("jobs_opened_files", "jobs_distinct_files", 1),
        ("jobs_spawned_processes", "jobs_processes", 1),
        ("temperature_gpu", "gpu_temperature_celsius", 1),
        ("utilization_gpu", "gpu_utilization_ratio", 100),
        ("utilization_memory", "gpu_memory_utilization_ratio", 100),
        ("memory_total", "gpu_memory_size_bytes", 1 / MIB),
        ("memory_used", "gpu_memory_used_bytes", 1 / MIB),
        ("slurm_rpc_msg_type_count", "slurm_rpc_requests_total", 1),
        ("slurm_rpc_msg_type_total_time", "slurm_rpc_seconds_total", 1_000_000),
        ("slurm_rpc_user_count", "slurm_rpc_user_requests_total", 1),
        ("slurm_rpc_user_total_time", "slurm_rpc_user_seconds_total", 1_000_000),
        ("slurm_daemon_thread_count", "slurm_scheduler_threads", 1),
        ("slurm_dbd_agent_queue_size", "slurm_scheduler_dbd_queue_size", 1),
    ],
)
def test_older_name_is_its_twin_times_a_factor(name: str, twin: str, factor: float) -> None:
    samples = served()
    (older,), (base,) = samples[name].values(), samples[twin].values()

    assert base > 0
    assert pytest.approx(base * factor, rel=1e-12) == older


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("jobs_read_mb", 3),
        ("jobs_write_mb", 5),
        ("jobs_rss", 96),
        ("jobs_user_time", 1025),
        ("jobs_system_time", 225),
        # 2.5 cores are 250 %, of two cores 125 % each.
        ("jobs_cpu_percent", 250),
        ("jobs_cpu_percent_per_core", 125),
        # 0.29 * 100 is 28.999999999999996.
        ("utilization_gpu", 29),
        ("utilization_memory", 57),
        ("memory_total", 81_920),
        ("memory_used", 3_072),
        ("memory_free", 77_824),
        ("slurm_rpc_msg_type_total_time", 8_000_004),
        ("slurm_rpc_msg_type_avg_time", 2_000_001),
        ("slurm_rpc_user_total_time", 3_600_000_001),
    ],
)
def test_older_name_has_its_value(name: str, expected: float) -> None:
    assert [expected] == list(served()[name].values())
