# SPDX-License-Identifier: Apache-2.0
"""Turn text into numbers and back: durations and sizes as people and Slurm write them."""

from __future__ import annotations

import math
import re

DAY_SECONDS = 86_400

_DURATION = re.compile(r"(\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)([KMGTPE]?)(?:i?B)?\Z", re.IGNORECASE)


def parse_seconds(given: object) -> float:
    """Read a duration: a number of seconds, or parts with units such as ``1h30m``."""
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
    """Read a duration longer than nothing."""
    seconds = parse_seconds(given)
    if seconds <= 0:
        raise ValueError(f"{given!r} is not longer than 0 seconds")
    return seconds


def parse_bytes(text: str, *, default_unit: str = "") -> int:
    """Read a size; K, M, G, T, P and E are powers of 1024, as everywhere in Slurm."""
    match = _SIZE.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a size such as 512M or 4G")
    unit = (match[2] or default_unit).upper()
    return round(float(match[1]) * (1 << 10 * " KMGTPE".index(unit or " ")))


def _bounded(seconds: float, given: object) -> float:
    if not 0 <= seconds <= 10 * 365 * DAY_SECONDS:
        raise ValueError(f"{given!r} is not between 0 seconds and 10 years")
    return seconds
