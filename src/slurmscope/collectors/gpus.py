# SPDX-License-Identifier: Apache-2.0
"""Tell what the GPUs of a node do, which jobs hold them, and which of those leave them idle.

::

    gpu_utilization_ratio{gpu="0",mig=""} 0.97
    jobs_gpu_held_idle{slurm_job="4711",slurm_node="n17",gpu="1",mig=""} 1
    jobs_gpu_memory_bytes{slurm_job="4711",slurm_node="n17"} 3.2e+10

``gpu`` is the number that nvidia-smi shows; ``mig`` is the GPU instance and compute instance of a MIG device
("3/0"), empty for a whole GPU. What a device does not tell has no series, and a node without a driver has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.analysis.gpu_claims import Numbering
from slurmscope.analysis.gpu_mapping import GpuHold, GpuMapping, map_gpus
from slurmscope.analysis.gpu_sums import sum_up_jobs
from slurmscope.collectors.gpu_seed_names import SEED_METRICS, seed_families
from slurmscope.collectors.job_use_metrics import JOB
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge, info
from slurmscope.model.gpus import Gpu, GpuReason, Gpus
from slurmscope.model.job_use import JobKey, NodeJobs
from slurmscope.settings import one_of, setting

INFO = info("gpu_info", "What a GPU or MIG instance is.", "gpu", "mig", "uuid", "model", "minor", "bus", "parent_uuid")
READABLE = gauge("gpu_readable", "Whether the driver still answers for this GPU; 0 when it is lost or refused.", "gpu")
UTILIZATION = gauge("gpu_utilization_ratio", "Share of time in which anything ran on the GPU.", "gpu", "mig")
MEMORY_UTILIZATION = gauge(
    "gpu_memory_utilization_ratio", "Share of time in which the GPU's memory was read or written.", "gpu", "mig"
)
MEMORY_SIZE = gauge("gpu_memory_size_bytes", "Memory that the GPU has.", "gpu", "mig")
MEMORY_USED = gauge("gpu_memory_used_bytes", "Memory of the GPU that is in use.", "gpu", "mig")
POWER = gauge("gpu_power_watts", "Power that the GPU draws.", "gpu", "mig")
ENERGY = counter(
    "gpu_energy_joules_total", "Energy that the GPU has used since its driver was loaded; read rarely.", "gpu", "mig"
)
TEMPERATURE = gauge("gpu_temperature_celsius", "Temperature of the GPU's core.", "gpu", "mig")
PROCESSES = gauge("gpu_processes", "Processes that have a context on the GPU.", "gpu", "mig")

UNAVAILABLE = gauge(
    "gpu_source_unavailable",
    "Always 1: a way to learn about GPUs that does not work, nvml or devices, and why; none without a driver.",
    "source",
    "reason",
)

_PAIR = (*JOB, "gpu", "mig")
HELD = gauge("jobs_gpu_held", "Whether the job holds the GPU; 0 where a claim to it is overruled.", *_PAIR)
IDLE = gauge("jobs_gpu_held_idle", "Whether the job holds the GPU and has no process on it.", *_PAIR)
DISPUTED = gauge("jobs_gpu_disputed", "Whether sources contradict each other about the job and the GPU.", *_PAIR)
CLAIM = gauge(
    "jobs_gpu_claim",
    "Always 1: a source that gives the GPU to the job, environment, devices or processes.",
    *_PAIR,
    "source",
)
UNRESOLVED = gauge(
    "jobs_gpu_unresolved",
    "Names of GPUs in the job's environment that mean none of this node, or not certainly which.",
    *JOB,
)
JOB_MEMORY = gauge("jobs_gpu_memory_bytes", "GPU memory that the job's processes hold.", *JOB)
JOB_UTILIZATION = gauge(
    "jobs_gpu_utilization_ratio",
    "Mean utilization of the GPUs that the job holds; absent when it shares one.",
    *JOB,
)

METRICS = (
    INFO, READABLE, UTILIZATION, MEMORY_UTILIZATION, MEMORY_SIZE, MEMORY_USED, POWER, ENERGY, TEMPERATURE, PROCESSES,
    UNAVAILABLE, HELD, IDLE, DISPUTED, CLAIM, UNRESOLVED, JOB_MEMORY, JOB_UTILIZATION,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusOptions:
    """How Slurm's numbers for GPUs are understood."""

    slurm_numbers: str = setting(
        Numbering.AUTO.value,
        help="What the numbers in SLURM_JOB_GPUS are: those of nvidia-smi (index), those of the device files (minor), "
        "or only what both agree on (auto).",
        parse=one_of(*(numbering.value for numbering in Numbering)),
        metavar="auto|index|minor",
    )


def collect(options: GpusOptions, *, gpus: Gpus, node_jobs: NodeJobs) -> Iterator[Family]:
    """Show the devices, then who holds them; nothing at all on a node without a driver."""
    if gpus.unavailable.get("nvml") is not GpuReason.DRIVER_NOT_LOADED:
        yield Family(UNAVAILABLE, {(source, reason.value): 1.0 for source, reason in gpus.unavailable.items()})
    if not gpus.devices:
        return
    readable = [gpu for gpu in gpus.devices if gpu.problem is None]
    whole = [gpu for gpu in gpus.devices if not gpu.parent_uuid]
    yield Family(READABLE, {(str(gpu.index),): float(gpu.problem is None) for gpu in whole})
    yield from _device_families(readable)
    mapping = map_gpus(gpus, node_jobs, Numbering(options.slurm_numbers)).on_host(node_jobs.host_name)
    yield from _job_families(mapping)
    yield from seed_families(readable, mapping.holds)


def _device_families(gpus: list[Gpu]) -> Iterator[Family]:
    yield Family(INFO, {_info_labels(gpu): 1.0 for gpu in gpus})
    yield _family(UTILIZATION, ((gpu, gpu.utilization_ratio) for gpu in gpus))
    yield _family(MEMORY_UTILIZATION, ((gpu, gpu.memory_utilization_ratio) for gpu in gpus))
    yield _family(MEMORY_SIZE, ((gpu, gpu.memory_size_bytes) for gpu in gpus))
    yield _family(MEMORY_USED, ((gpu, gpu.memory_used_bytes) for gpu in gpus))
    yield _family(POWER, ((gpu, gpu.power_watts) for gpu in gpus))
    yield _family(ENERGY, ((gpu, gpu.energy_joules) for gpu in gpus))
    yield _family(TEMPERATURE, ((gpu, gpu.temperature_celsius) for gpu in gpus))
    yield _family(PROCESSES, ((gpu, len(gpu.processes)) for gpu in gpus if gpu.processes is not None))


def _job_families(mapping: GpuMapping) -> Iterator[Family]:
    holds = mapping.holds
    held = [hold for hold in holds if hold.is_held]
    yield Family(HELD, {_pair(hold): float(hold.is_held) for hold in holds})
    yield Family(IDLE, {_pair(hold): float(hold.is_idle) for hold in held if hold.is_idle is not None})
    yield Family(DISPUTED, {_pair(hold): float(hold.is_disputed) for hold in holds})
    yield Family(
        CLAIM, {(*_pair(hold), source.value): 1.0 for hold in holds for source in sorted(hold.sources, key=str)}
    )
    yield Family(UNRESOLVED, {_job(key): float(count) for key, count in mapping.unresolved.items()})
    sums = sum_up_jobs(mapping).items()
    yield Family(JOB_MEMORY, {_job(key): use.memory_bytes for key, use in sums if use.memory_bytes is not None})
    yield Family(
        JOB_UTILIZATION,
        {_job(key): use.utilization_ratio for key, use in sums if use.utilization_ratio is not None},
    )


def _family(metric: Metric, values: Iterable[tuple[Gpu, float | None]]) -> Family:
    return Family(metric, {_labels(gpu): value for gpu, value in values if value is not None})


def _labels(gpu: Gpu) -> Labels:
    return str(gpu.index), gpu.mig


def _info_labels(gpu: Gpu) -> Labels:
    minor = "" if gpu.minor is None else str(gpu.minor)
    return (*_labels(gpu), gpu.uuid, gpu.model, minor, gpu.bus_id, gpu.parent_uuid)


def _pair(hold: GpuHold) -> Labels:
    return (*_job(hold.job), *_labels(hold.gpu))


def _job(key: JobKey) -> Labels:
    return str(key.job_id), key.node_name


COLLECTOR = Collector(
    name="gpus",
    role=Role.NODE,
    help="GPUs of the node (NVIDIA), the jobs that hold them, and idle ones among those.",
    needs=("gpus", "node_jobs"),
    metrics=(*METRICS, *SEED_METRICS),
    collect=collect,
    options=GpusOptions,
)
