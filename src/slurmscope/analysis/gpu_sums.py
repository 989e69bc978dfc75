# SPDX-License-Identifier: Apache-2.0
"""Sum up each job's use of the GPUs it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from slurmscope.analysis.gpu_mapping import GpuHold, GpuMapping, job_of
from slurmscope.model.gpus import Gpu
from slurmscope.model.job_use import JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpuUse:
    """Hold the sums of one job; None where one of its GPUs does not report, or other jobs use it too."""

    memory_bytes: int | None = None
    utilization_ratio: float | None = None


def sum_up_jobs(mapping: GpuMapping) -> dict[JobKey, JobGpuUse]:
    """Sum up every job that holds a GPU."""
    held = [hold for hold in mapping.holds if hold.is_held]
    holders = Counter(hold.gpu.uuid for hold in held)
    by_job: defaultdict[JobKey, list[GpuHold]] = defaultdict(list)
    for hold in held:
        by_job[hold.job].append(hold)
    return {
        key: JobGpuUse(
            memory_bytes=_memory_bytes(key, [hold.gpu for hold in holds]),
            utilization_ratio=_utilization_ratio(hold.gpu for hold in holds)
            if all(holders[hold.gpu.uuid] == 1 for hold in holds)
            else None,
        )
        for key, holds in by_job.items()
    }


def _memory_bytes(key: JobKey, gpus: Sequence[Gpu]) -> int | None:
    """Add up the memory of the job's own processes; None where the processes of a GPU are not all known."""
    total = 0
    for gpu in gpus:
        if gpu.processes is None:
            return None
        for process in gpu.processes:
            if process.place is None:
                return None
            if job_of(process.place, [key]) is not None:
                if process.memory_bytes is None:
                    return None
                total += process.memory_bytes
    return total


def _utilization_ratio(gpus: Iterable[Gpu]) -> float | None:
    ratios = [gpu.utilization_ratio for gpu in gpus]
    known = [ratio for ratio in ratios if ratio is not None]
    return fmean(known) if known and len(known) == len(ratios) else None
