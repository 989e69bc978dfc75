# SPDX-License-Identifier: Apache-2.0
"""Parse the query string of a page address, and render it for links."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import NamedTuple
from urllib.parse import urlencode

from slurmscope.archive.interface import NEWEST_FIRST, JobFilter, ListOrder, PagePosition, SortColumn
from slurmscope.archive.metric_ranges import JobMetric, MetricRange, ValueKind
from slurmscope.core.units import DAY_SECONDS, format_count, format_duration, format_seconds, parse_seconds
from slurmscope.jobs.findings import LossCause
from slurmscope.jobs.rule import Severity


class BadQuery(Exception):
    """The query string is invalid; the message says why."""


_LIMIT = 40
_HINTS = {
    ValueKind.RATIO: "%",
    ValueKind.SECONDS: "such as 90s, 15m, 2h or 1d",
    ValueKind.COUNT: "",
    ValueKind.CORE_SECONDS: "core-hours",
}


class RangeField(NamedTuple):
    """One row of the filter form; texts are as the user wrote them."""

    key: str
    label: str
    hint: str
    low: str
    high: str


def parse_ranges(given: Mapping[str, str]) -> tuple[MetricRange, ...]:
    """Parse ``cpu_min`` and ``cpu_max``, and the same of other metrics."""
    found = (MetricRange(metric, _parse(given, metric, "min"), _parse(given, metric, "max")) for metric in JobMetric)
    return tuple(each for each in found if each.low is not None or each.high is not None)


def render_ranges(ranges: Iterable[MetricRange]) -> dict[str, str]:
    """Return the parameters of ranges; the reverse of ``parse_ranges``."""
    return {
        f"{each.metric.key}_{bound}": write_number(each.metric, number)
        for each in ranges
        for bound, number in (("min", each.low), ("max", each.high))
        if number is not None
    }


def make_range_fields(ranges: Iterable[MetricRange]) -> tuple[RangeField, ...]:
    """Return the rows of the filter form."""
    texts = render_ranges(ranges)
    return tuple(
        RangeField(
            metric.key,
            metric.label,
            "" if _HINTS[metric.kind] in metric.label.lower() else _HINTS[metric.kind],
            texts.get(f"{metric.key}_min", ""),
            texts.get(f"{metric.key}_max", ""),
        )
        for metric in JobMetric
    )


def describe_bound(metric: JobMetric, *, is_low: bool) -> str:
    """Describe the parameter of a bound in the documentation of the API."""
    hint = f", {_HINTS[metric.kind]}" if _HINTS[metric.kind] else ""
    return f"{metric.label}{hint}: {'at least this' if is_low else 'less than this'}."


def write_number(metric: JobMetric, number: float) -> str:
    """Write a number so that ``parse_ranges`` reads the same."""
    if metric.kind is ValueKind.SECONDS:
        return format_duration(number)
    shown = number * 100 if metric.kind is ValueKind.RATIO else number
    shown = shown / 3600 if metric.kind is ValueKind.CORE_SECONDS else shown
    return f"{round(shown, 6):.10g}"


def label_range(wanted: MetricRange) -> str:
    """Return a range as text: ``10 % to 20 %``, ``1 h or more``."""
    low, high = (None if bound is None else _label(wanted.metric, bound) for bound in (wanted.low, wanted.high))
    if low is None:
        return f"less than {high}"
    return f"{low} or more" if high is None else f"{low} to less than {high}"


def _label(metric: JobMetric, number: float) -> str:
    match metric.kind:
        case ValueKind.RATIO:
            return f"{round(number * 100):d} %"
        case ValueKind.SECONDS:
            return format_seconds(number)
        case ValueKind.CORE_SECONDS:
            return format_count(number / 3600)
        case ValueKind.COUNT:
            return format_count(number)


def _parse(given: Mapping[str, str], metric: JobMetric, bound: str) -> float | None:
    text = given.get(f"{metric.key}_{bound}", "").strip().removesuffix("%").strip()
    if not text:
        return None
    try:
        number = _parse_range_number(metric, text[:_LIMIT])
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e15:
        hint = f", {_HINTS[metric.kind]}" if _HINTS[metric.kind] else ""
        raise BadQuery(f"'{metric.key}_{bound}' must be a number{hint}.")
    return number


def _parse_range_number(metric: JobMetric, text: str) -> float:
    if metric.kind is ValueKind.SECONDS:
        return parse_seconds(text)
    number = float(text)
    if metric.kind is ValueKind.RATIO:
        return number / 100
    return number * 3600 if metric.kind is ValueKind.CORE_SECONDS else number


PAGE_ROWS = 50
MAX_IDS = 1000
MAX_DAYS = 366

SHOWN_ID = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?\Z", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

_TEXT_LIMIT = 200
_TEXT_KEYS = ("cluster", "user", "account", "partition", "state", "name", "rule", "node", "reason")
_KEY = re.compile(r"([0-9]{1,10})-([0-9]{1,10})(?:-(.{0,600}))?\Z", re.ASCII | re.DOTALL)
_SORT_COLUMNS = {column.key: column for column in SortColumn}


def parse_filter(given: Mapping[str, str]) -> JobFilter:
    """Parse the filter of a job list; empty and missing parameters match everything."""
    texts = {key: parse_text(given, key) for key in _TEXT_KEYS}
    texts["state"] = texts["state"].upper()
    texts["name_part"] = texts.pop("name")
    return JobFilter(
        **texts,
        names=(),
        worst=_parse_severity(given.get("worst", "")),
        array_job_id=_parse_number(given, "array"),
        het_job_id=_parse_number(given, "het"),
        shown_ids=_parse_ids(given),
        since_seconds=_parse_day(given, "since"),
        until_seconds=_parse_last_day(given),
        is_running=_parse_choice(given, "running"),
        ranges=parse_ranges(given),
    )


def parse_cluster(given: Mapping[str, str]) -> str:
    """Parse the cluster of a page that has no other filter; empty for all clusters."""
    return parse_text(given, "cluster")


def render_query(wanted: JobFilter, **more: str | int | None) -> str:
    """Render a filter as a query string with its question mark; the reverse of ``parse_filter``."""
    pairs: dict[str, str | int | None] = {
        **{key: getattr(wanted, key) for key in _TEXT_KEYS},
        "name": wanted.name_part or wanted.name,
        "worst": wanted.worst.value if wanted.worst else None,
        "array": wanted.array_job_id,
        "het": wanted.het_job_id,
        "ids": ",".join(wanted.shown_ids),
        "since": render_day(wanted.since_seconds),
        "until": last_day(wanted),
        "running": {True: "yes", False: "no", None: None}[wanted.is_running],
        **render_ranges(wanted.ranges),
        **more,
    }
    kept = {key: str(value) for key, value in pairs.items() if value not in {None, ""}}
    return f"?{urlencode(kept)}" if kept else ""


def parse_order(given: Mapping[str, str]) -> ListOrder:
    """Parse by what a list is sorted: ``sort=cores&dir=asc``; texts are ascending unless the direction is given."""
    key, direction = given.get("sort", "") or "submit", given.get("dir", "")
    if key not in _SORT_COLUMNS or direction not in {"", "asc", "desc"}:
        raise BadQuery(f"A list is sorted by {', '.join(_SORT_COLUMNS)}, in the direction asc or desc.")
    column = _SORT_COLUMNS[key]
    return ListOrder(column, column.is_text if not direction else direction == "asc")


def render_cause(cause: LossCause, wanted: JobFilter, user: str = "", rule: str = "") -> str:
    """Return the query for the jobs that lost most to a cause, of one user or all, or of those with a finding."""
    rule = "memory_over_requested" if cause is LossCause.MEMORY else rule
    wanted = replace(wanted, user=user or wanted.user, rule=rule or wanted.rule)
    if rule:
        return render_query(wanted)
    if cause is LossCause.FAILED:
        return render_query(replace(wanted, state="FAILED"), sort="run")
    if cause is LossCause.TIMEOUT:
        return render_query(replace(wanted, state="TIMEOUT"), sort="run")
    return render_query(wanted, sort="cpu", dir="asc")


def render_order(order: ListOrder) -> dict[str, str]:
    """Return the parameters of an order; the reverse of ``parse_order``."""
    if order == ListOrder():
        return {}
    is_usual = order.is_ascending == order.column.is_text
    return {"sort": order.column.key, **({} if is_usual else {"dir": "asc" if order.is_ascending else "desc"})}


def parse_position(text: str, order: ListOrder = NEWEST_FIRST) -> PagePosition | None:
    """Parse the position at which the previous page ended."""
    if not text:
        return None
    match = _KEY.match(text)
    if not match or (match[3] is None) != (order.column is SortColumn.SUBMIT):
        raise BadQuery("The position in the list is invalid. Start again from the first page.")
    return PagePosition(int(match[1]), int(match[2]), _parse_value(match[3], order.column))


def _parse_value(text: str | None, column: SortColumn) -> float | str | None:
    if text is None or column.is_text:
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadQuery("The position in the list is invalid. Start again from the first page.")
    return value


def render_position(key: PagePosition | None) -> str | None:
    if key is None:
        return None
    return f"{key.submit_seconds}-{key.job_id}" + ("" if key.value is None else f"-{key.value}")


def parse_days(given: Mapping[str, str], default: int = 30) -> int:
    """Parse a number of days, at most a year: longer sums would slow down the archive for other users."""
    days = _parse_number(given, "days")
    if days is None:
        return default
    if not 1 <= days <= MAX_DAYS:
        raise BadQuery(f"The number of days must be between 1 and {MAX_DAYS}.")
    return days


def parse_format(given: Mapping[str, str]) -> str:
    """Parse the format of a table."""
    table_format = given.get("format", "") or "html"
    if table_format not in {"html", "csv", "json"}:
        raise BadQuery("The format must be html, csv or json.")
    return table_format


def last_day(wanted: JobFilter) -> str | None:
    """Render the last day of a filter; the filter ends at the following midnight."""
    return None if wanted.until_seconds is None else render_day(wanted.until_seconds - DAY_SECONDS)


def render_day(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()


def parse_text(given: Mapping[str, str], key: str) -> str:
    """Parse a name, which is empty if it is missing."""
    text = given.get(key, "").strip()
    if len(text) > _TEXT_LIMIT or not text.isprintable():
        raise BadQuery(f"'{key}' is too long or contains unprintable characters.")
    return text


def _parse_number(given: Mapping[str, str], key: str) -> int | None:
    text = given.get(key, "").strip()
    if not text:
        return None
    if not NUMBER.match(text):
        raise BadQuery(f"'{key}' must be a whole number.")
    return int(text)


def _parse_ids(given: Mapping[str, str]) -> tuple[str, ...]:
    ids = tuple(filter(None, given.get("ids", "").split(",", MAX_IDS)))
    if not all(map(SHOWN_ID.match, ids)):
        raise BadQuery(f"'ids' must be up to {MAX_IDS:,} job IDs such as 12 or 12_3, separated by commas.")
    return ids


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
        raise BadQuery(f"'{key}' must be a date such as 2026-03-31.")
    return int(datetime.combine(day, time(), UTC).timestamp())


def _parse_last_day(given: Mapping[str, str]) -> int | None:
    """Parse the last day; the filter ends at the following midnight."""
    seconds = _parse_day(given, "until")
    return None if seconds is None else seconds + DAY_SECONDS
