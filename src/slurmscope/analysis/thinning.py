# SPDX-License-Identifier: Apache-2.0
"""Thin curves of old jobs: fewer points and fewer digits.

A point becomes the mean of those that it replaces; of memory it becomes the highest, so that a peak near the limit is
still seen. What was not measured in any of them stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from slurmscope.model.report import Chart, ChartLine, HeatMap

DIGITS = 4
MEMORY_UNIT = "bytes"

Combine = Callable[[Sequence[float]], float]


def thin_chart(chart: Chart, points: int) -> Chart:
    """Return a chart with at most so many points; each is in the middle of those that it replaces."""
    size = _group_size(len(chart.times), points)
    combine = max if chart.unit == MEMORY_UNIT else fmean
    times = tuple(round(fmean(group), 1) for group in _groups(chart.times, size))
    return replace(chart, times=times, lines=_thin_lines(chart.lines, size, combine))


def thin_heat_map(heat_map: HeatMap, points: int) -> HeatMap:
    """Return a heat map with at most so many columns; each begins with the first that it replaces."""
    size = _group_size(len(heat_map.times), points)
    times = tuple(group[0] for group in _groups(heat_map.times, size))
    return replace(heat_map, times=times, rows=_thin_lines(heat_map.rows, size, fmean))


def _group_size(count: int, points: int) -> int:
    return max(1, -(-count // max(1, points)))


def _groups(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[begin : begin + size] for begin in range(0, len(values), size)]


def _thin_lines(lines: Sequence[ChartLine], size: int, combine: Combine) -> tuple[ChartLine, ...]:
    return tuple(replace(line, values=_thin_values(line.values, size, combine)) for line in lines)


def _thin_values(values: Sequence[float | None], size: int, combine: Combine) -> tuple[float | None, ...]:
    thinned: list[float | None] = []
    for begin in range(0, len(values), size):
        known = [value for value in values[begin : begin + size] if value is not None]
        thinned.append(float(f"{combine(known):.{DIGITS}g}") if known else None)
    return tuple(thinned)
