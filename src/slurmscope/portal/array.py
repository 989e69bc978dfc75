# SPDX-License-Identifier: Apache-2.0
"""Summarize the tasks of a job array: distributions, outliers, and one recommendation for all of them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.units import format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.jobs.pending.queue import PendingJob
from slurmscope.jobs.suggestions import memory_line_for, suggest_memory_bytes, suggest_time_seconds, time_line
from slurmscope.jobs.summary import JobSummary
from slurmscope.portal.queries import render_query

BINS = 12
MAX_LINKED = 200
"""Jobs of a bin up to which it has a link: addresses have a limit."""


class Number(NamedTuple):
    """Read and format one number of a job."""

    label: str
    read: Callable[[JobRow], float | None]
    format: Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar; ``query`` selects its jobs in the list, and is empty for no jobs or too many."""

    count: int
    span: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How one number is distributed over the jobs for which it is known."""

    label: str
    known: int
    lowest: str
    median: str
    highest: str
    bars: tuple[Bin, ...]

    @property
    def bins(self) -> tuple[int, ...]:
        return tuple(each.count for each in self.bars)

    @property
    def tallest(self) -> int:
        return max(self.bins, default=0)


def make_distribution(number: Number, rows: Sequence[JobRow]) -> Distribution | None:
    """Count the jobs whose number is known in bins of equal width; None if it is known for less than two."""
    known = [(value, row) for row in rows if (value := number.read(row)) is not None]
    if len(known) < 2:
        return None
    values = [value for value, _ in known]
    lowest, highest = min(values), max(values)
    width = (highest - lowest) / BINS
    jobs: list[list[JobRow]] = [[] for _ in range(BINS)]
    for value, row in known:
        jobs[min(BINS - 1, int((value - lowest) / width)) if width else 0].append(row)
    edges = [number.format(lowest + width * index) for index in range(BINS + 1)]
    return Distribution(
        label=number.label,
        known=len(known),
        lowest=number.format(lowest),
        median=number.format(statistics.median(values)),
        highest=number.format(highest),
        bars=tuple(
            Bin(count=len(some), span=low if low == high else f"{low} to {high}", query=_link(some))
            for some, (low, high) in zip(jobs, pairwise(edges), strict=True)
        ),
    )


def _link(rows: Sequence[JobRow]) -> str:
    ids = tuple(row.shown_id for row in rows)
    return render_query(JobFilter(shown_ids=ids)) if 0 < len(ids) <= MAX_LINKED else ""


COMPLETED = "COMPLETED"
MAX_OUTLIERS = 20
_MIN_TASKS_FOR_OUTLIERS = 8
_MIN_RUN_SECONDS = 300.0
"""Shorter tasks mostly started up and shut down; the rules ignore them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A task that differs much from the others, and in what."""

    row: JobRow
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The most useful change for the whole array; ``suggestion`` is a line for the job script, or empty."""

    sentence: str
    advice: str
    suggestion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayView:
    """What the page of an array shows."""

    sentence: str
    """The whole array in one line."""
    incomplete: tuple[JobRow, ...]
    """Every task that ended without completing."""
    distributions: tuple[Distribution, ...]
    outliers: tuple[Outlier, ...]
    recommendation: Recommendation | None


def _used_memory_bytes(row: JobRow) -> float | None:
    return None if row.memory_bytes is None or row.memory_ratio is None else row.memory_bytes * row.memory_ratio


_NUMBERS = (
    Number("Run time", lambda row: row.run_seconds if row.start_seconds is not None else None, format_seconds),
    Number("CPU use", lambda row: row.cpu_ratio, format_ratio),
    Number("Memory used", _used_memory_bytes, format_bytes),
    Number("GPU use", lambda row: row.gpu_ratio, format_ratio),
)


def keep_newest_runs(rows: Iterable[JobRow], pending: Sequence[PendingJob]) -> list[JobRow]:
    """Return one row for each task, of rows with the newest submission first: Slurm may have run a task before.

    ``pending`` are the pending tasks of the array, which may have ended an earlier run.
    """
    waiting = [tasks for job in pending for tasks in job.tasks]
    newest: dict[str, JobRow] = {}
    for row in rows:
        task = row.shown_id.partition("_")[2]
        is_earlier = row.end_seconds is not None and task.isdecimal() and any(int(task) in tasks for tasks in waiting)
        if not is_earlier:
            newest.setdefault(row.shown_id, row)
    return list(newest.values())


def make_array_view(rows: Sequence[JobRow], task: JobSummary) -> ArrayView:
    """Summarize the tasks; ``task`` is the summary of any of them, which knows how the array was submitted."""
    return ArrayView(
        sentence=_describe(rows),
        incomplete=tuple(row for row in rows if row.end_seconds is not None and row.state != COMPLETED),
        distributions=tuple(found for number in _NUMBERS if (found := make_distribution(number, rows)) is not None),
        outliers=_join_outliers(outlier for number in _NUMBERS for outlier in _find_outliers(number, rows)),
        recommendation=_recommend(rows, task),
    )


def _count_states(rows: Sequence[JobRow]) -> Mapping[str, int]:
    """Count tasks by state, most frequent first; pending tasks share a row."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.state] += row.array_tasks
    return dict(counts.most_common())


def _describe(rows: Sequence[JobRow]) -> str:
    """Describe the whole array: its tasks by state, their core-hours and run times."""
    states = ", ".join(f"{count:,} {state.lower().replace('_', ' ')}" for state, count in _count_states(rows).items())
    held = math.fsum(row.core_seconds for row in rows)
    known = [row for row in rows if row.cpu_ratio is not None]
    parts = [f"{format_some(sum(row.array_tasks for row in rows), 'task')}: {states}"]
    if held:
        parts.append(f"{format_count(round(held / 3600, 1))} core-hours")
    if measured := math.fsum(row.core_seconds for row in known):
        used = math.fsum(row.core_seconds * min(1.0, row.cpu_ratio or 0.0) for row in known)
        parts.append(f"CPU use {format_ratio(used / measured)}")
    runs = [row.run_seconds for row in rows if row.start_seconds is not None]
    if runs:
        parts.append(f"median run time {format_seconds(statistics.median(runs))}")
    return "; ".join(parts) + "."


def _join_outliers(found: Iterable[Outlier]) -> tuple[Outlier, ...]:
    """List each task once, with everything in which it differs."""
    reasons: dict[str, list[Outlier]] = {}
    for outlier in found:
        reasons.setdefault(outlier.row.shown_id, []).append(outlier)
    joined = (replace(some[0], why="; ".join(each.why for each in some)) for some in reasons.values())
    return tuple(joined)[:MAX_OUTLIERS]


def _find_outliers(number: Number, rows: Sequence[JobRow]) -> list[Outlier]:
    """Find tasks beyond 1.5 times the interquartile range, as in box plots."""
    known = [(value, row) for row in rows if row.end_seconds is not None and (value := number.read(row)) is not None]
    if len(known) < _MIN_TASKS_FOR_OUTLIERS:
        return []
    lower, middle, upper = statistics.quantiles((value for value, _ in known), n=4)
    # If all tasks are nearly equal, a tiny difference is not an outlier.
    reach = max(1.5 * (upper - lower), 0.1 * abs(middle))
    far = [(value, row) for value, row in known if value < lower - reach or value > upper + reach]
    far.sort(key=lambda pair: -abs(pair[0] - middle))
    return [
        Outlier(row=row, why=f"{number.label}: {number.format(value)} (median {number.format(middle)})")
        for value, row in far
    ]


def _recommend(rows: Sequence[JobRow], task: JobSummary) -> Recommendation | None:
    """Choose the most useful change: first for tasks that ran out of memory or time, then cores, memory and time.

    Only completed tasks show what a task needs. The use of other tasks still counts as a lower bound.
    """
    examples = [row for row in rows if row.state == COMPLETED and row.run_seconds >= _MIN_RUN_SECONDS]
    if (too_little := _find_too_little(rows)) is not None or not examples:
        return too_little
    return (
        _recommend_cores(rows, examples) or _recommend_memory(rows, examples, task) or _recommend_time(rows, examples)
    )


def _find_too_little(rows: Sequence[JobRow]) -> Recommendation | None:
    """Report tasks that ended because they requested too little."""
    out_of_memory = sum(row.state == "OUT_OF_MEMORY" or "oom_kill" in row.rules for row in rows)
    out_of_time = sum(row.state == "TIMEOUT" for row in rows)
    for count, what in ((out_of_memory, "ran out of memory"), (out_of_time, "reached the time limit")):
        if count:
            return Recommendation(
                sentence=f"{count:,} of {format_some(len(rows), 'task')} {what}.",
                advice="The report of such a task suggests what to request.",
            )
    return None


def _recommend_cores(rows: Sequence[JobRow], examples: Sequence[JobRow]) -> Recommendation | None:
    """Report idle cores, without suggesting a number: rows have only the mean, and busy phases may need more."""
    if any(row.cpu_ratio is None for row in examples) or any(row.gpus or row.nodes > 1 or not row.cpus for row in rows):
        return None
    busy = max(row.cpu_ratio * (row.cpus or 0) for row in rows if row.cpu_ratio is not None)
    requested = max(row.cpus or 0 for row in rows)
    if requested < 2 or busy > requested / 2:
        return None
    return Recommendation(
        sentence=f"Averaged over its run, no task kept more than {busy:.1f} of its {requested:,} cores busy.",
        advice="The report of a task shows how many were busy at the same time, and suggests what to request.",
    )


def _recommend_memory(rows: Sequence[JobRow], examples: Sequence[JobRow], task: JobSummary) -> Recommendation | None:
    if any(_used_memory_bytes(row) is None for row in examples) or any(row.nodes > 1 for row in rows):
        return None
    used = max(value for row in rows if (value := _used_memory_bytes(row)) is not None)
    requested = max(row.memory_bytes for row in rows if row.memory_bytes is not None)
    suggested = suggest_memory_bytes(used)
    if suggested > requested / 2 or task.memory.working_peak_bytes is None:  # MaxRSS misses peaks
        return None
    return Recommendation(
        sentence=f"No task used more than {format_bytes(used)} of the {format_bytes(requested)} it requested.",
        advice=_describe_examples(examples),
        suggestion=memory_line_for(task, suggested, min(row.cpus or 0 for row in rows)),
    )


def _recommend_time(rows: Sequence[JobRow], examples: Sequence[JobRow]) -> Recommendation | None:
    limits = [row.run_seconds / row.time_ratio for row in rows if row.time_ratio]
    longest = max(row.run_seconds for row in rows)
    suggested = suggest_time_seconds(longest)
    if not limits or suggested > max(limits) / 2:
        return None
    return Recommendation(
        sentence=f"The longest task ran for {format_seconds(longest)}; the time limit was "
        f"{format_seconds(max(limits))}.",
        advice=_describe_examples(examples),
        suggestion=time_line(suggested),
    )


def _describe_examples(examples: Sequence[JobRow]) -> str:
    """Say how many tasks a suggestion is based on."""
    return (
        f"With a safety margin, based on {format_some(len(examples), 'task')} that completed and ran for at least "
        f"{format_seconds(_MIN_RUN_SECONDS)}:"
    )
