# SPDX-License-Identifier: Apache-2.0
"""Compute the points of a curve from the samples of one series.

The span is cut into steps of equal length; a point is at the end of its step. Each point is made of the samples in
its window, which is as long as the step but never shorter than :data:`WINDOW_INTERVALS` intervals of recording, so
that one missed sample leaves no hole. Windows are open on their left and closed on their right, as PromQL's are; none
reaches beyond the span, because a requeued job has the same number.

Growth is counted from the last sample before the window, so that nothing between two windows is lost. That sample may
be one window older, not more: growth over a long silence belongs to no step.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.model.series import Aggregation

WINDOW_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """Cut a span into steps of ``step_seconds``; the last one may be shorter."""

    start_seconds: float
    end_seconds: float
    step_seconds: float
    window_seconds: float
    count: int

    def end_of(self, index: int) -> float:
        """Return the end of a step, which is the time of its point."""
        return min(self.start_seconds + self.step_seconds * (index + 1), self.end_seconds)

    def window_start_of(self, index: int) -> float:
        """Return where the window of a point begins; it may lie before the span."""
        return self.start_seconds + self.step_seconds * (index + 1) - self.window_seconds


class Window(NamedTuple):
    """Name samples by their places: ``begin`` to before ``end``; growth counts from ``base``."""

    base: int
    begin: int
    end: int


def plan_steps(start_seconds: float, end_seconds: float, *, points: int, interval_seconds: float) -> Steps:
    """Cut a span into at most ``points`` steps of whole seconds, none shorter than the interval."""
    length = max(0.0, end_seconds - start_seconds)
    step = max(1, math.ceil(max(length / max(1, points), interval_seconds)))
    window = max(step, WINDOW_INTERVALS * interval_seconds)
    return Steps(start_seconds, end_seconds, step, window, math.ceil(length / step))


def find_windows(times: Sequence[float], steps: Steps) -> list[Window]:
    """Return the window of each step over rising times."""
    first, found = bisect_left(times, steps.start_seconds), []
    for index in range(steps.count):
        start = steps.window_start_of(index)
        begin = max(first, bisect_right(times, start, first))
        end = bisect_right(times, steps.end_of(index), begin)
        has_base = begin > first and times[begin - 1] > start - steps.window_seconds
        found.append(Window(begin - 1 if has_base else begin, begin, end))
    return found


def make_points(
    times: Sequence[float], values: Sequence[float], windows: Sequence[Window], how: Aggregation
) -> list[float | None]:
    """Return one point for each window, None where nothing was measured; a counter's values never fall."""
    if how is Aggregation.MAX:
        return [max(values[begin:end]) if end > begin else None for _, begin, end in windows]
    if how is Aggregation.TOTAL:
        return [values[end - 1] if end > begin else None for _, begin, end in windows]
    if how is Aggregation.MEAN:
        return [sum(values[begin:end]) / (end - begin) if end > begin else None for _, begin, end in windows]
    return [
        (values[end - 1] - values[base]) / (times[end - 1] - times[base]) if end - 1 > base else None
        for base, _, end in windows
    ]
