# SPDX-License-Identifier: Apache-2.0
"""Format numbers for people: sizes, counts, ratios, durations.

::

    819 MiB    1.5 GiB    2 h 3 min    50 %    3 nodes    not measured
"""

from __future__ import annotations

import math

NOT_MEASURED = "not measured"

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def round_number(value: float) -> float:
    """Round a number to three decimals or four digits, whichever is more; whole numbers stay exact."""
    if value == 0 or not math.isfinite(value) or value == math.trunc(value):
        return value
    return round(value, max(3, 3 - math.floor(math.log10(abs(value)))))


def format_bytes(amount: float | None) -> str:
    """Format a size with a binary unit and three digits."""
    if amount is None or not math.isfinite(amount):
        return NOT_MEASURED
    power = 0
    # 1023.6 would be rounded to 1024; use the next unit instead.
    while power < len(_SIZES) - 1 and abs(amount) >= 1023.5:
        amount /= 1024
        power += 1
    return f"{format_count(amount)} {_SIZES[power]}"


def format_rate(amount: float | None) -> str:
    """Format bytes per second."""
    return NOT_MEASURED if amount is None or not math.isfinite(amount) else f"{format_bytes(amount)}/s"


def format_count(amount: float | None) -> str:
    """Format a number with three digits, or a whole number with all digits."""
    if amount is None or not math.isfinite(amount):
        return NOT_MEASURED
    if abs(amount) >= 100 or amount == round(amount):
        return f"{amount:,.0f}"
    return f"{amount:.{1 if abs(amount) >= 10 else 2}f}".rstrip("0").rstrip(".")


def format_ratio(ratio: float | None) -> str:
    """Format a ratio as a percentage; tiny values are not shown as zero."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_MEASURED
    percent = ratio * 100
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:,.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"


def format_seconds(seconds: float | None) -> str:
    """Format a duration in its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    if 0 < seconds < 9.95:
        return f"{format_count(round(seconds, 1))} s" if seconds >= 0.05 else "under 0.1 s"
    whole = max(0, round(seconds))
    # Round to the smaller unit first, to avoid 59 min 60 s.
    unit = _HOUR if whole >= _DAY else _MINUTE if whole >= _HOUR else 1
    whole = (whole + unit // 2) // unit * unit
    parts = (
        (whole // _DAY, "d"), (whole % _DAY // _HOUR, "h"), (whole % _HOUR // _MINUTE, "min"), (whole % _MINUTE, "s")
    )  # fmt: skip
    return " ".join(f"{count:,} {name}" for count, name in parts if count) or "0 s"


def format_some(amount: float, one: str, many: str = "") -> str:
    """Format a count with its noun: 1 node, 2 nodes."""
    return f"{format_count(amount)} {one if amount == 1 else many or one + 's'}"
