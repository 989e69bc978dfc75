# SPDX-License-Identifier: Apache-2.0
"""Group runs of jobs into queries that Prometheus can answer together, and make curves from the responses.

Steps are the scrape interval times a power of two, and all evaluation times are multiples of the step. So runs of
similar length share their times, and one query covers all of them. The answer is cut to each run later.
"""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slurmscope.jobs.series import Aggregation, JobSpan, Series
from slurmscope.prometheus.responses import FoundSeries

MAX_JOBS = 100
"""Maximum number of jobs in one query."""

RATE_SCRAPES = 4.0
"""A rate needs two samples in its window even when one scrape in between has failed."""
_GAUGE_SCRAPES = 2.0
"""Scrapes are a little early or late: a window of one interval is sometimes empty."""
MOST_REACH_SECONDS = 60.0
"""Slurm starts a requeued job no sooner than 120 seconds after its last run ended, and for 60 of them agents show that
run's last values: a window that begins this long before a run contains none of them."""
_MOST_LATER_SECONDS = 120.0
_LEAST_STEPS = 8
_LEAST_SCRAPES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesQuery:
    """Describe one range query for curves of some runs, evaluated at the first time and every step up to the last.

    Points whose windows reach further than ``reach_seconds`` out of a run may contain values of another run of that
    job. They are replaced with separate queries for :meth:`first_part` and :meth:`last_part`.
    """

    spans: tuple[JobSpan, ...]
    step_seconds: float
    window_seconds: float
    reach_seconds: float
    first_seconds: float
    last_seconds: float

    def split(self) -> tuple[CurvesQuery, ...]:
        """Return two halves, by jobs or else by time; nothing when the query is too small to split."""
        if len(self.spans) > 1:
            middle = len(self.spans) // 2
            halves = (self.spans[:middle], self.spans[middle:])
            return tuple(
                _curves_query(half, self.step_seconds, self.window_seconds, self.reach_seconds) for half in halves
            )
        steps = round((self.last_seconds - self.first_seconds) / self.step_seconds)
        if steps < 2 * _LEAST_STEPS:
            return ()
        middle_seconds = self.first_seconds + steps // 2 * self.step_seconds
        return (
            replace(self, last_seconds=middle_seconds),
            replace(self, first_seconds=middle_seconds + self.step_seconds),
        )

    def settled_seconds(self, span: JobSpan) -> float:
        """Return the first time whose window begins late enough."""
        return span.start_seconds + self.window_seconds - self.reach_seconds

    def first_part(self, span: JobSpan) -> JobSpan | None:
        """Return the part of a run up to its last point whose window begins too early; None if there is none."""
        before_settled = (math.ceil(self.settled_seconds(span) / self.step_seconds) - 1) * self.step_seconds
        end = min(before_settled, span.end_seconds)
        return span._replace(end_seconds=end) if end > span.start_seconds else None

    def last_part(self, span: JobSpan) -> JobSpan | None:
        """Return the last window within a run; None where the point after its end is accurate enough."""
        after_end = math.ceil(span.end_seconds / self.step_seconds) * self.step_seconds
        if after_end - span.end_seconds <= self.reach_seconds or self.first_part(span) == span:
            return None
        return span._replace(start_seconds=max(span.start_seconds, span.end_seconds - self.window_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsQuery:
    """Describe one instant query for one value per series of some runs."""

    spans: tuple[JobSpan, ...]
    least_seconds: float

    def split(self) -> tuple[TotalsQuery, ...]:
        """Return two halves, by jobs or else by time; nothing when the query is too small to split."""
        if len(self.spans) > 1:
            middle = len(self.spans) // 2
            return replace(self, spans=self.spans[:middle]), replace(self, spans=self.spans[middle:])
        (span,) = self.spans
        half_seconds = (span.end_seconds - span.start_seconds) / 2
        if half_seconds < self.least_seconds:
            return ()
        middle_seconds = span.start_seconds + half_seconds
        return (
            replace(self, spans=(span._replace(end_seconds=middle_seconds),)),
            replace(self, spans=(span._replace(start_seconds=middle_seconds),)),
        )


def plan_curves(
    spans: Sequence[JobSpan], how: Aggregation, *, points: int, max_points: int, scrape_seconds: float
) -> Iterator[CurvesQuery]:
    """Yield queries for curves of at most ``points`` points; no query covers more than ``max_points`` steps."""
    # The first step at or after the end of a run adds one point.
    most = max(1, min(points, max_points) - 1)
    widest_steps = min(max_points - 2, 4 * points)
    scrapes = RATE_SCRAPES if how is Aggregation.RATE else _GAUGE_SCRAPES
    sized = sorted((_step_seconds(span, most, scrape_seconds), span.start_seconds, span) for span in spans)
    for step, members in itertools.groupby(sized, key=operator.itemgetter(0)):
        for packed in _packed([span for _, _, span in members], widest_steps * step):
            least_window = scrapes * scrape_seconds
            yield _curves_query(packed, step, max(step, least_window), min(least_window, MOST_REACH_SECONDS))


def plan_totals(
    spans: Sequence[JobSpan], how: Aggregation, *, jobs: int, scrape_seconds: float
) -> Iterator[TotalsQuery]:
    """Yield queries for at most ``jobs`` runs each.

    For a maximum or a total, the two scrapes after a run count too: the agent shows the last values of a job for a
    while, and only there a counter has its final value.
    """
    later_seconds = min(2 * scrape_seconds, _MOST_LATER_SECONDS) if how in {Aggregation.MAX, Aggregation.TOTAL} else 0.0
    ordered = sorted(span._replace(end_seconds=span.end_seconds + later_seconds) for span in spans)
    for begin in range(0, len(ordered), jobs):
        yield TotalsQuery(spans=tuple(ordered[begin : begin + jobs]), least_seconds=_LEAST_SCRAPES * scrape_seconds)


def _packed(spans: Sequence[JobSpan], widest_seconds: float) -> Iterator[tuple[JobSpan, ...]]:
    """Group runs, in the order of their starts, as long as they are close together."""
    group: list[JobSpan] = []
    for span in spans:
        if group and (len(group) == MAX_JOBS or span.end_seconds - group[0].start_seconds > widest_seconds):
            yield tuple(group)
            group = []
        group.append(span)
    yield tuple(group)


def _step_seconds(span: JobSpan, points: int, scrape_seconds: float) -> float:
    wanted = (span.end_seconds - span.start_seconds) / points
    doublings = max(0, math.ceil(math.log2(wanted / scrape_seconds)))
    return scrape_seconds * float(1 << doublings)


def _curves_query(
    spans: tuple[JobSpan, ...], step_seconds: float, window_seconds: float, reach_seconds: float
) -> CurvesQuery:
    """Return the query that covers these runs, up to the first step at or after their ends."""
    start = min(span.start_seconds for span in spans)
    end = max(span.end_seconds for span in spans)
    return CurvesQuery(
        spans=spans,
        step_seconds=step_seconds,
        window_seconds=window_seconds,
        reach_seconds=reach_seconds,
        first_seconds=math.ceil(start / step_seconds) * step_seconds,
        last_seconds=math.ceil(end / step_seconds) * step_seconds,
    )


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
