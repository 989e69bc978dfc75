# SPDX-License-Identifier: Apache-2.0
"""Format times and names for people.

::

    2026-03-01 08:15:30 UTC    1-02:03:04    unknown
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from slurmscope.core.log import escape

TEXT_LIMIT = 1000

_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LabelledText(NamedTuple):
    """One labelled line of a report."""

    label: str
    text: str


def show(text: str, limit: int = TEXT_LIMIT) -> str:
    """Make a name safe to show: one line, with unprintable characters escaped."""
    return escape(text, limit)


def format_elapsed(seconds: float) -> str:
    """Format a duration as sacct does: [days-]hours:minutes:seconds."""
    whole = max(0, int(seconds))
    days = f"{whole // _DAY}-" if whole >= _DAY else ""
    return f"{days}{whole % _DAY // _HOUR:02}:{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"


def format_time(seconds: float | None, zone: tzinfo | None = UTC) -> str:
    """Format a Unix time as date and time with the name of the time zone; ``zone`` None is that of this host."""
    moment = in_zone(seconds, zone)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}" if moment else "unknown"


def in_zone(seconds: float | None, zone: tzinfo | None = UTC) -> datetime | None:
    """Convert a Unix time to a time zone; None for None and for times outside of the calendar."""
    moment = as_datetime(seconds)
    try:
        return moment.astimezone(zone) if moment else None
    except (OverflowError, ValueError, OSError):
        return None


def format_day(seconds: float | None) -> str:
    """Format a Unix time as date in UTC."""
    moment = as_datetime(seconds)
    return f"{moment:%Y-%m-%d}" if moment else "unknown"


def format_zoned_day(seconds: float, zone: tzinfo) -> str:
    """Format a Unix time as date, with the name of the time zone."""
    moment = in_zone(seconds, zone)
    return f"{moment:%Y-%m-%d}, {getattr(zone, 'key', 'UTC')}" if moment else "unknown"


def as_datetime(seconds: float | None) -> datetime | None:
    """Convert a Unix time to UTC; None for None and for times outside of the calendar."""
    try:
        return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
