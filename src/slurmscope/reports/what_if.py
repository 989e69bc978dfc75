# SPDX-License-Identifier: Apache-2.0
"""Write what a run would have done with another request, in sentences."""

from __future__ import annotations

from slurmscope.figures import format_bytes, format_seconds, format_some
from slurmscope.model.report import JobReport
from slurmscope.model.what_if import Verdict, WhatIfOutcome
from slurmscope.reports.formatting import format_time


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
    instead = "" if before is None or before == wait else f" instead of {format_seconds(before)}"
    return f"Jobs of this size waited about {format_seconds(wait)}{instead}."


def _ends_first(one_seconds: float | None, other_seconds: float | None) -> bool:
    return one_seconds is not None and other_seconds is not None and one_seconds < other_seconds


def _when(report: JobReport, after_seconds: float | None) -> str:
    start = report.record.start_seconds
    if after_seconds is None or start is None:
        return ""
    return f" after {format_seconds(after_seconds)}, at {format_time(start + after_seconds)}"
