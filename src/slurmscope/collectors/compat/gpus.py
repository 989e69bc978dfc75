# SPDX-License-Identifier: Apache-2.0
"""Export GPUs under the metric names of the older job exporter and its companion GPU exporter.

Their units are percent and MiB; ``gpuid`` and ``gpu`` are both the nvidia-smi index, so the metrics can be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmscope.analysis.gpus.mapping import GpuHold
from slurmscope.collectors.job_use_metrics import JOB, job_labels
from slurmscope.metrics.family import Family, Labels, compat_gauge
from slurmscope.model.gpus import Gpu

MEBIBYTE = 1 << 20

USED = compat_gauge("jobs_gpus_used", "Always 1: GPU allocated to the job.", *JOB, "gpuid")
TEMPERATURE = compat_gauge("temperature_gpu", "Temperature of the GPU in degrees Celsius.", "gpu")
UTILIZATION = compat_gauge("utilization_gpu", "Percent of time in which a kernel was running on the GPU.", "gpu")
MEMORY_UTILIZATION = compat_gauge(
    "utilization_memory", "Percent of time in which GPU memory was read or written.", "gpu"
)
MEMORY_TOTAL = compat_gauge("memory_total", "Memory of the GPU in MiB.", "gpu")
MEMORY_FREE = compat_gauge("memory_free", "Free memory of the GPU in MiB.", "gpu")
MEMORY_USED = compat_gauge("memory_used", "Used memory of the GPU in MiB.", "gpu")

COMPAT_METRICS = (USED, TEMPERATURE, UTILIZATION, MEMORY_UTILIZATION, MEMORY_TOTAL, MEMORY_FREE, MEMORY_USED)


def compat_families(gpus: Iterable[Gpu], holds: Iterable[GpuHold], host_name: str) -> Iterator[Family]:
    """Yield the older names, for whole GPUs only: the older exporters did not know MIG."""
    whole = [gpu for gpu in gpus if not gpu.parent_uuid]
    held = [hold for hold in holds if hold.is_held]
    yield Family(USED, {(*job_labels(hold.job, host_name), str(hold.gpu.index)): 1.0 for hold in held})
    yield Family(TEMPERATURE, _values((gpu, gpu.temperature_celsius) for gpu in whole))
    yield Family(UTILIZATION, _values((gpu, _times(gpu.utilization_ratio, 100)) for gpu in whole))
    yield Family(MEMORY_UTILIZATION, _values((gpu, _times(gpu.memory_utilization_ratio, 100)) for gpu in whole))
    yield Family(MEMORY_TOTAL, _values((gpu, _times(gpu.memory_size_bytes, 1 / MEBIBYTE)) for gpu in whole))
    yield Family(MEMORY_FREE, _values((gpu, _times(gpu.memory_free_bytes, 1 / MEBIBYTE)) for gpu in whole))
    yield Family(MEMORY_USED, _values((gpu, _times(gpu.memory_used_bytes, 1 / MEBIBYTE)) for gpu in whole))


def _values(pairs: Iterable[tuple[Gpu, float | None]]) -> dict[Labels, float]:
    return {(str(gpu.index),): value for gpu, value in pairs if value is not None}


def _times(value: float | None, factor: float) -> float | None:
    # The driver reports whole percents: 0.29 * 100 must not become 28.999999999999996.
    return None if value is None else round(value * factor, 6)
