# SPDX-License-Identifier: Apache-2.0
"""Show times on pages in the time zone of the site; a script shows them in that of the browser.

Every time is a ``<time>`` element with the moment itself, so that the script does not have to parse text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from markupsafe import Markup, escape

from slurmscope.reports.formatting import as_datetime, show

ZONE_COOKIE = "slurmscope-time-zone"
"""Cookie in which the script keeps the name of the chosen time zone, for pictures and pages without scripts."""
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,2}\Z", re.ASCII)

FULL, SHORT = "full", "short"
_FORMATS = {FULL: "%Y-%m-%d %H:%M:%S %Z", SHORT: "%Y-%m-%d %H:%M"}
_IN_TEXT = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) UTC\b", re.ASCII)


def make_time_filters(zone_name: str) -> dict[str, Callable[..., object]]:
    """Return the template filters for times in this zone: whole, without seconds, and times within a text."""
    zone = load_zone(zone_name)
    return {
        "time": lambda seconds: format_moment(seconds, zone),
        "short_time": lambda seconds: format_moment(seconds, zone, SHORT),
        "timed": lambda text: mark_times(text, zone),
    }


def load_zone(name: str) -> tzinfo:
    """Return a time zone; UTC needs no files of the system."""
    return UTC if name == "UTC" else ZoneInfo(name)


def choose_zone(given: str, site: str) -> str:
    """Return the zone that a browser names, or that of the site if this system does not know it."""
    if not _ZONE.match(given):
        return site
    try:
        load_zone(given)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return site
    return given


def format_moment(seconds: float | None, zone: tzinfo, form: str = FULL) -> Markup:
    """Return a Unix time as an element with its text in the zone."""
    moment = as_datetime(seconds)
    return Markup("unknown") if moment is None else _make_element(moment, zone, form)


def mark_times(text: str, zone: tzinfo) -> Markup:
    """Return text in which every time in UTC is such an element; all else is escaped."""
    made, last = Markup(), 0
    shown = show(text, 8000)
    for match in _IN_TEXT.finditer(shown):
        try:
            moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        except ValueError:  # such as the 31st of February, in a name
            continue
        made += escape(shown[last : match.start()]) + _make_element(moment, zone, FULL)
        last = match.end()
    return made + escape(shown[last:])


def _make_element(moment: datetime, zone: tzinfo, form: str) -> Markup:
    try:
        text = moment.astimezone(zone).strftime(_FORMATS[form])
    except OverflowError:  # the last hours of the year 9999
        text = moment.strftime(_FORMATS[form])
    iso = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(iso, form, text)
