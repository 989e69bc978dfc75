# SPDX-License-Identifier: Apache-2.0
"""Keep the samples of a run within a bound, and turn them into curves of evenly spaced points.

Samples are dense at the start of a run and sparse later. Between two samples, counters are assumed to grow evenly; of
sizes the highest sample counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from slurmscope.jobs.report import MAX_CHART_POINTS
from slurmscope.jobs.series import Series
from slurmscope.jobs.traced_run import TreeSample

MOST_SAMPLES = 1000
SHORTEST_SECONDS = 0.001
"""Unix times have a resolution of a quarter of a microsecond, too little to divide a shorter run."""


class SampleHistory:
    """Keep at most ``MOST_SAMPLES`` samples: when there are more, neighbours become one."""

    def __init__(self) -> None:
        self._samples: list[TreeSample] = []

    def add(self, sample: TreeSample) -> None:
        self._samples.append(sample)
        if len(self._samples) > MOST_SAMPLES:
            # The first and the last stay as they are: they are the start of the run and its newest totals.
            first, *middle, last = self._samples
            pairs = zip(middle[::2], middle[1::2], strict=False)
            odd = middle[-1:] if len(middle) % 2 else []
            self._samples = [first, *(_merge(*pair) for pair in pairs), *odd, last]

    def samples(self) -> tuple[TreeSample, ...]:
        return tuple(self._samples)


def _merge(earlier: TreeSample, later: TreeSample) -> TreeSample:
    return later._replace(
        resident_bytes=max(earlier.resident_bytes, later.resident_bytes),
        processes=max(earlier.processes, later.processes),
        threads=max(earlier.threads, later.threads),
    )


def make_axis(samples: Sequence[TreeSample], points: int = MAX_CHART_POINTS) -> tuple[float, ...]:
    """Return the ends of evenly spaced intervals, not more than there are samples; empty for a run too short for that.

    The times of samples never decrease.
    """
    start, end = (samples[0].time_seconds, samples[-1].time_seconds) if samples else (0.0, 0.0)
    if end - start < SHORTEST_SECONDS:
        return ()
    count = min(points, len(samples) - 1)
    return (*(start + (end - start) * index / count for index in range(1, count)), end)


def rate_curve(
    samples: Sequence[TreeSample], axis: Sequence[float], total: Callable[[TreeSample], float | None], label: str
) -> Series | None:
    """Return how fast a counter grew in each interval; None where it was not measured throughout."""
    times = [sample.time_seconds for sample in samples]
    totals = [value for sample in samples if (value := total(sample)) is not None]
    if len(totals) != len(samples) or not axis:
        return None
    at = [totals[0], *(_interpolate(times, totals, moment) for moment in axis)]
    width = axis[0] - times[0]
    rates = tuple(max(0.0, after - before) / width for before, after in pairwise(at))
    return Series((label,), tuple(axis), rates)


def size_curve(
    samples: Sequence[TreeSample], axis: Sequence[float], size: Callable[[TreeSample], float], label: str
) -> Series | None:
    """Return the highest size in each interval, or the last one known where an interval has no sample."""
    if not axis:
        return None
    values, known, index = list[float](), size(samples[0]), 0
    for moment in axis:
        inside = list[float]()
        while index < len(samples) and samples[index].time_seconds <= moment:
            inside.append(size(samples[index]))
            index += 1
        values.append(max(inside, default=known))
        known = inside[-1] if inside else known
    return Series((label,), tuple(axis), tuple(values))


def _interpolate(times: Sequence[float], totals: Sequence[float], moment: float) -> float:
    """Return a total at a moment after the first time, and not after the last."""
    after = bisect_left(times, moment)
    part = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return totals[after - 1] + (totals[after] - totals[after - 1]) * part
