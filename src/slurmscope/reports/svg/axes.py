# SPDX-License-Identifier: Apache-2.0
"""Choose round marks for the axes of a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import NamedTuple

from slurmscope.figures import format_bytes, format_count, format_rate, format_ratio
from slurmscope.reports.formatting import to_zone

_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14, 28, 91, 182, 364)),
)


class Mark(NamedTuple):
    """Hold one mark of an axis."""

    value: float
    text: str


def make_value_marks(highest: float, unit: str, *, count: int = 5) -> tuple[Mark, ...]:
    """Return marks from 0 to at least the highest value; bytes are marked in powers of 1024."""
    highest = highest if 1e-9 < highest < 1e30 else 1.0
    base = 1.0
    if unit in {"bytes", "bytes/s"}:
        base = 1024.0 ** min(6, int(math.log(highest, 1024))) if highest >= 1024 else 1.0
    step = _round_up(highest / base / count) * base
    if unit in {"bytes", "count"}:
        step = max(1.0, step)
    steps = math.ceil(highest / step - 1e-9)
    return tuple(Mark(index * step, format_value(index * step, unit)) for index in range(steps + 1))


def make_time_marks(first: float, last: float, *, count: int = 8, zone: tzinfo = UTC) -> tuple[Mark, ...]:
    """Return marks within a span of seconds since 1970, at round times of the day in a time zone."""
    shortest = (last - first) / max(1, count)
    step = next((step for step in _TIME_STEPS if step >= shortest), None)
    if step is None or not (math.isfinite(first) and last > first):
        return ()
    # Where the clock changes within the span, marks stay as far apart as they are.
    offset = _offset_seconds(first, zone)
    start, end = math.ceil((first + offset) / step), math.floor((last + offset) / step)
    times = (index * step - offset for index in range(start, end + 1))
    return tuple(Mark(time, _format_mark(time, step, zone)) for time in times)


def _offset_seconds(seconds: float, zone: tzinfo) -> int:
    moment = to_zone(seconds, zone)
    offset = moment.utcoffset() if moment else None
    return round(offset.total_seconds()) if offset else 0


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "bytes/s":
        return format_rate(value)
    return format_ratio(value) if unit == "ratio" else format_count(value)


def find_highest(rows: Sequence[Sequence[float | None]]) -> float:
    """Return the highest value that was measured, 0 when there is none."""
    return max((value for row in rows for value in row if value is not None and math.isfinite(value)), default=0.0)


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, … with any power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= value * (1 - 1e-9))


def _format_mark(seconds: int, step: int, zone: tzinfo) -> str:
    moment = to_zone(seconds, zone)
    if moment is None:
        return ""
    if step >= _DAY:
        return f"{moment:%Y-%m-%d}" if step > 28 * _DAY else f"{moment:%m-%d}"
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment:%m-%d}"
    return f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}"
