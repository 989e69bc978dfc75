# SPDX-License-Identifier: Apache-2.0
"""Sum up each job's use of the GPUs it holds, by GPU and by job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from slurmscope.analysis.gpus.mapping import GpuHold, GpuMapping, job_of
from slurmscope.model.gpus import Gpu
from slurmscope.model.job_use import JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpuUse:
    """Hold what a job uses of one GPU that it holds; ``jobs`` counts all jobs that hold it.

    Memory is None where the driver does not report it, utilization also where other jobs hold the GPU too.
    """

    hold: GpuHold
    jobs: int
    memory_bytes: int | None = None
    utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpuUse:
    """Hold the sums of one job; None where one of its GPUs does not report, or other jobs use it too."""

    memory_bytes: int | None = None
    utilization_ratio: float | None = None


def find_held_use(mapping: GpuMapping) -> list[HeldGpuUse]:
    """Return the use of every GPU by every job that holds it."""
    held = [hold for hold in mapping.holds if hold.is_held]
    holders = Counter(hold.gpu.uuid for hold in held)
    return [
        HeldGpuUse(
            hold=hold,
            jobs=holders[hold.gpu.uuid],
            memory_bytes=_memory_bytes(hold.job, hold.gpu),
            utilization_ratio=hold.gpu.utilization_ratio if holders[hold.gpu.uuid] == 1 else None,
        )
        for hold in held
    ]


def sum_up_jobs(uses: Sequence[HeldGpuUse]) -> dict[JobKey, JobGpuUse]:
    """Sum up every job that holds a GPU."""
    by_job: defaultdict[JobKey, list[HeldGpuUse]] = defaultdict(list)
    for use in uses:
        by_job[use.hold.job].append(use)
    return {key: _sum_up(of_job) for key, of_job in by_job.items()}


def _sum_up(uses: Sequence[HeldGpuUse]) -> JobGpuUse:
    memory = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    ratios = [use.utilization_ratio for use in uses if use.utilization_ratio is not None]
    return JobGpuUse(
        memory_bytes=sum(memory) if len(memory) == len(uses) else None,
        utilization_ratio=fmean(ratios) if len(ratios) == len(uses) else None,
    )


def _memory_bytes(key: JobKey, gpu: Gpu) -> int | None:
    """Add up the memory of the job's own processes; None where the processes of the GPU are not all known."""
    if gpu.processes is None:
        return None
    total = 0
    for process in gpu.processes:
        if process.place is None:
            return None
        if job_of(process.place, [key]) is not None:
            if process.memory_bytes is None:
                return None
            total += process.memory_bytes
    return total
