# SPDX-License-Identifier: Apache-2.0
"""Predict from the measured curves of a run what it would have done with other cores, memory or time.

Work that kept more cores busy than there are takes longer in proportion: the run time is a lower bound. Memory is
compared with the need of each node at each time.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from slurmscope.core.units import format_bytes, format_seconds, format_some
from slurmscope.jobs.header_options import submitted_size
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


class Verdict(enum.StrEnum):
    """Whether a request would have been enough."""

    ENOUGH = "enough"
    TOO_LITTLE = "too little"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome:
    """When the run would have been OOM-killed, in seconds after its start; None is unknown."""

    verdict: Verdict
    needed_bytes: float | None = None
    """The highest known need of any node."""
    killed_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutcome:
    """How long the run would have taken at least, None if that is unknown, and whether the limit is enough."""

    verdict: Verdict
    run_seconds: float | None = None
    cut_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """The outcome of another request, and how long jobs of its size waited."""

    request: OtherRequest
    memory: MemoryOutcome
    time: TimeOutcome
    wait_seconds: float | None = None
    """Median waiting time of jobs of this size; None with too few of them."""
    submitted_wait_seconds: float | None = None


_FOLDED = ("lowest of ", "median of ", "highest of ")


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
        wait_seconds=wait.median_seconds if wait else None,
        submitted_wait_seconds=before.median_seconds if before else None,
    )


def _predict_memory(report: JobReport, request: OtherRequest) -> MemoryOutcome:
    summary, size = report.summary, submitted_size(report.summary)
    had = None if size.memory_bytes is None else size.memory_bytes / size.nodes
    wanted = request.memory_bytes or had
    needed = _needed_bytes(summary)
    if wanted is None or needed is None:
        return MemoryOutcome(verdict=Verdict.UNKNOWN, needed_bytes=needed)
    if needed > wanted or (was_oom_killed(summary) and had is not None and wanted <= had):
        after = _first_above(report, wanted, request.cpus)
        return MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=needed, killed_after_seconds=after)
    # What an OOM-killed run would have needed is not known, nor what samples of Slurm have missed.
    is_known = is_memory_measured(summary.memory) and not was_oom_killed(summary)
    return MemoryOutcome(verdict=Verdict.ENOUGH if is_known else Verdict.UNKNOWN, needed_bytes=needed)


def _needed_bytes(summary: JobSummary) -> float | None:
    """Return the highest known need of any node, for an OOM-killed job up to its time limit; None if unknown."""
    needed = needed_node_bytes(summary)
    if was_oom_killed(summary):
        needed = max(needed, summary.memory.expected_bytes or 0.0)
    return needed or (summary.memory.best_peak_bytes if summary.record.node_count == 1 else None)


def _predict_time(report: JobReport, request: OtherRequest) -> TimeOutcome:
    summary = report.summary
    limit = request.limit_seconds or summary.time.requested
    run_seconds = _slowed(report, summary.run_seconds, request.cpus)
    if run_seconds is None:
        return TimeOutcome(verdict=Verdict.UNKNOWN)
    if limit is not None and run_seconds > limit:
        return TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=run_seconds, cut_after_seconds=limit)
    # A run that reached its limit was not done.
    is_known = report.record.state != "TIMEOUT" or (limit is not None and limit <= (summary.time.requested or math.inf))
    if not is_known:
        return TimeOutcome(verdict=Verdict.UNKNOWN, run_seconds=run_seconds)
    is_cut = report.record.state == "TIMEOUT"
    return TimeOutcome(
        verdict=Verdict.TOO_LITTLE if is_cut else Verdict.ENOUGH,
        run_seconds=run_seconds,
        cut_after_seconds=limit if is_cut else None,
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
    busy = _busy_cores(report)
    if not busy:
        mean = mean_cores(report.summary)
        return None if mean is None else until_seconds * max(1.0, mean / cpus)
    start, length = float(record.start_seconds or 0), report.summary.run_seconds
    # While the job was suspended no core was busy; that time is part of the curve, and not of the run time.
    last = until_seconds + (record.suspended_seconds if until_seconds >= length else 0)
    seconds, at = until_seconds, 0.0
    for time, cores in busy:
        end = min(max(time - start, at), last)
        seconds += (end - at) * max(0.0, cores / cpus - 1)
        at = end
    return seconds + (last - at) * max(0.0, busy[-1][1] / cpus - 1)


def _busy_cores(report: JobReport) -> list[tuple[float, float]]:
    """Return times and the cores busy on all nodes until then; none where lines stand for many nodes."""
    chart = _find_chart(report, "cpu")
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
    """Return one sentence each on memory, cores, the time limit and the queue."""
    sentences = (
        _memory(report, outcome),
        _cores(report, outcome),
        _limit(report, outcome),
        _wait(outcome),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _memory(report: JobReport, outcome: WhatIfOutcome) -> str:
    memory, wanted = outcome.memory, outcome.request.memory_bytes
    if wanted is None:
        return ""
    size, needed = f"With {format_bytes(wanted)} of memory per node", format_bytes(memory.needed_bytes)
    if memory.verdict is Verdict.TOO_LITTLE and _ends_first(
        outcome.time.cut_after_seconds, memory.killed_after_seconds
    ):
        return f"{size} its time limit would have ended it before it ran out of memory: it needed {needed}."
    if memory.verdict is Verdict.TOO_LITTLE:
        return f"{size} it would have been OOM-killed{_when(report, memory.killed_after_seconds)}: it needed {needed}."
    if memory.verdict is Verdict.ENOUGH:
        return f"{size} it would have had enough: it needed {needed}."
    if memory.needed_bytes is None:
        return f"Whether {format_bytes(wanted)} of memory are enough is not known: its memory was not measured."
    return f"Whether {format_bytes(wanted)} of memory are enough is not known: it needed at least {needed}."


def _cores(report: JobReport, outcome: WhatIfOutcome) -> str:
    cpus, had, run_seconds = outcome.request.cpus, report.record.cpus, outcome.time.run_seconds
    if cpus is None or not had:
        return ""
    cores = f"With {format_some(cpus, 'core')}"
    if run_seconds is None:
        return f"{cores} its run time is not known: its CPU time was not measured."
    took = report.summary.run_seconds
    if cpus > had:
        peak = report.summary.cpu.peak_cores
        is_idle = peak is not None and peak < 0.9 * had
        return (
            f"{cores} it would not have been faster."
            if is_idle
            else f"{cores} it may be faster: that was not measured."
        )
    if run_seconds < 1.01 * took:
        return f"{cores} it would have run for about {format_seconds(took)}, as it did."
    return f"{cores} it would have run for at least {format_seconds(run_seconds)} instead of {format_seconds(took)}."


def _limit(report: JobReport, outcome: WhatIfOutcome) -> str:
    time, wanted = outcome.time, outcome.request.limit_seconds
    if time.verdict is Verdict.TOO_LITTLE and time.cut_after_seconds is not None:
        if _ends_first(outcome.memory.killed_after_seconds, time.cut_after_seconds):
            return ""
        limit = format_seconds(time.cut_after_seconds)
        return f"Its time limit of {limit} would have ended it{_when(report, time.cut_after_seconds)}."
    if wanted is None:
        return ""
    if time.verdict is Verdict.ENOUGH:
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
