# SPDX-License-Identifier: Apache-2.0
"""Format times and names for people.

::

    2026-03-01 08:15:30 UTC    1-02:03:04    unknown
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from slurmscope.log import escape

TEXT_LIMIT = 1000

_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show(text: str, limit: int = TEXT_LIMIT) -> str:
    """Make a name safe to show: one line, with unprintable characters escaped."""
    return escape(text, limit)


def format_elapsed(seconds: float) -> str:
    """Format a duration as sacct does: [days-]hours:minutes:seconds."""
    whole = max(0, int(seconds))
    days = f"{whole // _DAY}-" if whole >= _DAY else ""
    return f"{days}{whole % _DAY // _HOUR:02}:{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"


def format_time(seconds: float | None) -> str:
    """Format a Unix time as date and time in UTC."""
    moment = as_datetime(seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "unknown"


def format_day(seconds: float | None) -> str:
    """Format a Unix time as date in UTC."""
    moment = as_datetime(seconds)
    return f"{moment:%Y-%m-%d}" if moment else "unknown"


def as_datetime(seconds: float | None) -> datetime | None:
    """Convert a Unix time to UTC; None for None and for times outside of the calendar."""
    try:
        return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
