# SPDX-License-Identifier: Apache-2.0
"""Export the GPUs of a node, the jobs they are allocated to, and allocated GPUs that are idle.

::

    gpu_utilization_ratio{gpu="0",mig=""} 0.97
    jobs_gpu_held_idle{slurm_job="4711",slurm_node="n17",gpu="1",mig=""} 1
    jobs_gpu_held_memory_bytes{slurm_job="4711",slurm_node="n17",gpu="0",mig=""} 3.2e+10

``gpu`` is the nvidia-smi index, or the number by PCI address; ``mig`` is the GPU instance and compute instance of a MIG
device ("3/0"), empty for a whole GPU. Values that a device does not report have no series; a node without a driver has
no GPU series.

Their units are percent and MiB; ``gpuid`` and ``gpu`` are both the nvidia-smi index, so the metrics can be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.core.settings import choice
from slurmscope.core.units import MIB
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge, info
from slurmscope.node.gpu.attribution import (
    GpuHold,
    GpuMapping,
    HeldGpuUse,
    Numbering,
    find_held_use,
    map_gpus,
    sum_up_jobs,
)
from slurmscope.node.gpu.counters import METRICS as COUNTER_METRICS
from slurmscope.node.gpu.counters import PAIR, device_counters, job_counters
from slurmscope.node.gpu.faults import METRICS as FAULT_METRICS
from slurmscope.node.gpu.faults import fault_families
from slurmscope.node.gpu.records import Gpu, GpuReason, Gpus, JobGpuCounters
from slurmscope.node.job_metrics import JOB, job_labels
from slurmscope.node.job_use import JobKey, NodeJobs

USED = compat_gauge("jobs_gpus_used", "Always 1: GPU allocated to the job.", *JOB, "gpuid")
COMPAT_TEMPERATURE = compat_gauge("temperature_gpu", "Temperature of the GPU in degrees Celsius.", "gpu")
COMPAT_UTILIZATION = compat_gauge("utilization_gpu", "Percent of time in which a kernel was running on the GPU.", "gpu")
COMPAT_MEMORY_UTILIZATION = compat_gauge(
    "utilization_memory", "Percent of time in which GPU memory was read or written.", "gpu"
)
MEMORY_TOTAL = compat_gauge("memory_total", "Memory of the GPU in MiB.", "gpu")
MEMORY_FREE = compat_gauge("memory_free", "Free memory of the GPU in MiB.", "gpu")
COMPAT_MEMORY_USED = compat_gauge("memory_used", "Used memory of the GPU in MiB.", "gpu")

COMPAT_METRICS = (
    USED,
    COMPAT_TEMPERATURE,
    COMPAT_UTILIZATION,
    COMPAT_MEMORY_UTILIZATION,
    MEMORY_TOTAL,
    MEMORY_FREE,
    COMPAT_MEMORY_USED,
)


def compat_families(gpus: Iterable[Gpu], holds: Iterable[GpuHold], host_name: str) -> Iterator[Family]:
    """Yield the older names, for whole GPUs only: the older exporters did not know MIG."""
    whole = [gpu for gpu in gpus if not gpu.parent_uuid]
    held = [hold for hold in holds if hold.is_held]
    yield Family(USED, {(*job_labels(hold.job, host_name), str(hold.gpu.index)): 1.0 for hold in held})
    yield Family(COMPAT_TEMPERATURE, _values((gpu, gpu.temperature_celsius) for gpu in whole))
    yield Family(COMPAT_UTILIZATION, _values((gpu, _times(gpu.utilization_ratio, 100)) for gpu in whole))
    yield Family(COMPAT_MEMORY_UTILIZATION, _values((gpu, _times(gpu.memory_utilization_ratio, 100)) for gpu in whole))
    yield Family(MEMORY_TOTAL, _values((gpu, _times(gpu.memory_size_bytes, 1 / MIB)) for gpu in whole))
    yield Family(MEMORY_FREE, _values((gpu, _times(gpu.memory_free_bytes, 1 / MIB)) for gpu in whole))
    yield Family(COMPAT_MEMORY_USED, _values((gpu, _times(gpu.memory_used_bytes, 1 / MIB)) for gpu in whole))


def _values(pairs: Iterable[tuple[Gpu, float | None]]) -> dict[Labels, float]:
    return {(str(gpu.index),): value for gpu, value in pairs if value is not None}


def _times(value: float | None, factor: float) -> float | None:
    # The driver reports whole percents: 0.29 * 100 must not become 28.999999999999996.
    return None if value is None else round(value * factor, 6)


INFO = info(
    "gpu_info",
    "Model and identifiers of a GPU or MIG instance.",
    "gpu",
    "mig",
    "uuid",
    "model",
    "minor",
    "bus",
    "parent_uuid",
)
READABLE = gauge("gpu_readable", "1 if the driver can read this GPU, 0 if the GPU is lost or access is denied.", "gpu")
UTILIZATION = gauge(
    "gpu_utilization_ratio",
    "Share of time in which a kernel was running on the GPU (0 to 1), mean since the reading before.",
    "gpu",
    "mig",
)
MEMORY_UTILIZATION = gauge(
    "gpu_memory_utilization_ratio",
    "Share of time in which GPU memory was read or written (0 to 1), roughly: the mean of a gauge that is read every "
    "few seconds. gpu_dram_active_seconds_total is exact.",
    "gpu",
    "mig",
)
MEMORY_SIZE = gauge("gpu_memory_size_bytes", "Total memory of the GPU.", "gpu", "mig")
MEMORY_USED = gauge("gpu_memory_used_bytes", "Used memory of the GPU.", "gpu", "mig")
POWER = gauge("gpu_power_watts", "Power draw of the GPU.", "gpu", "mig")
ENERGY = counter(
    "gpu_energy_joules_total",
    "Energy used by the GPU since the driver was loaded (AMD: since the agent started); polled less often.",
    "gpu",
    "mig",
)
TEMPERATURE = gauge("gpu_temperature_celsius", "Core temperature of the GPU.", "gpu", "mig")
PROCESSES = gauge("gpu_processes", "Processes with a context on the GPU.", "gpu", "mig")

UNAVAILABLE = gauge(
    "gpu_source_unavailable",
    "Always 1: GPU data source (nvml, devices, fdinfo) that cannot be used, and the reason; absent without a driver.",
    "source",
    "reason",
)

HELD = gauge("jobs_gpu_held", "1 if the GPU is allocated to the job, 0 if another source overrules the claim.", *PAIR)
IDLE = gauge("jobs_gpu_held_idle", "1 if the GPU is allocated to the job and none of its processes uses it.", *PAIR)
HELD_INFO = info(
    "jobs_gpu_held_device_info",
    "Model and UUID of the GPU or MIG instance allocated to the job.",
    *PAIR,
    "uuid",
    "model",
)
HELD_JOBS = gauge("jobs_gpu_held_jobs", "Jobs that the GPU is allocated to, including this one.", *PAIR)
HELD_MEMORY_SIZE = gauge(
    "jobs_gpu_held_memory_size_bytes", "Total memory of the GPU or MIG instance allocated to the job.", *PAIR
)
HELD_MEMORY = gauge(
    "jobs_gpu_held_memory_bytes", "Memory of the GPU allocated to the job that its processes use.", *PAIR
)
HELD_UTILIZATION = gauge(
    "jobs_gpu_held_utilization_ratio",
    "Utilization of the GPU allocated to the job (0 to 1); absent if it is shared with other jobs.",
    *PAIR,
)
DISPUTED = gauge("jobs_gpu_disputed", "1 if sources disagree on whether the GPU is allocated to the job.", *PAIR)
CLAIM = gauge(
    "jobs_gpu_claim",
    "Always 1: source that assigns the GPU to the job (environment, devices or processes).",
    *PAIR,
    "source",
)
UNRESOLVED = gauge(
    "jobs_gpu_unresolved",
    "GPU names in the job's environment that match no GPU of this node, or more than one.",
    *JOB,
)
JOB_MEMORY = gauge("jobs_gpu_memory_bytes", "GPU memory used by the job's processes.", *JOB)
JOB_UTILIZATION = gauge(
    "jobs_gpu_utilization_ratio",
    "Mean utilization of the GPUs allocated to the job; absent if it shares a GPU.",
    *JOB,
)

METRICS = (
    INFO, READABLE, UTILIZATION, MEMORY_UTILIZATION, MEMORY_SIZE, MEMORY_USED, POWER, ENERGY, TEMPERATURE, PROCESSES,
    UNAVAILABLE, HELD, IDLE, HELD_INFO, HELD_JOBS, HELD_MEMORY_SIZE, HELD_MEMORY, HELD_UTILIZATION, DISPUTED, CLAIM,
    UNRESOLVED, JOB_MEMORY, JOB_UTILIZATION, *COUNTER_METRICS, *FAULT_METRICS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusOptions:
    """How the GPU numbers of Slurm are interpreted."""

    slurm_numbers: str = choice(
        Numbering.AUTO.value,
        [numbering.value for numbering in Numbering],
        "Meaning of the numbers in SLURM_JOB_GPUS: index (as nvidia-smi), minor (device files), or auto (only "
        "where both agree).",
    )


def collect(options: GpusOptions, *, gpus: Gpus, node_jobs: NodeJobs) -> Iterator[Family]:
    """Yield the devices, then the jobs they are allocated to; nothing on a node without a driver."""
    if gpus.unavailable.get("nvml") is not GpuReason.DRIVER_NOT_LOADED:
        yield Family(UNAVAILABLE, {(source, reason.value): 1.0 for source, reason in gpus.unavailable.items()})
    if not gpus.devices:
        return
    readable = [gpu for gpu in gpus.devices if gpu.problem is None]
    whole = [gpu for gpu in gpus.devices if not gpu.parent_uuid]
    yield Family(READABLE, {(str(gpu.index),): float(gpu.problem is None) for gpu in whole})
    yield from _device_families(readable)
    yield from device_counters({_labels(gpu): gpu for gpu in readable})
    yield from fault_families(gpus.faults, readable, lambda key: job_labels(key, node_jobs.host_name))
    mapping = map_gpus(gpus, node_jobs, Numbering(options.slurm_numbers))
    yield from _job_families(mapping, node_jobs.host_name)
    yield from job_counters(_label_counters(gpus, node_jobs.host_name))
    yield from compat_families(readable, mapping.holds, node_jobs.host_name)


def _label_counters(gpus: Gpus, host_name: str) -> dict[Labels, JobGpuCounters]:
    labels = {gpu.uuid: _labels(gpu) for gpu in gpus.devices}
    return {
        (*job_labels(job, host_name), *labels[uuid]): counters for (job, uuid), counters in gpus.job_counters.items()
    }


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


def _job_families(mapping: GpuMapping, host_name: str) -> Iterator[Family]:
    def job(key: JobKey) -> Labels:
        return job_labels(key, host_name)

    def pair(hold: GpuHold) -> Labels:
        return (*job(hold.job), *_labels(hold.gpu))

    holds = mapping.holds
    held = [hold for hold in holds if hold.is_held]
    yield Family(HELD, {pair(hold): float(hold.is_held) for hold in holds})
    yield Family(IDLE, {pair(hold): float(hold.is_idle) for hold in held if hold.is_idle is not None})
    yield Family(DISPUTED, {pair(hold): float(hold.is_disputed) for hold in holds})
    yield Family(
        CLAIM, {(*pair(hold), source.value): 1.0 for hold in holds for source in sorted(hold.sources, key=str)}
    )
    yield Family(UNRESOLVED, {job(key): float(count) for key, count in mapping.unresolved.items()})
    uses = find_held_use(mapping)
    yield from _held_families({pair(use.hold): use for use in uses})
    sums = sum_up_jobs(uses).items()
    yield Family(JOB_MEMORY, {job(key): use.memory_bytes for key, use in sums if use.memory_bytes is not None})
    yield Family(
        JOB_UTILIZATION,
        {job(key): use.utilization_ratio for key, use in sums if use.utilization_ratio is not None},
    )


def _held_families(uses: Mapping[Labels, HeldGpuUse]) -> Iterator[Family]:
    """Yield each GPU of each job: the join of jobs and devices is made here, where both are of the same moment."""
    gpus = {labels: use.hold.gpu for labels, use in uses.items()}
    sizes = {labels: gpu.memory_size_bytes for labels, gpu in gpus.items()}
    yield Family(HELD_INFO, {(*labels, gpu.uuid, gpu.model): 1.0 for labels, gpu in gpus.items()})
    yield Family(HELD_JOBS, {labels: float(use.jobs) for labels, use in uses.items()})
    yield Family(HELD_MEMORY_SIZE, {labels: size for labels, size in sizes.items() if size})
    yield Family(
        HELD_MEMORY, {labels: use.memory_bytes for labels, use in uses.items() if use.memory_bytes is not None}
    )
    yield Family(
        HELD_UTILIZATION,
        {labels: use.utilization_ratio for labels, use in uses.items() if use.utilization_ratio is not None},
    )


def _family(metric: Metric, values: Iterable[tuple[Gpu, float | None]]) -> Family:
    return Family(metric, {_labels(gpu): value for gpu, value in values if value is not None})


def _labels(gpu: Gpu) -> Labels:
    return str(gpu.index), gpu.mig


def _info_labels(gpu: Gpu) -> Labels:
    minor = "" if gpu.minor is None else str(gpu.minor)
    return (*_labels(gpu), gpu.uuid, gpu.model, minor, gpu.bus_id, gpu.parent_uuid)


COLLECTOR = Collector(
    name="gpus",
    role=Role.NODE,
    help="GPUs of the node, the jobs they are allocated to, and allocated but idle GPUs.",
    needs=("gpus", "node_jobs"),
    metrics=(*METRICS, *COMPAT_METRICS),
    collect=collect,
    options=GpusOptions,
)
