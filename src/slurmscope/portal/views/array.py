# SPDX-License-Identifier: Apache-2.0
"""Look at all tasks of an array together: how they spread, which ones stand out, what would fit them all."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.figures import format_bytes, format_ratio, format_seconds, format_some
from slurmscope.model.archive import JobRow

BINS = 12
MOST_OUTLIERS = 20
_FEWEST_FOR_OUTLIERS = 8
_MARGIN = 1.2
_LEAST_EXAMPLE_SECONDS = 300.0
"""A task that ran for less mostly started up and wound down, as with the rules."""
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Say how one number spreads over the tasks of which it is known."""

    label: str
    known: int
    lowest: str
    median: str
    highest: str
    bins: tuple[int, ...]

    @property
    def tallest(self) -> int:
        """Return the height of the highest bar."""
        return max(self.bins, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """Name a task that is far from the others, and why."""

    row: JobRow
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Say the one thing that would help most, what to do about it, and where that is safe the line for the script."""

    sentence: str
    advice: str
    suggestion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayView:
    """Hold what is shown of an array."""

    states: Mapping[str, int]
    spreads: tuple[Spread, ...]
    outliers: tuple[Outlier, ...]
    recommendation: Recommendation | None


class _Number(NamedTuple):
    """Read one number of a task and say it in words."""

    label: str
    read: Callable[[JobRow], float | None]
    show: Callable[[float], str]


def used_memory_bytes(row: JobRow) -> float | None:
    """Return what a task needed at its peak."""
    return None if row.memory_bytes is None or row.memory_ratio is None else row.memory_bytes * row.memory_ratio


_NUMBERS = (
    _Number("Run time", lambda row: row.run_seconds if row.start_seconds is not None else None, format_seconds),
    _Number("CPU use", lambda row: row.cpu_ratio, format_ratio),
    _Number("Memory needed", used_memory_bytes, format_bytes),
    _Number("GPU use", lambda row: row.gpu_ratio, format_ratio),
)


def make_array_view(rows: Sequence[JobRow]) -> ArrayView:
    """Look at the tasks."""
    return ArrayView(
        states=dict(Counter(row.state for row in rows).most_common()),
        spreads=tuple(spread for number in _NUMBERS if (spread := _make_spread(number, rows)) is not None),
        outliers=tuple(outlier for number in _NUMBERS for outlier in _find_outliers(number, rows))[:MOST_OUTLIERS],
        recommendation=_recommend(rows),
    )


def _make_spread(number: _Number, rows: Sequence[JobRow]) -> Spread | None:
    known = [value for row in rows if (value := number.read(row)) is not None]
    if not known:
        return None
    lowest, highest = min(known), max(known)
    width = (highest - lowest) / BINS or 1.0
    counts = Counter(min(BINS - 1, int((value - lowest) / width)) for value in known)
    return Spread(
        label=number.label,
        known=len(known),
        lowest=number.show(lowest),
        median=number.show(statistics.median(known)),
        highest=number.show(highest),
        bins=tuple(counts[index] for index in range(BINS)),
    )


def _find_outliers(number: _Number, rows: Sequence[JobRow]) -> list[Outlier]:
    """Find tasks beyond one and a half times the spread of the middle half, as box plots have it."""
    known = [(value, row) for row in rows if row.end_seconds is not None and (value := number.read(row)) is not None]
    if len(known) < _FEWEST_FOR_OUTLIERS:
        return []
    lower, middle, upper = statistics.quantiles((value for value, _ in known), n=4)
    # Where all are nearly equal, a hair's breadth is no outlier.
    reach = max(1.5 * (upper - lower), 0.1 * abs(middle))
    far = [(value, row) for value, row in known if value < lower - reach or value > upper + reach]
    far.sort(key=lambda pair: -abs(pair[0] - middle))
    return [
        Outlier(row=row, why=f"{number.label}: {number.show(value)}, where the median is {number.show(middle)}")
        for value, row in far
    ]


def _recommend(rows: Sequence[JobRow]) -> Recommendation | None:
    """Choose the one change that helps most: first what ended tasks early, then idle cores, memory and time.

    Only tasks that did their work are examples of what a task needs. What is known of the others still counts: they
    needed that much at least.
    """
    examples = [row for row in rows if row.state == "COMPLETED" and row.run_seconds >= _LEAST_EXAMPLE_SECONDS]
    if (too_little := _find_too_little(rows)) is not None or not examples:
        return too_little
    for recommend in (_recommend_cores, _recommend_memory, _recommend_time):
        if (recommendation := recommend(rows, examples)) is not None:
            return recommendation
    return None


def _find_too_little(rows: Sequence[JobRow]) -> Recommendation | None:
    """Tell of tasks that ended because they had asked for too little."""
    out_of_memory = sum(row.state == "OUT_OF_MEMORY" or "oom_kill" in row.rules for row in rows)
    out_of_time = sum(row.state == "TIMEOUT" for row in rows)
    for count, words in ((out_of_memory, "ran out of memory"), (out_of_time, "were ended by their time limit")):
        if count:
            return Recommendation(
                sentence=f"{count:,} of {format_some(len(rows), 'task')} {words}.",
                advice="The report of one of them tells what to ask for.",
            )
    return None


def _recommend_cores(rows: Sequence[JobRow], examples: Sequence[JobRow]) -> Recommendation | None:
    """Tell of idle cores, without a number to ask for: a row has the mean, and that would slow down busy phases."""
    if any(row.cpu_ratio is None for row in examples) or any(row.gpus or row.nodes > 1 for row in rows):
        return None
    busy = max(row.cpu_ratio * row.cpus for row in rows if row.cpu_ratio is not None)
    asked = max(row.cpus for row in rows)
    if asked < 2 or busy > asked / 2:
        return None
    return Recommendation(
        sentence=f"On average over its run, no task kept more than {busy:.1f} of its {asked:,} cores busy.",
        advice="The report of a task tells how many were busy at once, and what to ask for.",
    )


def _recommend_memory(rows: Sequence[JobRow], examples: Sequence[JobRow]) -> Recommendation | None:
    if any(used_memory_bytes(row) is None for row in examples) or any(row.nodes > 1 for row in rows):
        return None
    used = max(value for row in rows if (value := used_memory_bytes(row)) is not None)
    asked = max(row.memory_bytes for row in rows if row.memory_bytes is not None)
    needed = used * _MARGIN
    if needed > asked / 2:
        return None
    text = f"{math.ceil(needed / _GIB)}G" if needed >= 4 * _GIB else f"{max(100, math.ceil(needed / _MIB))}M"
    return Recommendation(
        sentence=f"No task needed more than {format_bytes(used)} of the {format_bytes(asked)} that it asked for.",
        advice=_say_examples(examples),
        suggestion=f"#SBATCH --mem={text}",
    )


def _recommend_time(rows: Sequence[JobRow], examples: Sequence[JobRow]) -> Recommendation | None:
    limits = [row.run_seconds / row.time_ratio for row in rows if row.time_ratio]
    longest = max(row.run_seconds for row in rows)
    if not limits or longest * _MARGIN > max(limits) / 3:
        return None
    minutes = max(10, math.ceil(longest * _MARGIN / 60))
    hours = f"{minutes // 60:02}:{minutes % 60:02}:00"
    return Recommendation(
        sentence=f"The longest task ran for {format_seconds(longest)}, its limit was {format_seconds(max(limits))}.",
        advice=_say_examples(examples),
        suggestion=f"#SBATCH --time={hours}",
    )


def _say_examples(examples: Sequence[JobRow]) -> str:
    """Say how many tasks a suggestion rests on, so that nobody takes one for all."""
    tasks, least = format_some(len(examples), "task"), format_seconds(_LEAST_EXAMPLE_SECONDS)
    return f"With a fifth to spare, this is enough for {tasks} that completed after {least} or more:"
