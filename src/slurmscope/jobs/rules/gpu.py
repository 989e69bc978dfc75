# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its GPUs."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.core.units import format_bytes, format_ratio, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, was_suspended
from slurmscope.jobs.suggestions import fewer_gpus_line
from slurmscope.jobs.summary import JobSummary


def _utilization(summary: JobSummary) -> float | None:
    gpu = summary.gpu
    return gpu.mean_utilization if gpu.requested > 0 and gpu.coverage.is_good else None


def _gpu_idle(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization, requested = _utilization(summary), summary.gpu.requested
    # GPUs without a process have their own rule: this one is about the others.
    opened = requested - (summary.gpu.held_idle or 0)
    if utilization is None or opened <= 0 or utilization * requested / opened >= values["min_utilization_ratio"]:
        return None
    subject = "The GPU was" if requested == 1 else f"The {requested} GPUs were"
    return Match(
        explanation=f"{subject} busy for only {format_ratio(utilization)} of the time.",
        numbers={"utilization_ratio": utilization, "gpus": float(requested)},
    )


def _held_without_process(summary: JobSummary, _values: Thresholds) -> Match | None:
    idle, requested = summary.gpu.held_idle, summary.gpu.requested
    if not idle or requested <= 0:
        return None
    # More GPUs than requested can be seen where Slurm counts slices or shares.
    rest = requested - idle
    return Match(
        explanation=f"{idle:,} of {format_some(requested, 'GPU')} had no process of the job for most of its run.",
        numbers={"idle_gpus": float(idle), "gpus": float(requested)},
        suggestion=fewer_gpus_line(summary, rest) if rest > 0 and summary.record.node_count == 1 else "",
        severity=Severity.CRITICAL if rest <= 0 else None,
        without=_with_used_gpus(summary, rest) if rest > 0 else None,
    )


def _with_used_gpus(summary: JobSummary, count: int) -> JobSummary:
    gpu, mean = summary.gpu, summary.gpu.mean_utilization
    return replace(
        summary,
        gpu=replace(gpu, requested=count, mean_utilization=None if mean is None else mean * gpu.requested / count),
    )


def _gpu_low(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization = _utilization(summary)
    if utilization is None or utilization >= values["min_utilization_ratio"] or was_suspended(summary):
        return None
    requested, memory = summary.gpu.requested, summary.gpu.peak_memory_bytes
    needs_memory = memory is not None and memory / requested >= values["large_memory_bytes"]
    held = "" if memory is None else f" The job used up to {format_bytes(memory)} of GPU memory."
    return Match(
        explanation=f"{format_some(requested, 'GPU')} computed for {format_ratio(utilization)} of the time on average."
        f"{held}",
        numbers={"utilization_ratio": utilization, "gpus": float(requested)}
        | ({} if memory is None else {"peak_memory_bytes": memory}),
        severity=Severity.INFO if needs_memory else None,
    )


RULES = (
    Rule(
        id="gpu_held_without_process",
        title="GPUs were allocated but not used",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="processes on the job's GPUs",
        advice="Request as many GPUs as the program uses. Check that it finds them, and that it was built to use more "
        "than one.",
        check=_held_without_process,
        explains=("gpu_low",),
    ),
    Rule(
        id="gpu_idle",
        title="The GPUs were idle",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs="GPU utilization on every node",
        advice="Check that the program was built for GPUs, and that its log says it found one. If it does not "
        "need any, use a partition without GPUs.",
        check=_gpu_idle,
        thresholds=(Threshold("min_utilization_ratio", "ratio", 0.02, "Report a lower mean utilization."),),
        # That some GPUs had no process matters less where the others were idle too.
        explains=("gpu_held_without_process",),
        replaces=("gpu_low",),
    ),
    Rule(
        id="gpu_low",
        title="The GPUs were idle most of the time",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="GPU utilization on every node",
        advice="Feed the GPUs faster: more data loader workers, larger batches, data on fast storage. Or use fewer "
        "or smaller GPUs, or a MIG slice.",
        check=_gpu_low,
        thresholds=(
            Threshold("min_utilization_ratio", "ratio", 0.25, "Report a lower mean utilization."),
            Threshold(
                "large_memory_bytes",
                "bytes",
                32.0 * (1 << 30),
                "Only info for a job that uses this much memory of each GPU: it may need them for that.",
            ),
        ),
    ),
)
