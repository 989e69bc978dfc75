# SPDX-License-Identifier: Apache-2.0
"""Parse and write ranges of metrics: shares in percent, times as durations, core time in hours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slurmscope.figures import format_count, format_seconds
from slurmscope.model.metric_ranges import JobMetric, MetricKind, MetricRange
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.units import format_duration, parse_seconds

_LIMIT = 40
_HINTS = {
    MetricKind.RATIO: "%",
    MetricKind.SECONDS: "such as 90s, 15m, 2h or 1d",
    MetricKind.COUNT: "",
    MetricKind.CORE_SECONDS: "core-hours",
}


class RangeField(NamedTuple):
    """Hold one row of the filter form; texts are as the person wrote them."""

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
            _HINTS[metric.kind],
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
    if metric.kind is MetricKind.SECONDS:
        return format_duration(number)
    shown = number * 100 if metric.kind is MetricKind.RATIO else number
    shown = shown / 3600 if metric.kind is MetricKind.CORE_SECONDS else shown
    return f"{round(shown, 6):.10g}"


def label_range(wanted: MetricRange) -> str:
    """Return a range for people: ``10 % to 20 %``, ``1 h or more``."""
    low, high = (None if bound is None else _label(wanted.metric, bound) for bound in (wanted.low, wanted.high))
    if low is None:
        return f"less than {high}"
    return f"{low} or more" if high is None else f"{low} to less than {high}"


def _label(metric: JobMetric, number: float) -> str:
    match metric.kind:
        case MetricKind.RATIO:
            return f"{round(number * 100):d} %"
        case MetricKind.SECONDS:
            return format_seconds(number)
        case MetricKind.CORE_SECONDS:
            return format_count(number / 3600)
        case MetricKind.COUNT:
            return format_count(number)


def _parse(given: Mapping[str, str], metric: JobMetric, bound: str) -> float | None:
    text = given.get(f"{metric.key}_{bound}", "").strip().removesuffix("%").strip()
    if not text:
        return None
    try:
        number = _parse_number(metric, text[:_LIMIT])
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e15:
        hint = f", {_HINTS[metric.kind]}" if _HINTS[metric.kind] else ""
        raise BadQuery(f"'{metric.key}_{bound}' must be a number{hint}.")
    return number


def _parse_number(metric: JobMetric, text: str) -> float:
    if metric.kind is MetricKind.SECONDS:
        return parse_seconds(text)
    number = float(text)
    if metric.kind is MetricKind.RATIO:
        return number / 100
    return number * 3600 if metric.kind is MetricKind.CORE_SECONDS else number
