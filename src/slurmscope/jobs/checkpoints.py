# SPDX-License-Identifier: Apache-2.0
"""Estimate from bursts of writing how often a job wrote a checkpoint, and when it wrote the last one.

Nothing shows what a program writes. It is taken for checkpoints when the job writes little most of the time, and much
again and again: about as much each time, and in about equal intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

MIN_CHECKPOINTS = 3
MIN_BYTES = 10e6
"""Less at once is a log or an index."""
BURST_RATIO = 0.2
"""A burst is where the job writes at more than this share of its highest rate."""
MAX_WRITING_RATIO = 0.4
"""A job that writes for a larger share of its run streams its results."""
MIN_BURSTS_RATIO = 0.8
"""The bursts have at least this share of all that is written."""
MIN_KNOWN_RATIO = 0.9
"""So much of the curve is known."""
MAX_DEVIATION = 0.25
"""Intervals and sizes differ from their medians by at most this share, but for a quarter of them."""
MOST_ODD_RATIO = 0.25


class Checkpoints(NamedTuple):
    """How often a job seems to have written a checkpoint, how long that took, and the end of the last one."""

    number: int
    interval_seconds: float
    write_seconds: float
    last_seconds: float


class _Burst(NamedTuple):
    begin: float
    end: float
    size: float


def find_checkpoints(times: Sequence[float], rates: Sequence[float | None]) -> Checkpoints | None:
    """Return the checkpoints in a curve of written bytes per second; None where there is no such pattern.

    Each rate is the mean since the time before. Where it is not known, nothing is taken for written.
    """
    points = [
        (before, time, rate)
        for (before, time), rate in zip(pairwise(times), rates[1:], strict=True)
        if rate is not None
    ]
    highest = max((rate for _, _, rate in points), default=0.0)
    bursts = [burst for burst in _bursts(points, BURST_RATIO * highest) if burst.size >= MIN_BYTES]
    if len(points) < MIN_KNOWN_RATIO * (len(times) - 1) or len(bursts) < MIN_CHECKPOINTS:
        return None
    writing = sum(burst.end - burst.begin for burst in bursts)
    written = sum((time - before) * rate for before, time, rate in points)
    intervals = [later.end - earlier.end for earlier, later in pairwise(bursts)]
    is_regular = _are_alike(intervals) and _are_alike([burst.size for burst in bursts])
    is_most = sum(burst.size for burst in bursts) >= MIN_BURSTS_RATIO * written
    if not is_regular or not is_most or writing > MAX_WRITING_RATIO * (times[-1] - times[0]):
        return None
    return Checkpoints(
        number=len(bursts),
        interval_seconds=median(intervals),
        write_seconds=median(burst.end - burst.begin for burst in bursts),
        last_seconds=bursts[-1].end,
    )


def _bursts(points: Sequence[tuple[float, float, float]], floor: float) -> Iterator[_Burst]:
    current: _Burst | None = None
    for before, time, rate in points:
        if rate <= floor:
            if current is not None:
                yield current
            current = None
            continue
        begin, _, size = current or _Burst(before, before, 0.0)
        current = _Burst(begin, time, size + (time - before) * rate)
    if current is not None:
        yield current


def _are_alike(values: Sequence[float]) -> bool:
    middle = median(values)
    odd = sum(abs(value - middle) > MAX_DEVIATION * middle for value in values)
    return odd <= MOST_ODD_RATIO * len(values)
