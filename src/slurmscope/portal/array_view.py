# SPDX-License-Identifier: Apache-2.0
"""Look at all tasks of an array together: how they spread, which ones stand out, what would fit them all."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.figures import format_bytes, format_ratio, format_seconds
from slurmscope.model.archive import JobRow

BINS = 12
MOST_OUTLIERS = 20
_FEWEST_FOR_OUTLIERS = 8
_MARGIN = 1.2
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
    """Say the one thing that would help most, as a sentence and a line for the job script."""

    sentence: str
    suggestion: str


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
    """Choose the one change that frees most: idle cores first, then memory, then time."""
    ended = [row for row in rows if row.end_seconds is not None and row.start_seconds is not None]
    for recommend in (_recommend_cores, _recommend_memory, _recommend_time):
        if (recommendation := recommend(ended)) is not None:
            return recommendation
    return None


def _recommend_cores(rows: Sequence[JobRow]) -> Recommendation | None:
    busy = [row.cpu_ratio * row.cpus for row in rows if row.cpu_ratio is not None]
    asked = max((row.cpus for row in rows), default=0)
    if not busy or any(row.nodes > 1 for row in rows):
        return None
    needed = max(1, math.ceil(max(busy) - 0.2))
    if needed > asked / 2:
        return None
    return Recommendation(
        sentence=f"No task kept more than {max(busy):.1f} of its {asked} cores busy.",
        suggestion=f"#SBATCH --cpus-per-task={needed}",
    )


def _recommend_memory(rows: Sequence[JobRow]) -> Recommendation | None:
    used = [value for row in rows if (value := used_memory_bytes(row)) is not None]
    asked = max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=0)
    if not used or any(row.nodes > 1 for row in rows) or max(used) * _MARGIN > asked / 2:
        return None
    needed = max(used) * _MARGIN
    text = f"{math.ceil(needed / _GIB)}G" if needed >= 4 * _GIB else f"{max(100, math.ceil(needed / _MIB))}M"
    return Recommendation(
        sentence=f"No task needed more than {format_bytes(max(used))} of the {format_bytes(asked)} that it asked for.",
        suggestion=f"#SBATCH --mem={text}",
    )


def _recommend_time(rows: Sequence[JobRow]) -> Recommendation | None:
    limits = [row.run_seconds / row.time_ratio for row in rows if row.time_ratio]
    longest = max((row.run_seconds for row in rows), default=0.0)
    if not limits or longest * _MARGIN > max(limits) / 3:
        return None
    minutes = max(10, math.ceil(longest * _MARGIN / 60))
    hours = f"{minutes // 60:02}:{minutes % 60:02}:00"
    return Recommendation(
        sentence=f"The longest task ran for {format_seconds(longest)}, its limit was {format_seconds(max(limits))}.",
        suggestion=f"#SBATCH --time={hours}",
    )
