# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its GPUs."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.core.units import format_bytes, format_ratio, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, was_suspended
from slurmscope.jobs.suggestions import fewer_gpus_line
from slurmscope.jobs.summary import GpuWork, JobSummary


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


def _work(summary: JobSummary) -> GpuWork:
    """Return what the GPUs counted over the run; nothing where others used them too, or a part is missing."""
    gpu = summary.gpu
    return gpu.work if gpu.coverage.is_good and not gpu.is_shared else GpuWork()


def _tensor_unused(summary: JobSummary, values: Thresholds) -> Match | None:
    work = _work(summary)
    if work.fp32_ratio is None or work.tensor_ratio is None:
        return None
    if work.fp32_ratio < values["min_fp32_ratio"] or work.tensor_ratio >= values["max_tensor_ratio"]:
        return None
    return Match(
        explanation=f"Units for 32-bit numbers worked for {format_ratio(work.fp32_ratio)} of the time, tensor cores "
        f"for {format_ratio(work.tensor_ratio)}.",
        numbers={"fp32_ratio": work.fp32_ratio, "tensor_ratio": work.tensor_ratio},
    )


def _busy_without_work(summary: JobSummary, values: Thresholds) -> Match | None:
    work = _work(summary)
    if work.busy_ratio is None or work.sm_ratio is None:
        return None
    if work.busy_ratio < values["min_busy_ratio"] or work.sm_ratio >= values["max_sm_ratio"]:
        return None
    return Match(
        explanation=f"A kernel was running for {format_ratio(work.busy_ratio)} of the time, but on average only "
        f"{format_ratio(work.sm_ratio)} of the multiprocessors worked.",
        numbers={"busy_ratio": work.busy_ratio, "sm_ratio": work.sm_ratio},
    )


def _memory_bound(summary: JobSummary, values: Thresholds) -> Match | None:
    ratio = _work(summary).dram_ratio
    if ratio is None or ratio < values["min_bandwidth_ratio"]:
        return None
    return Match(
        explanation=f"The GPUs moved data to and from their memory at {format_ratio(ratio)} of its bandwidth, over the "
        "whole run.",
        numbers={"dram_ratio": ratio},
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
    Rule(
        id="gpu_busy_without_work",
        title="The GPUs were busy, but did hardly any work",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="counters of the hardware (Hopper and later)",
        advice="Processes that wait for each other in a collective operation look like this, and so do kernels that "
        "are far too small. See in the log whether one rank has stopped; put more work into each kernel, or use CUDA "
        "graphs.",
        check=_busy_without_work,
        thresholds=(
            Threshold("min_busy_ratio", "ratio", 0.1, "Report GPUs that are busy for at least this share."),
            Threshold("max_sm_ratio", "ratio", 0.02, "And whose multiprocessors work for less than this share."),
        ),
    ),
    Rule(
        id="gpu_tensor_unused",
        title="Tensor cores were not used",
        subject=Subject.GPU,
        severity=Severity.INFO,
        needs="counters of the hardware (Hopper and later)",
        advice="If the program tolerates less precise 32-bit products, let it use TF32 or bfloat16. In PyTorch that is "
        'one line: torch.set_float32_matmul_precision("high"), or torch.autocast("cuda", dtype=torch.bfloat16) '
        "around the model.",
        check=_tensor_unused,
        thresholds=(
            Threshold("min_fp32_ratio", "ratio", 0.3, "Report GPUs whose 32-bit units work for at least this share."),
            Threshold("max_tensor_ratio", "ratio", 0.1, "And whose tensor cores work for less than this share."),
        ),
    ),
    Rule(
        id="gpu_memory_bound",
        title="The GPUs were limited by their memory",
        subject=Subject.GPU,
        severity=Severity.INFO,
        needs="counters of the hardware (Hopper and later)",
        advice="More computing power would not help. Fuse operations (torch.compile), keep data in smaller types, or "
        "reuse what was loaded.",
        check=_memory_bound,
        thresholds=(
            Threshold(
                "min_bandwidth_ratio", "ratio", 0.7, "Report GPUs that use at least this share of the bandwidth."
            ),
        ),
    ),
)
