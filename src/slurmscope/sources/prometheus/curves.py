# SPDX-License-Identifier: Apache-2.0
"""Make curves from answers of Prometheus: cut to the run, merged from parts, growth turned into rates."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from slurmscope.model.series import Aggregation, JobSpan, Series
from slurmscope.sources.prometheus.answers import FoundSeries
from slurmscope.sources.prometheus.plan import CurvesQuery

CurvesByJob = dict[int, dict[tuple[str, ...], Series]]
"""Curves by job ID and label values."""


def first_parts(plan: Iterable[CurvesQuery], how: Aggregation) -> list[JobSpan]:
    """Return the first parts of runs that need separate queries; a small part of a window gives no rate."""
    pairs = ((query, span, query.first_part(span)) for query in plan for span in query.spans)
    return [
        part
        for query, span, part in pairs
        if part is not None
        and (how is not Aggregation.RATE or part.end_seconds - part.start_seconds >= _least_seconds(span, query))
    ]


def last_parts(plan: Iterable[CurvesQuery]) -> list[JobSpan]:
    """Return the last parts of runs that need separate queries."""
    parts = (query.last_part(span) for query in plan for span in query.spans)
    return [part for part in parts if part is not None]


def add_curve(by_job: CurvesByJob, span: JobSpan, curve: Series) -> None:
    """Add a curve of a run, or one more part of it."""
    if curve.times:
        known = by_job.setdefault(span.job_id, {})
        known[curve.labels] = _merged(known[curve.labels], curve) if curve.labels in known else curve


def cut_curve(
    found: FoundSeries, span: JobSpan, query: CurvesQuery, how: Aggregation, labels: tuple[str, ...]
) -> Series:
    """Return the points whose windows are within the run or reach a little out of it.

    One of them may be the point after its end.
    """
    begin = max(bisect_right(found.times, span.start_seconds), bisect_left(found.times, query.settled_seconds(span)))
    end = bisect_left(found.times, span.end_seconds)
    after_end = found.times[end] - span.end_seconds if end < len(found.times) else math.inf
    if after_end < query.step_seconds and after_end <= query.reach_seconds:
        end += 1
    times, values = found.times[begin:end], found.values[begin:end]
    if how is Aggregation.RATE:
        times, values = _rates(times, values, span, query)
    if times and times[-1] > span.end_seconds:
        times = (*times[:-1], span.end_seconds)
    return Series(labels, times, values)


def _rates(
    times: Sequence[float], values: Sequence[float], span: JobSpan, query: CurvesQuery
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Divide growth by the part of each window in which the job ran; drop points where that is a small part."""
    least, window_seconds = _least_seconds(span, query), query.window_seconds
    covered = [min(time, span.end_seconds) - max(time - window_seconds, span.start_seconds) for time in times]
    kept = [(time, value / part) for time, value, part in zip(times, values, covered, strict=True) if part >= least]
    return tuple(time for time, _ in kept), tuple(value for _, value in kept)


def make_point(how: Aggregation, part: JobSpan, value: float) -> float:
    """Return the point of a curve for the value of a part of a run."""
    if how is Aggregation.RATE:
        return value / (part.end_seconds - part.start_seconds)
    return abs(value) if how is Aggregation.TOTAL else value


def _least_seconds(span: JobSpan, query: CurvesQuery) -> float:
    return min(query.window_seconds, span.end_seconds - span.start_seconds) / 2


def _merged(one: Series, other: Series) -> Series:
    """Merge two parts of a curve; where both have a value, keep the higher one."""
    points = dict(zip(one.times, one.values, strict=True))
    for time, value in zip(other.times, other.values, strict=True):
        points[time] = max(value, points.get(time, value))
    times = tuple(sorted(points))
    return Series(one.labels, times, tuple(points[time] for time in times))
