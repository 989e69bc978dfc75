# SPDX-License-Identifier: Apache-2.0
"""Predict from the measured curves of a run what it would have done with other cores, GPUs, memory or time.

Work that kept more cores or GPUs busy than there are takes longer in proportion: the run time is a lower bound. Memory
is compared with the need of each node at each time, that of GPUs with the peaks of all of them.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from slurmscope.core.units import format_bytes, format_seconds, format_some
from slurmscope.jobs.header_options import submitted_size
from slurmscope.jobs.memory_shares import even_need_bytes
from slurmscope.jobs.pending.smaller_request import WaitsByShape, find_wait, is_difference
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.rule import is_memory_measured, mean_cores, needed_node_bytes, was_oom_killed
from slurmscope.jobs.summary import JobSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRequest:
    """Another request for a run; None is as submitted. Memory is per node, as ``--mem``."""

    cpus: int | None = None
    memory_bytes: float | None = None
    limit_seconds: float | None = None
    gpus: int | None = None


class Sufficiency(enum.StrEnum):
    """Whether a request would have been enough."""

    ENOUGH = "enough"
    TOO_LITTLE = "too little"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome:
    """When the run would have been OOM-killed, in seconds after its start; None is unknown."""

    verdict: Sufficiency
    needed_bytes: float | None = None
    """The highest known need of any node."""
    killed_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutcome:
    """How long the run would have taken at least, None if that is unknown, and whether the limit is enough."""

    verdict: Sufficiency
    run_seconds: float | None = None
    cut_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemoryOutcome:
    """Whether what the processes held at once fits into the memory of other GPUs, of the size that the job had."""

    verdict: Sufficiency
    needed_bytes: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """The outcome of another request, and how long jobs of its size waited."""

    request: OtherRequest
    memory: MemoryOutcome
    time: TimeOutcome
    gpu_memory: GpuMemoryOutcome = GpuMemoryOutcome(verdict=Sufficiency.UNKNOWN)
    wait_seconds: float | None = None
    """Median waiting time of jobs of this size; None with too few of them."""
    submitted_wait_seconds: float | None = None


_FOLDED = ("lowest of ", "median of ", "highest of ")
_IDLE_GPU_RATIO = 0.1


def predict(report: JobReport, request: OtherRequest, waits: WaitsByShape) -> WhatIfOutcome:
    """Return what an ended run would have done with this request."""
    submitted = submitted_size(report.summary)
    size = replace(
        submitted,
        cpus=request.cpus or submitted.cpus,
        limit_seconds=request.limit_seconds or submitted.limit_seconds,
    )
    wait, before = find_wait(waits, size), find_wait(waits, submitted)
    return WhatIfOutcome(
        request=request,
        memory=_predict_memory(report, request),
        time=_predict_time(report, request),
        gpu_memory=_predict_gpu_memory(report, request),
        wait_seconds=wait.median_seconds if wait else None,
        submitted_wait_seconds=before.median_seconds if before else None,
    )


def _predict_memory(report: JobReport, request: OtherRequest) -> MemoryOutcome:
    summary, had = report.summary, _submitted_bytes(report)
    wanted = _wanted_bytes(report, request) or had
    needed = _needed_bytes(summary)
    if wanted is None or needed is None:
        return MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=needed)
    # With memory per core, nodes with few cores get less than the mean.
    known = None if request.memory_bytes or needed > needed_node_bytes(summary) else even_need_bytes(summary)
    is_short = (needed if known is None else known) > wanted
    if is_short or (was_oom_killed(summary) and had is not None and wanted <= had):
        after = _first_above(report, wanted, request.cpus)
        return MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=needed, killed_after_seconds=after)
    # A run that was ended may have needed more later; nor is it known what samples of Slurm have missed.
    is_known = is_memory_measured(summary.memory) and _is_complete(report)
    return MemoryOutcome(verdict=Sufficiency.ENOUGH if is_known else Sufficiency.UNKNOWN, needed_bytes=needed)


def _submitted_bytes(report: JobReport) -> float | None:
    size = submitted_size(report.summary)
    return None if size.memory_bytes is None else size.memory_bytes / size.nodes


def _wanted_bytes(report: JobReport, request: OtherRequest) -> float | None:
    """Return the memory per node of a request; with fewer cores or GPUs, memory for each of them alone means less."""
    had, record, options = _submitted_bytes(report), report.record, report.record.options
    if request.memory_bytes or not had:
        return request.memory_bytes
    if request.cpus and record.cpus and "mem-per-cpu" in options:
        return had * request.cpus / record.cpus
    if request.gpus and record.gpus and "mem-per-gpu" in options:
        return had * request.gpus / record.gpus
    return None


def _is_complete(report: JobReport) -> bool:
    return report.record.state == "COMPLETED" and not was_oom_killed(report.summary)


def _needed_bytes(summary: JobSummary) -> float | None:
    """Return the highest known need of any node, for an OOM-killed job up to its time limit; None if unknown."""
    needed = needed_node_bytes(summary)
    if was_oom_killed(summary):
        needed = max(needed, summary.memory.expected_bytes or 0.0)
    return needed or (summary.memory.best_peak_bytes if summary.record.node_count == 1 else None)


def _predict_gpu_memory(report: JobReport, request: OtherRequest) -> GpuMemoryOutcome:
    gpu = report.summary.gpu
    needed, size, had = gpu.peak_memory_bytes, gpu.memory_size_bytes, report.record.gpus
    if request.gpus is None or needed is None or not size or not had:
        return GpuMemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=needed)
    memory = size / had * request.gpus
    verdict = Sufficiency.ENOUGH if needed <= memory else Sufficiency.TOO_LITTLE
    return GpuMemoryOutcome(verdict=verdict, needed_bytes=needed, memory_bytes=memory)


def _predict_time(report: JobReport, request: OtherRequest) -> TimeOutcome:
    summary = report.summary
    limit = request.limit_seconds or summary.time.requested
    by_cores = _slowed(report, summary.run_seconds, request.cpus)
    by_gpus = _slowed_by_gpus(report, request.gpus)
    if by_cores is None or by_gpus is None:
        return TimeOutcome(verdict=Sufficiency.UNKNOWN)
    run_seconds = max(by_cores, by_gpus)
    if limit is not None and run_seconds > limit:
        return TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=run_seconds, cut_after_seconds=limit)
    if report.record.state == "TIMEOUT" and limit is not None and limit <= (summary.time.requested or math.inf):
        return TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=run_seconds, cut_after_seconds=limit)
    # A run that was ended was not done.
    return TimeOutcome(
        verdict=Sufficiency.ENOUGH if _is_complete(report) else Sufficiency.UNKNOWN, run_seconds=run_seconds
    )


def _first_above(report: JobReport, wanted_bytes: float, cpus: int | None) -> float | None:
    """Return how long after its start the run needed more than this on a node; None if no sample shows it."""
    chart, start = _find_chart(report, "memory"), report.record.start_seconds
    if chart is None or start is None:
        return None
    for index, time in enumerate(chart.times):
        values = [line.values[index] for line in chart.lines]
        if any(value is not None and value > wanted_bytes for value in values):
            return _slowed(report, max(0.0, time - start), cpus)
    return None


def _slowed(report: JobReport, until_seconds: float, cpus: int | None) -> float | None:
    """Return how long the first part of the run takes at least with so many cores; None if that is unknown."""
    record = report.record
    if cpus is None or (record.cpus and cpus >= record.cpus):
        return until_seconds
    return _stretched(report, until_seconds, _busy(report, "cpu"), mean_cores(report.summary), cpus)


def _slowed_by_gpus(report: JobReport, gpus: int | None) -> float | None:
    """Return how long the run takes at least with so many GPUs; None if that is unknown."""
    gpu, had = report.summary.gpu, report.record.gpus
    if gpus is None or gpus >= had:
        return report.summary.run_seconds
    # Others used a shared GPU too, and one that is stuck is busy doing nothing.
    if gpu.is_shared or gpu.stuck_seconds:
        return None
    mean = None if gpu.mean_utilization is None else gpu.mean_utilization * had
    return _stretched(report, report.summary.run_seconds, _busy(report, "gpu_busy"), mean, gpus)


def _stretched(
    report: JobReport, until_seconds: float, busy: list[tuple[float, float]], mean: float | None, count: int
) -> float | None:
    """Return how long the first part takes if only so many can be busy at once; without a curve by the mean."""
    if not busy:
        return None if mean is None else until_seconds * max(1.0, mean / count)
    start, length = float(report.record.start_seconds or 0), report.summary.run_seconds
    # While the job was suspended nothing was busy; that time is part of the curve, and not of the run time.
    last = until_seconds + (report.record.suspended_seconds if until_seconds >= length else 0)
    seconds, at = until_seconds, 0.0
    for time, amount in busy:
        end = min(max(time - start, at), last)
        seconds += (end - at) * max(0.0, amount / count - 1)
        at = end
    return seconds + (last - at) * max(0.0, busy[-1][1] / count - 1)


def _busy(report: JobReport, name: str) -> list[tuple[float, float]]:
    """Return times and how many were busy until then, on all nodes; none where lines stand for many nodes."""
    chart = _find_chart(report, name)
    if chart is None or any(line.label.startswith(_FOLDED) for line in chart.lines):
        return []
    columns = (
        [value for line in chart.lines if (value := line.values[index]) is not None]
        for index in range(len(chart.times))
    )
    return [(time, math.fsum(column)) for time, column in zip(chart.times, columns, strict=True) if column]


def _find_chart(report: JobReport, name: str) -> Chart | None:
    return next((chart for chart in report.charts if chart.name == name and chart.times), None)


def describe_outcome(report: JobReport, outcome: WhatIfOutcome) -> tuple[str, ...]:
    """Return one sentence each on memory, cores and GPUs, the memory of GPUs, the time limit and the queue."""
    sentences = (
        _memory(report, outcome),
        _size(report, outcome),
        _gpu_memory(outcome),
        _limit(report, outcome),
        _wait(outcome),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _memory(report: JobReport, outcome: WhatIfOutcome) -> str:
    memory, wanted = outcome.memory, _wanted_bytes(report, outcome.request)
    if wanted is None:
        return ""
    size, needed = f"With {format_bytes(wanted)} of memory per node", format_bytes(memory.needed_bytes)
    if memory.verdict is Sufficiency.TOO_LITTLE and _ends_first(
        outcome.time.cut_after_seconds, memory.killed_after_seconds
    ):
        return f"{size} its time limit would have ended it before it ran out of memory: it needed {needed}."
    if memory.verdict is Sufficiency.TOO_LITTLE:
        return f"{size} it would have been OOM-killed{_when(report, memory.killed_after_seconds)}: it needed {needed}."
    if memory.verdict is Sufficiency.ENOUGH:
        return f"{size} it would have had enough: it needed {needed}."
    if memory.needed_bytes is None:
        return f"Whether {format_bytes(wanted)} of memory are enough is not known: its memory was not measured."
    return f"Whether {format_bytes(wanted)} of memory are enough is not known: it needed at least {needed}."


def _size(report: JobReport, outcome: WhatIfOutcome) -> str:
    """Describe the run time with other cores, GPUs, or both."""
    request, record, run_seconds = outcome.request, report.record, outcome.time.run_seconds
    cpus = request.cpus if record.cpus else None
    if request.gpus is not None and not record.gpus:
        return "Whether GPUs would help is not known: it had none."
    counts = ((cpus, "core"), (request.gpus, "GPU"))
    size = " and ".join(format_some(count, what) for count, what in counts if count is not None)
    if not size:
        return ""
    if run_seconds is None:
        return f"With {size} its run time is not known: {_why_unknown(report, request)}."
    took, longer = report.summary.run_seconds, format_seconds(run_seconds)
    if (cpus or 0) > (record.cpus or 0) or (request.gpus or 0) > record.gpus:
        return f"With {size} {_with_more(report, request)}"
    if run_seconds < 1.01 * took:
        return f"With {size} it would have run for about {format_seconds(took)}, as it did."
    return f"With {size} it would have run for at least {longer} instead of {format_seconds(took)}."


def _why_unknown(report: JobReport, request: OtherRequest) -> str:
    gpu = report.summary.gpu
    if request.gpus is None:
        return "its CPU time was not measured"
    if gpu.is_shared:
        return "other jobs used its GPUs, too"
    return "its GPUs were stuck" if gpu.stuck_seconds else "the use of its cores or GPUs was not measured"


def _with_more(report: JobReport, request: OtherRequest) -> str:
    """Say whether more would have been faster: not while some of what it had was idle."""
    cpus, gpus, summary = report.record.cpus or 0, report.record.gpus, report.summary
    peak, least = summary.cpu.peak_cores, summary.gpu.least_utilization
    has_idle = [
        (request.cpus or 0) > cpus and peak is not None and peak < 0.9 * cpus,
        (request.gpus or 0) > gpus and least is not None and least < _IDLE_GPU_RATIO,
    ]
    return "it would not have been faster." if any(has_idle) else "it may be faster: that was not measured."


def _gpu_memory(outcome: WhatIfOutcome) -> str:
    memory, gpus = outcome.gpu_memory, outcome.request.gpus
    if gpus is None or memory.verdict is not Sufficiency.TOO_LITTLE:
        return ""
    needed, size = format_bytes(memory.needed_bytes), format_bytes(memory.memory_bytes)
    have = "has" if gpus == 1 else "have"
    return f"It held up to {needed} of GPU memory, and {format_some(gpus, 'GPU')} {have} {size}: it would not have fit."


def _limit(report: JobReport, outcome: WhatIfOutcome) -> str:
    time, wanted = outcome.time, outcome.request.limit_seconds
    if time.verdict is Sufficiency.TOO_LITTLE and time.cut_after_seconds is not None:
        if _ends_first(outcome.memory.killed_after_seconds, time.cut_after_seconds):
            return ""
        limit = format_seconds(time.cut_after_seconds)
        return f"Its time limit of {limit} would have ended it{_when(report, time.cut_after_seconds)}."
    if wanted is None:
        return ""
    if time.verdict is Sufficiency.ENOUGH:
        return f"A time limit of {format_seconds(wanted)} would have been enough."
    return f"Whether a time limit of {format_seconds(wanted)} is enough is not known."


def _wait(outcome: WhatIfOutcome) -> str:
    wait, before = outcome.wait_seconds, outcome.submitted_wait_seconds
    if wait is None:
        return "Too few jobs of this size ran in the last four weeks to estimate its waiting time."
    instead = "" if before is None or not is_difference(before, wait) else f" instead of {format_seconds(before)}"
    return f"Jobs of this size waited about {format_seconds(wait)}{instead}."


def _ends_first(one_seconds: float | None, other_seconds: float | None) -> bool:
    return one_seconds is not None and other_seconds is not None and one_seconds < other_seconds


def _when(report: JobReport, after_seconds: float | None) -> str:
    start = report.record.start_seconds
    if after_seconds is None or start is None:
        return ""
    return f" after {format_seconds(after_seconds)}, at {format_time(start + after_seconds)}"
