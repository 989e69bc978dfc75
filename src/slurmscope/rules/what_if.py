# SPDX-License-Identifier: Apache-2.0
"""Predict from the measured curves of a run what it would have done with other cores, memory or time limit.

Work that kept more cores busy than there are takes longer in proportion: the run time is a lower bound. Memory is
compared with the need of each node at each time.
"""

from __future__ import annotations

import math
from dataclasses import replace

from slurmscope.analysis.pending.smaller_request import WaitsByShape
from slurmscope.model.report import Chart, JobReport
from slurmscope.model.what_if import MemoryOutcome, OtherRequest, TimeOutcome, Verdict, WhatIfOutcome
from slurmscope.rules.expected_wait import find_wait
from slurmscope.rules.header_options import submitted_size
from slurmscope.rules.known import is_memory_measured, mean_cores, was_oom_killed

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
    needed = max(
        (each for node in summary.nodes if (each := node.working_peak_bytes) is not None),
        default=summary.memory.best_peak_bytes if size.nodes == 1 else None,
    )
    if wanted is None or needed is None:
        return MemoryOutcome(verdict=Verdict.UNKNOWN, needed_bytes=needed)
    if needed > wanted or (was_oom_killed(summary) and had is not None and wanted <= had):
        after = _first_above(report, wanted, request.cpus)
        return MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=needed, killed_after_seconds=after)
    # What an OOM-killed run would have needed is not known, nor what samples of Slurm have missed.
    is_known = is_memory_measured(summary.memory) and not was_oom_killed(summary)
    return MemoryOutcome(verdict=Verdict.ENOUGH if is_known else Verdict.UNKNOWN, needed_bytes=needed)


def _predict_time(report: JobReport, request: OtherRequest) -> TimeOutcome:
    summary = report.summary
    limit = request.limit_seconds or summary.time.asked
    run_seconds = _slowed(report, summary.run_seconds, request.cpus)
    if run_seconds is None:
        return TimeOutcome(verdict=Verdict.UNKNOWN)
    if limit is not None and run_seconds > limit:
        return TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=run_seconds, cut_after_seconds=limit)
    # A run that reached its limit was not done.
    is_known = report.record.state != "TIMEOUT" or (limit is not None and limit <= (summary.time.asked or math.inf))
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
    start = float(record.start_seconds or 0)
    seconds, at = 0.0, 0.0
    for time, cores in busy:
        end = min(max(time - start, at), until_seconds)
        seconds += (end - at) * max(1.0, cores / cpus)
        at = end
    return seconds + (until_seconds - at) * max(1.0, busy[-1][1] / cpus)


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
