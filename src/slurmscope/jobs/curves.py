# SPDX-License-Identifier: Apache-2.0
"""Align curves of several nodes on one time axis, and extract what a mean does not show: peak, idle end, growth."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import correlation, fmean, linear_regression, median

from slurmscope.jobs.report import MAX_CHART_POINTS
from slurmscope.jobs.series import Series

AlignedValues = tuple[float | None, ...]
Combine = Callable[[Sequence[float]], float]

MIDDLE = (0.4, 0.6)
END = (0.9, 1.0)

STOPPED_CORES = 0.05
STOPPED_RATIO = 0.01
"""A job is idle when it keeps less than this share of its cores busy, or of a small job less than 1/20 core.

A share of the peak would be wrong: a program that continues on one core after a parallel phase is not idle.
"""


@dataclass(frozen=True, slots=True)
class Aligned:
    """Curves by their labels, all on the same times."""

    times: tuple[float, ...]
    rows: Mapping[tuple[str, ...], AlignedValues]


def step_seconds(curves: Iterable[Series]) -> float | None:
    """Return the median time between two points; None when no curve has two."""
    steps = [
        median(later - earlier for earlier, later in pairwise(series.times)) if len(series.times) > 2
        else series.times[1] - series.times[0]
        for series in _different_axes(curves)
        if len(series.times) > 1
    ]  # fmt: skip
    return median(steps) if steps else None


def align(curves: Sequence[Series], *, combine: Combine = fmean, points: int = MAX_CHART_POINTS) -> Aligned:
    """Align curves on one axis of at most ``points`` points; points that coincide are combined.

    Steps of the axis are whole multiples of the median step, so that each holds equally many points.
    """
    axes = _different_axes(curves)
    if len(axes) == 1 and len(axes[0].times) <= points and _is_even(axes[0].times):
        return Aligned(axes[0].times, {series.labels: series.values for series in curves})
    if not axes:
        return Aligned((), {})
    first = min(series.times[0] for series in axes)
    last = max(series.times[-1] for series in axes)
    width = _width(last - first, step_seconds(axes) or 1.0, points)
    count = _place(last, first, width) + 1
    times = tuple(first + index * width for index in range(count))
    return Aligned(times, {series.labels: _row(series, first, width, count, combine) for series in curves})


def sum_over(aligned: Aligned) -> AlignedValues:
    """Add up all curves at each time; the sum has a gap where any curve has one."""
    return tuple(_sum(column) for column in zip(*aligned.rows.values(), strict=True))


def add(first: AlignedValues, second: AlignedValues) -> AlignedValues:
    """Add two curves of the same times; the sum has a gap where either curve has one."""
    try:
        return tuple(map(operator.add, first, second))
    except TypeError:
        return sum_over(Aligned((), {("first",): first, ("second",): second}))


def peak(values: Iterable[float | None]) -> float | None:
    """Return the highest known value; None when there is none."""
    return max((value for value in values if value is not None), default=None)


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def idle_tail_seconds(times: Sequence[float], values: AlignedValues, *, end_seconds: float, cpus: int) -> float | None:
    """Return for how long the job was idle before its end; 0 when it worked to the end.

    None when it did no work at all, or when the end of the run was not measured.
    """
    measured = [(time, value) for time, value in zip(times, values, strict=True) if value is not None]
    if len(measured) < 2:
        return None
    floor = max(STOPPED_CORES, STOPPED_RATIO * cpus)
    busy = [time for time, value in measured if value >= floor]
    reach = 2 * (times[-1] - times[0]) / (len(times) - 1)
    if not busy or end_seconds - measured[-1][0] > reach:
        return None
    tail = end_seconds - busy[-1]
    return tail if tail > reach else 0.0


START_POINTS = 5
"""A rate has its first points late: a run is measured from its start on if its first point is among so many."""


def idle_start_seconds(
    times: Sequence[float], values: AlignedValues, *, start_seconds: float, cpus: int
) -> float | None:
    """Return for how long the job was idle before it began to work; 0 when it worked from the start.

    None when it did no work at all, or when the start of the run was not measured.
    """
    measured = [(time, value) for time, value in zip(times, values, strict=True) if value is not None]
    if len(measured) < 2:
        return None
    step = (times[-1] - times[0]) / (len(times) - 1)
    floor = max(STOPPED_CORES, STOPPED_RATIO * cpus)
    busy = next((time for time, value in measured if value >= floor), None)
    if busy is None or measured[0][0] - start_seconds > START_POINTS * step:
        return None
    idle = busy - step - start_seconds
    return idle if busy > measured[0][0] and idle > 2 * step else 0.0


def growth_ratio(
    times: Sequence[float], values: AlignedValues, *, start_seconds: float, end_seconds: float
) -> float | None:
    """Return the mean of the last tenth of the run over that of its middle fifth; None when either is unknown."""
    span = end_seconds - start_seconds

    def mean_within(part: tuple[float, float]) -> float | None:
        first, last = (start_seconds + share * span for share in part)
        inside = [v for t, v in zip(times, values, strict=True) if v is not None and first <= t <= last]
        return fmean(inside) if inside else None

    middle, end = mean_within(MIDDLE), mean_within(END)
    return end / middle if middle and end is not None else None


MIN_GROWTH_POINTS = 10
MIN_RISE_RATIO = 0.1
MIN_FIT = 0.8


def growth_rate(points: Sequence[tuple[float, float]]) -> float | None:
    """Return how fast a curve rose in its second half, per second; None unless it rose steadily.

    That is by a tenth of its level or more, and along a straight line: noise has a slope too.
    """
    half = points[len(points) // 2 :]
    if len(points) < MIN_GROWTH_POINTS:
        return None
    times, values = zip(*half, strict=True)
    if times[-1] <= times[0] or min(values) == max(values):
        return None
    slope, _ = linear_regression(times, values)
    is_steady = correlation(times, values) >= MIN_FIT**0.5
    return slope if is_steady and slope * (times[-1] - times[0]) >= MIN_RISE_RATIO * fmean(values) else None


def _sum(column: AlignedValues) -> float | None:
    try:
        return math.fsum(column)  # type: ignore[arg-type]
    except TypeError:  # a gap; checking before each of a million sums would cost more
        return None


def _different_axes(curves: Iterable[Series]) -> list[Series]:
    """Return one curve for each set of times: nodes from one query share theirs."""
    return list({series.times: series for series in curves if series.times}.values())


def _is_even(times: Sequence[float]) -> bool:
    """Return whether there is no gap that a drawn line would hide."""
    if len(times) < 3:
        return True
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return max(gaps) <= 1.5 * median(gaps)


def _width(span: float, step: float, points: int) -> float:
    return step * max(1, math.ceil(span / step / max(1, points - 1) - 1e-9))


def _place(time: float, first: float, width: float) -> int:
    return math.floor((time - first) / width + 0.5)


def _row(series: Series, first: float, width: float, count: int, combine: Combine) -> AlignedValues:
    row: list[float | None] = [None] * count
    together: dict[int, list[float]] = {}
    for time, value in zip(series.times, series.values, strict=True):
        together.setdefault(_place(time, first, width), []).append(value)
    for index, values in together.items():
        row[index] = values[0] if len(values) == 1 else combine(values)
    return tuple(row)
