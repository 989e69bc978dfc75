# SPDX-License-Identifier: Apache-2.0
"""Extract from a curve what its mean does not show: its peak, an idle end, growth."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from slurmscope.analysis.alignment import AlignedValues

MIDDLE = (0.4, 0.6)
END = (0.9, 1.0)

STOPPED_CORES = 0.05
STOPPED_RATIO = 0.01
"""A job is idle when it keeps less than this share of its cores busy, or of a small job less than 1/20 core.

A share of the peak would be wrong: a program that continues on one core after a parallel phase is not idle.
"""


def peak(values: AlignedValues) -> float | None:
    """Return the highest value; None when there is none."""
    return max((value for value in values if value is not None), default=None)


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
