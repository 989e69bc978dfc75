# SPDX-License-Identifier: Apache-2.0
"""Take from a summary only what is known well enough to judge a job by."""

from __future__ import annotations

from slurmscope.model.summary import JobSummary, MemorySummary
from slurmscope.rules.submit_line import submit_options

SETTLED_STATES = frozenset({"COMPLETED", "TIMEOUT", "CANCELLED"})
"""A job that ended so had the time it wanted or was given; one that failed may not have come to its main part."""


def busy_ratio(summary: JobSummary) -> float | None:
    """Return used over asked CPU time; None unless every node was measured, or the job ended well.

    Without measurements Slurm's own figure is good enough for a completed job only: of a killed one it misses
    processes, and the job would be blamed for work that it did.
    """
    if summary.coverage.is_good:
        return summary.cpu.time.ratio
    is_accounted = summary.cpu.time.coverage is None and summary.record.state == "COMPLETED"
    return summary.cpu.time.ratio if is_accounted else None


def mean_cores(summary: JobSummary) -> float | None:
    """Return how many cores were busy on average, as far as :func:`busy_ratio` may be trusted."""
    ratio = busy_ratio(summary)
    return None if ratio is None or not summary.record.cpus else ratio * summary.record.cpus


def peak_cores(summary: JobSummary) -> float | None:
    """Return the most cores busy at once; only measurements tell that."""
    return summary.cpu.peak_cores if summary.coverage.is_good else None


def memory_peak_bytes(memory: MemorySummary) -> float | None:
    """Return what the job needed at most; None unless every node was measured, or Slurm's figure is of one task.

    Samples may miss a peak that Slurm saw. Even that of one task is memory that the job needed.
    """
    if memory.coverage.is_good and memory.working_peak_bytes is not None:
        return max(memory.working_peak_bytes, memory.slurm_peak_bytes or 0.0)
    return memory.slurm_peak_bytes if memory.slurm_peak_is_whole else None


def was_oom_killed(summary: JobSummary) -> bool:
    """Tell whether the kernel or Slurm killed a process for its memory."""
    return summary.record.state == "OUT_OF_MEMORY" or bool(summary.memory.oom_kills)


def has_gpus(summary: JobSummary) -> bool:
    """Tell whether GPUs were asked for: such a job is not judged by its cores."""
    return summary.gpu.asked > 0 or summary.record.gpus > 0


def was_suspended(summary: JobSummary) -> bool:
    """Tell whether the job was stopped for a while: what it did over time is then not its own doing."""
    return summary.record.suspended_seconds > 0


def requested_cores(summary: JobSummary) -> int:
    """Return how many cores were asked for: Slurm may have given more. Whole nodes are all of their cores."""
    record = summary.record
    if not record.asked_cpus or "exclusive" in submit_options(record.submit_line):
        return record.cpus
    return min(record.asked_cpus, record.cpus)


def step_tasks(summary: JobSummary) -> int | None:
    """Return the most tasks of any numbered step; None without one: nobody counts what the batch script starts."""
    return max((step.tasks or 1 for step in summary.record.steps if step.name[:1].isdecimal()), default=None)
