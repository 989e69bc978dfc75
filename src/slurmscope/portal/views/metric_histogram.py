# SPDX-License-Identifier: Apache-2.0
"""Prepare a histogram: bars with their labels, heights and links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from slurmscope.model.archive import JobFilter
from slurmscope.model.metric_ranges import JobHistogram, JobMetric, MetricRange
from slurmscope.portal.views.queries import last_day, render_day, render_query
from slurmscope.portal.views.ranges import label_range

HEIGHT = 200.0


class HistogramBar(NamedTuple):
    """Hold one class; the height is 0 to ``HEIGHT``."""

    label: str
    axis: str
    jobs: int
    height: float
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramView:
    """Hold the bars, and how many jobs they are of."""

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
