# SPDX-License-Identifier: Apache-2.0
"""Say numbers as people read them: sizes, durations, shares, dates.

::

    819 MiB    1.5 GiB    2 h 3 min    50 %    2026-03-01 08:15:30 UTC    not measured
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from slurmscope.log import escape

NOT_MEASURED = "not measured"
TEXT_LIMIT = 1000

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show(text: str, limit: int = TEXT_LIMIT) -> str:
    """Make a name of a job, user or file safe to show: one line, and whatever does not print is spelled out."""
    return escape(text, limit)


def format_bytes(amount: float | None) -> str:
    """Say a size with a binary unit and three digits."""
    if amount is None or not math.isfinite(amount):
        return NOT_MEASURED
    power = 0
    # 1023.6 would be written as 1024: then the next unit reads better.
    while power < len(_SIZES) - 1 and abs(amount) >= 1023.5:
        amount /= 1024
        power += 1
    return f"{format_count(amount)} {_SIZES[power]}"


def format_rate(amount: float | None) -> str:
    """Say how many bytes a second."""
    return NOT_MEASURED if amount is None or not math.isfinite(amount) else f"{format_bytes(amount)}/s"


def format_count(amount: float | None) -> str:
    """Say a number with three digits, or a whole one with all of its digits."""
    if amount is None or not math.isfinite(amount):
        return NOT_MEASURED
    if abs(amount) >= 100 or amount == round(amount):
        return f"{amount:,.0f}"
    return f"{amount:.{1 if abs(amount) >= 10 else 2}f}".rstrip("0").rstrip(".")


def format_ratio(ratio: float | None) -> str:
    """Say a share as a percentage; what is tiny is not called zero."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_MEASURED
    percent = ratio * 100
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:,.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"


def format_seconds(seconds: float | None) -> str:
    """Say a duration in its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    if 0 < seconds < 9.95:
        return f"{format_count(round(seconds, 1))} s" if seconds >= 0.05 else "under 0.1 s"
    whole = max(0, round(seconds))
    # Rounding to the smaller unit comes first, so that 59 min 60 s cannot be.
    unit = _HOUR if whole >= _DAY else _MINUTE if whole >= _HOUR else 1
    whole = (whole + unit // 2) // unit * unit
    parts = (
        (whole // _DAY, "d"), (whole % _DAY // _HOUR, "h"), (whole % _HOUR // _MINUTE, "min"), (whole % _MINUTE, "s")
    )  # fmt: skip
    return " ".join(f"{count:,} {name}" for count, name in parts if count) or "0 s"


def format_elapsed(seconds: float) -> str:
    """Say a duration as sacct does: [days-]hours:minutes:seconds."""
    whole = max(0, int(seconds))
    days = f"{whole // _DAY}-" if whole >= _DAY else ""
    return f"{days}{whole % _DAY // _HOUR:02}:{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"


def format_time(seconds: float | None) -> str:
    """Say a moment, given in seconds since 1970, in UTC."""
    moment = as_datetime(seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "unknown"


def format_day(seconds: float | None) -> str:
    """Say a day, in UTC."""
    moment = as_datetime(seconds)
    return f"{moment:%Y-%m-%d}" if moment else "unknown"


def as_datetime(seconds: float | None) -> datetime | None:
    """Return a moment in UTC; None when there is none that a calendar knows."""
    try:
        return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


def format_some(amount: float, one: str, many: str = "") -> str:
    """Say how many of something: 1 node, 2 nodes."""
    return f"{format_count(amount)} {one if amount == 1 else many or one + 's'}"
