# SPDX-License-Identifier: Apache-2.0
"""Show how one number is distributed over jobs, in bars that link to their jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric, MetricRange
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.jobs import bound_ranges
from slurmscope.portal.queries import (
    BadQuery,
    label_range,
    last_day,
    parse_filter,
    parse_format,
    render_day,
    render_query,
    write_number,
)
from slurmscope.portal.web.slow_results import SharedResult
from slurmscope.portal.web.tables import Table, make_table_response

HEIGHT = 200.0


class HistogramBar(NamedTuple):
    """One class; the height is 0 to ``HEIGHT``."""

    label: str
    axis: str
    jobs: int
    height: float
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramView:
    """The bars, and how many jobs they are of."""

    metric: JobMetric
    bars: tuple[HistogramBar, ...]
    known: int
    unknown: int
    tallest: int
    is_cut: bool
    since_day: str | None
    until_day: str | None


def make_histogram_view(histogram: JobHistogram, wanted: JobFilter) -> HistogramView:
    """Make the bars; each links to the jobs of its class.

    A link has the first day of all that was counted: a list of a range without one would be of the last days only.
    """
    if wanted.since_seconds is None or histogram.is_cut:
        wanted = replace(wanted, since_seconds=histogram.since_seconds)
    tallest = max(histogram.counts)
    bars = tuple(
        _make_bar(each, count, tallest, wanted) for each, count in zip(histogram.ranges, histogram.counts, strict=True)
    )
    return HistogramView(
        metric=histogram.metric,
        bars=bars,
        known=sum(histogram.counts),
        unknown=histogram.unknown,
        tallest=tallest,
        is_cut=histogram.is_cut,
        since_day=render_day(wanted.since_seconds),
        until_day=last_day(wanted),
    )


def _make_bar(each: MetricRange, count: int, tallest: int, wanted: JobFilter) -> HistogramBar:
    others = tuple(other for other in wanted.ranges if other.metric is not each.metric)
    narrowed = reduce(_overlap, (other for other in wanted.ranges if other.metric is each.metric), each)
    label = label_range(each)
    return HistogramBar(
        label=label,
        axis="" if each.low is None else label_range(MetricRange(each.metric, each.low, None)).removesuffix(" or more"),
        jobs=count,
        height=round(HEIGHT * count / tallest, 1) if tallest else 0.0,
        query=render_query(replace(wanted, ranges=(*others, narrowed))),
    )


def _overlap(one: MetricRange, other: MetricRange) -> MetricRange:
    lows = [bound for bound in (one.low, other.low) if bound is not None]
    highs = [bound for bound in (one.high, other.high) if bound is not None]
    return MetricRange(one.metric, max(lows, default=None), min(highs, default=None))


router = APIRouter(include_in_schema=False)


@router.get("/histogram")
def show_histogram(context: Context) -> Response:
    """Show the newest jobs of a filter in classes of a metric, each with a link to its jobs."""
    metric, table_format = _parse_metric(context.query.get("metric", "")), parse_format(context.query)
    wanted = bound_ranges(context, parse_filter(context.query))
    counted = count_jobs(context, wanted, metric)
    histogram = counted.value
    if table_format != "html":
        rows = [
            (_write_bound(metric, each.low), _write_bound(metric, each.high), count)
            for each, count in zip(histogram.ranges, histogram.counts, strict=True)
        ]
        table = Table(columns=(f"{metric.key}_min", f"{metric.key}_max", "jobs"), rows=rows, is_cut=histogram.is_cut)
        return make_table_response(table, table_format, f"histogram-{metric.key}")
    view = make_histogram_view(histogram, wanted)
    return context.page(
        "histogram.html", view=view, wanted=wanted, metrics=tuple(JobMetric), age_seconds=counted.age_seconds
    )


def count_jobs(context: RequestContext, wanted: JobFilter, metric: JobMetric) -> SharedResult[JobHistogram]:
    """Count the jobs of a list in classes, once for concurrent requests; the access of staff is audited."""
    context.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'all users'}", owner=wanted.user)
    return context.share(
        ("histogram", wanted, metric), lambda: context.archive.histogram(context.viewer, wanted, metric)
    )


def _write_bound(metric: JobMetric, bound: float | None) -> str | None:
    return None if bound is None else write_number(metric, bound)


def _parse_metric(text: str) -> JobMetric:
    by_key = {metric.key: metric for metric in JobMetric}
    if text and text not in by_key:
        raise BadQuery(f"The metric must be one of {', '.join(by_key)}.")
    return by_key[text] if text else JobMetric.CPU
