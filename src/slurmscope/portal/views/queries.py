# SPDX-License-Identifier: Apache-2.0
"""Read what people ask for in the query part of an address, and write it back into links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from urllib.parse import urlencode

from slurmscope.model.archive import JobFilter, PagePosition
from slurmscope.model.finding import Severity
from slurmscope.units import DAY_SECONDS

PAGE_ROWS = 50
MAX_DAYS = 366

SHOWN_ID = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?\Z", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

_TEXT_LIMIT = 200
_TEXT_KEYS = ("cluster", "user", "account", "partition", "state", "name", "rule")
_KEY = re.compile(r"([0-9]{1,10})-([0-9]{1,10})\Z", re.ASCII)


class BadQuery(Exception):
    """Tell in one sentence what in the address cannot be understood."""


def parse_filter(given: Mapping[str, str]) -> JobFilter:
    """Read the filter of a job list; what is empty or not there narrows nothing."""
    texts = {key: _parse_text(given, key) for key in _TEXT_KEYS}
    texts["state"] = texts["state"].upper()
    return JobFilter(
        **texts,
        worst=_parse_severity(given.get("worst", "")),
        array_job_id=_parse_number(given, "array"),
        since_seconds=_parse_day(given, "since"),
        until_seconds=_parse_last_day(given),
        is_running=_parse_choice(given, "running"),
    )


def render_query(wanted: JobFilter, **further: str | int | None) -> str:
    """Write a filter as the query part of a link, a question mark before it; the reverse of ``parse_filter``."""
    until = wanted.until_seconds
    pairs: dict[str, str | int | None] = {
        **{key: getattr(wanted, key) for key in _TEXT_KEYS},
        "worst": wanted.worst.value if wanted.worst else None,
        "array": wanted.array_job_id,
        "since": render_day(wanted.since_seconds),
        "until": render_day(until - DAY_SECONDS) if until is not None else None,
        "running": {True: "yes", False: "no", None: None}[wanted.is_running],
        **further,
    }
    kept = {key: str(value) for key, value in pairs.items() if value not in {None, ""}}
    return f"?{urlencode(kept)}" if kept else ""


def parse_key(text: str) -> PagePosition | None:
    """Read where the page before ended."""
    if not text:
        return None
    match = _KEY.match(text)
    if not match:
        raise BadQuery("The address does not say where this page of the list begins: start again from the first page.")
    return PagePosition(int(match[1]), int(match[2]))


def render_key(key: PagePosition | None) -> str | None:
    """Write where a page ended."""
    return f"{key.submit_seconds}-{key.job_id}" if key else None


def parse_days(given: Mapping[str, str], default: int = 30) -> int:
    """Read a number of days, at most a year: sums over more would hold up everybody else."""
    days = _parse_number(given, "days")
    if days is None:
        return default
    if not 1 <= days <= MAX_DAYS:
        raise BadQuery(f"The number of days must be between 1 and {MAX_DAYS}.")
    return days


def parse_format(given: Mapping[str, str]) -> str:
    """Read in which form a table is wanted."""
    form = given.get("format", "") or "html"
    if form not in {"html", "csv", "json"}:
        raise BadQuery("A table can be had as html, csv or json.")
    return form


def render_day(seconds: int | None) -> str | None:
    """Write a time as its day in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _parse_text(given: Mapping[str, str], key: str) -> str:
    text = given.get(key, "").strip()
    if len(text) > _TEXT_LIMIT or not text.isprintable():
        raise BadQuery(f"The text to look for in '{key}' is too long or has characters that cannot be printed.")
    return text


def _parse_number(given: Mapping[str, str], key: str) -> int | None:
    text = given.get(key, "").strip()
    if not text:
        return None
    if not NUMBER.match(text):
        raise BadQuery(f"'{key}' must be a whole number.")
    return int(text)


def _parse_severity(text: str) -> Severity | None:
    if text and text not in set(Severity):
        raise BadQuery("The severity must be critical, warning or info.")
    return Severity(text) if text else None


def _parse_choice(given: Mapping[str, str], key: str) -> bool | None:
    choices = {"": None, "yes": True, "no": False}
    if (text := given.get(key, "")) not in choices:
        raise BadQuery(f"'{key}' must be yes or no.")
    return choices[text]


def _parse_day(given: Mapping[str, str], key: str) -> int | None:
    text = given.get(key, "").strip()
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not 1970 <= day.year <= 2100:
        raise BadQuery(f"'{key}' must be a day such as 2026-03-31.")
    return int(datetime.combine(day, time(), UTC).timestamp())


def _parse_last_day(given: Mapping[str, str]) -> int | None:
    """Read the last day that is wanted: the filter's end is the midnight behind it."""
    seconds = _parse_day(given, "until")
    return None if seconds is None else seconds + DAY_SECONDS
