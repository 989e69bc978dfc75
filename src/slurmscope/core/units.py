# SPDX-License-Identifier: Apache-2.0
"""Parse and format durations, sizes and other numbers as people and Slurm write them: ``1h30m``, ``10GiB``.

::

    819 MiB    1.5 GiB    2 h 3 min    50 %    3 nodes    not measured
"""

from __future__ import annotations

import math
import re

HOUR_SECONDS = 3600
DAY_SECONDS = 86_400
MIB, GIB = 1 << 20, 1 << 30

_DURATION = re.compile(r"(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WHOLE_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIME_LIMIT = re.compile(
    r"(?:(?P<days>\d{1,5})-(?P<day_hours>\d{1,6})(?::(?P<day_minutes>\d{1,6})(?::(?P<day_seconds>\d{1,6}))?)?"
    r"|(?:(?P<hours>\d{1,6}):(?=\d+:))?(?P<minutes>\d{1,7})(?::(?P<seconds>\d{1,6}))?)\Z",
    re.ASCII,
)
_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)([KMGTPE]?)(?:i?B)?\Z", re.IGNORECASE)


def parse_seconds(given: object) -> float:
    """Parse a duration: a number of seconds, or parts with units such as ``1h30m``."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return _bounded(float(given), given)
    text = given.strip() if isinstance(given, str) else ""
    parts = _DURATION.findall(text)
    written = "".join(number + unit for number, unit in parts)
    has_bare_number = any(not unit for _, unit in parts)
    if not parts or written != text or (has_bare_number and len(parts) > 1):
        raise ValueError(f"{given!r} is not a duration such as 10, 30s or 5m")
    return _bounded(math.fsum(float(number) * _SECONDS[unit or "s"] for number, unit in parts), given)


def parse_positive_seconds(given: object) -> float:
    seconds = parse_seconds(given)
    if seconds <= 0:
        raise ValueError(f"{given!r} is not a duration greater than 0s")
    return seconds


def parse_bytes(text: str, *, default_unit: str = "") -> int:
    """Parse a size; K, M, G, T, P and E are powers of 1024, as everywhere in Slurm."""
    match = _SIZE.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a size such as 512M or 4G")
    unit = (match[2] or default_unit).upper()
    return round(float(match[1]) * (1 << 10 * " KMGTPE".index(unit or " ")))


def parse_time_limit(text: str) -> int:
    """Parse a time limit as sbatch takes it: 90, 90:00, 1:30:00, 1-12, 1-12:00 or 1-12:00:00; 90 are minutes."""
    match = _TIME_LIMIT.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a time limit such as 90, 1:30:00 or 1-12:00:00")
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    hours, minutes = part["hours"] + part["day_hours"], part["minutes"] + part["day_minutes"]
    seconds = part["seconds"] + part["day_seconds"]
    return DAY_SECONDS * part["days"] + 3600 * hours + 60 * minutes + seconds


def format_duration(seconds: float) -> str:
    """Format a duration so that :func:`parse_seconds` returns the same number: ``14d``, ``1h30m``, ``0.5s``."""
    if not float(seconds).is_integer():
        # Imported here: node agents do without. repr may use an exponent, which parse_seconds does not accept.
        from decimal import Decimal

        return f"{Decimal(repr(seconds)):f}s"
    rest, parts = int(seconds), ""
    for unit, unit_seconds in _WHOLE_UNITS:
        count, rest = divmod(rest, unit_seconds)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


def format_size(size_bytes: float) -> str:
    """Format a size so that :func:`parse_bytes` returns the same number: ``10GiB``, ``1536MiB``, ``5000000B``."""
    if not float(size_bytes).is_integer():
        return format_number(size_bytes)
    whole, power = int(size_bytes), 0
    while whole and whole % 1024 == 0 and power < len(_BINARY_UNITS) - 1:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_UNITS[power]}"


def format_number(number: float) -> str:
    """Format a number with all of its digits, without a decimal point when it is whole."""
    return repr(int(number) if float(number).is_integer() else number)


def _bounded(seconds: float, given: object) -> float:
    if not 0 <= seconds <= 10 * 365 * DAY_SECONDS:
        raise ValueError(f"{given!r} is not a duration between 0s and 10 years")
    return seconds


NOT_MEASURED = "not measured"
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
    while power < len(_BINARY_UNITS) - 1 and abs(amount) >= 1023.5:
        amount /= 1024
        power += 1
    return f"{format_count(amount)} {_BINARY_UNITS[power]}"


def format_rate(amount: float | None) -> str:
    return NOT_MEASURED if amount is None or not math.isfinite(amount) else f"{format_bytes(amount)}/s"


def format_count(amount: float | None) -> str:
    """Format a number with three digits, or a whole number with all digits."""
    if amount is None or not math.isfinite(amount):
        return NOT_MEASURED
    if abs(amount) >= 100 or amount == round(amount):
        return f"{amount:,.0f}"
    return f"{amount:.{1 if abs(amount) >= 10 else 2}f}".rstrip("0").rstrip(".")


def format_hours(seconds: float | None) -> str:
    """Format hours of cores or GPUs; a minute of one core is not shown as zero."""
    hours = None if seconds is None else seconds / HOUR_SECONDS
    return "under 0.01" if hours is not None and 0 < hours < 0.005 else format_count(hours)


def format_ratio(ratio: float | None) -> str:
    """Format a ratio as a percentage; tiny values are not shown as zero."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_MEASURED
    percent = ratio * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:,.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"


def format_energy(joules: float | None) -> str:
    """Format as people pay for it: ``12.4 kWh``."""
    if joules is None or not math.isfinite(joules):
        return NOT_MEASURED
    amount, unit = (joules / 3.6e6, "kWh") if joules >= 3.6e6 else (joules / 3600, "Wh")
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def format_power(watts: float | None) -> str:
    return NOT_MEASURED if watts is None or not math.isfinite(watts) else f"{format_count(watts)} W"


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
