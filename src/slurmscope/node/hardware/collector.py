# SPDX-License-Identifier: Apache-2.0
"""Export what the processor counts of jobs: instructions, cycles, cache misses, and bytes to and from memory.

::

    jobs_hardware_events_total{slurm_job="4711",slurm_node="n17",event="instructions"} 9.1e+12
    jobs_memory_traffic_bytes_total{slurm_job="4711",slurm_node="n17"} 3.2e+13
    slurm_node_hardware_jobs{slurm_node="n17",source="perf",result="no_hardware"} 3

Events are counted from when the agent first sees a job. Traffic is that of the monitoring group ``job_ID`` of resctrl,
which the site makes: the agent only reads. Virtual machines usually have neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, counter, gauge
from slurmscope.node.job_metrics import JOB, job_labels
from slurmscope.node.job_use import JobKey, NodeJobs

TOTAL, LOCAL = "mbm_total_bytes", "mbm_local_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUse:
    """Events and memory traffic by job, and how many jobs there are by source and result."""

    events: Mapping[JobKey, Mapping[str, float]] = field(default_factory=dict)
    traffic: Mapping[JobKey, Mapping[str, int]] = field(default_factory=dict)
    results: Mapping[tuple[str, str], int] = field(default_factory=dict)


EVENTS_TOTAL = counter(
    "jobs_hardware_events_total",
    "Instructions, cycles and cache misses of the job since the agent first saw it, with those of the kernel for it.",
    *JOB,
    "event",
)
TRAFFIC = counter(
    "jobs_memory_traffic_bytes_total", "Bytes between the processors and memory in the job's group of resctrl.", *JOB
)
LOCAL_TRAFFIC = counter(
    "jobs_memory_local_traffic_bytes_total", "The part of that with memory of the same NUMA node.", *JOB
)
JOBS = gauge(
    "slurm_node_hardware_jobs",
    "Running jobs by source (perf, resctrl) and result: counted, or why not (no_hardware, not_permitted, no_cgroup of "
    "version 2, too_many descriptors, failed; no_group of resctrl).",
    "slurm_node",
    "source",
    "result",
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    hardware: HardwareUse,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    host = node_jobs.host_name
    events = {
        (*job_labels(key, host), event): count
        for key, counts in hardware.events.items()
        for event, count in counts.items()
    }
    yield Family(EVENTS_TOTAL, events)
    for metric, name in ((TRAFFIC, TOTAL), (LOCAL_TRAFFIC, LOCAL)):
        amounts = {job_labels(key, host): found[name] for key, found in hardware.traffic.items() if name in found}
        yield Family(metric, amounts)
    yield Family(JOBS, {(host, *labels): count for labels, count in sorted(hardware.results.items())})


COLLECTOR = Collector(
    name="hardware",
    role=Role.NODE,
    help="Instructions, cycles, cache misses and memory traffic of jobs, as the processor counts them.",
    needs=("hardware", "node_jobs"),
    metrics=(EVENTS_TOTAL, TRAFFIC, LOCAL_TRAFFIC, JOBS),
    collect=collect,
    is_default=False,
)
