# SPDX-License-Identifier: Apache-2.0
"""Read curves and totals of jobs from Prometheus.

A point of a curve covers the window that ends at its time; the last one is at the end of the run. A requeued job has
the same ID in all its runs. So where windows are long, the first and the last part of a run get separate queries over
exactly their time: no other point reaches into another run, and no peak near the start or the end is lost.

A query that the server rejects as too large or too slow is split in two, down to a minimum size; what is then still too
large makes the result partial, and a server that is then still too slow has timed out. A job has no total if the server
did not return a part of it: the rest alone would be too low.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slurmscope.core.errors import ServerTimedOut
from slurmscope.jobs.series import (
    JOB_LABEL,
    Aggregation,
    Curves,
    JobSpan,
    JobTotals,
    Series,
    SeriesQuery,
    total_of_rises,
)
from slurmscope.prometheus.plan import (
    MAX_JOBS,
    CurvesByJob,
    CurvesQuery,
    TotalsQuery,
    add_curve,
    cut_curve,
    first_parts,
    last_parts,
    make_point,
    plan_curves,
    plan_totals,
)
from slurmscope.prometheus.promql import curves_expression, totals_expression
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import FoundSeries, QueryTimedOut, QueryTooLarge, Reply
from slurmscope.prometheus.settings import PrometheusSettings

CURVES_KIND = "curves"
TOTALS_KIND = "totals"

_MAX_SPLITS = 64
"""How many queries of one call may be split; beyond that the call should be for fewer jobs."""
# VictoriaMetrics accepts queries of up to 16 KiB.
_MAX_QUERY_BYTES = 12_000
_RISE_POINTS = 300
"""Points of the curve from which the total of a counter that fell is computed."""

PlannedQuery = TypeVar("PlannedQuery", CurvesQuery, TotalsQuery)


class QueryClient(Protocol):
    """Evaluate PromQL expressions; see ``sources.prometheus.client``."""

    @property
    def counters(self) -> QueryCounters:
        """Return the counters of queries."""

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        """Evaluate at one time."""

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        """Evaluate at the first time and every step up to the last."""


class PrometheusSeries:
    """Read series of many jobs with few queries, from any thread. Two runs of one job need two calls."""

    def __init__(self, client: QueryClient, settings: PrometheusSettings) -> None:
        """Set the client, and the settings with the scrape interval."""
        self._client = client
        self._settings = settings

    @property
    def max_concurrent_queries(self) -> int:
        """Return how many queries the client sends at the same time."""
        return max(1, self._settings.max_queries)

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most ``points`` points each."""
        spans = _check(spans)
        by_job: CurvesByJob = {}
        max_points, scrape_seconds = self._settings.max_points, self._settings.scrape_interval
        plan = list(plan_curves(spans, wanted.how, points=points, max_points=max_points, scrape_seconds=scrape_seconds))
        runner = _QueryRunner(self._client.counters, CURVES_KIND, len(spans))
        for query, reply in runner.run(plan, lambda query: self._query_curves(wanted, query, until)):
            for span, labels, found in _by_run(reply, query.spans, wanted):
                add_curve(by_job, span, cut_curve(found, span, query, wanted.how, labels))
        for parts in (first_parts(plan, wanted.how), last_parts(plan)):
            for (part, labels), value in self._read_parts(wanted, parts, runner, until):
                add_curve(by_job, part, Series(labels, (part.end_seconds,), (make_point(wanted.how, part, value),)))
        return Curves({job: tuple(curves.values()) for job, curves in by_job.items()}, frozenset(runner.lost_jobs))

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one number per series, over the whole span of each job."""
        spans = _check(spans)
        if not spans:
            return JobTotals()
        jobs, scrape_seconds = self._jobs_at_once(wanted, spans), self._settings.scrape_interval
        plan = plan_totals(spans, wanted.how, jobs=jobs, scrape_seconds=scrape_seconds)
        pieces: dict[int, dict[tuple[str, ...], list[_Piece]]] = {}
        runner = _QueryRunner(self._client.counters, TOTALS_KIND, len(spans))
        for query, reply in runner.run(plan, lambda query: self._query_totals(wanted, query, TOTALS_KIND, until)):
            for (span, labels), value in _highest(_by_run(reply, query.spans, wanted)).items():
                piece = _Piece(value, span.end_seconds - span.start_seconds)
                pieces.setdefault(span.job_id, {}).setdefault(labels, []).append(piece)
        run_seconds = {span.job_id: span.end_seconds - span.start_seconds for span in spans}
        by_job = {
            job: {labels: _total(wanted.how, values, run_seconds[job]) for labels, values in series.items()}
            for job, series in pieces.items()
            if job not in runner.lost_jobs
        }
        if wanted.how is Aggregation.TOTAL:
            return self._with_rises(wanted, spans, JobTotals(by_job, frozenset(runner.lost_jobs)), until)
        return JobTotals(by_job, frozenset(runner.lost_jobs))

    def _with_rises(self, wanted: SeriesQuery, spans: Sequence[JobSpan], totals: JobTotals, until: float) -> JobTotals:
        """Compute totals from curves for counters that fell: that is rare, and costs two or three more queries.

        The growth within the step of the fall is not seen; so the total is a little too low, never too high.
        """
        fallen = [span for span in spans if min(totals.by_job.get(span.job_id, {}).values(), default=0.0) < 0]
        curves = self.read_curves(wanted, fallen, points=_RISE_POINTS, until=until)
        by_job = {
            job: {labels: abs(value) for labels, value in values.items()} for job, values in totals.by_job.items()
        }
        for job, found in curves.by_job.items():
            before = totals.by_job[job]
            for curve in found:
                if before.get(curve.labels, 0.0) < 0:
                    by_job[job][curve.labels] = max(by_job[job][curve.labels], total_of_rises(curve.values))
        by_job = {job: values for job, values in by_job.items() if job not in curves.lost_jobs}
        return JobTotals(by_job, totals.lost_jobs | curves.lost_jobs)

    def _read_parts(
        self, wanted: SeriesQuery, parts: Sequence[JobSpan], runner: _QueryRunner, until: float
    ) -> list[tuple[tuple[JobSpan, tuple[str, ...]], float]]:
        """Return one value per series for each part; each job has at most one part."""
        jobs = self._jobs_at_once(wanted, parts) if parts else 1
        plan = (
            TotalsQuery(spans=tuple(parts[begin : begin + jobs]), least_seconds=math.inf)
            for begin in range(0, len(parts), jobs)
        )
        replies = runner.run(plan, lambda query: self._query_totals(wanted, query, CURVES_KIND, until))
        return [part for query, reply in replies for part in _highest(_by_run(reply, query.spans, wanted)).items()]

    def _jobs_at_once(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> int:
        one, two = (len(self._totals_expression(wanted, [spans[0]] * jobs)) for jobs in (1, 2))
        return max(1, min(MAX_JOBS, 1 + (_MAX_QUERY_BYTES - one) // (two - one)))

    def _query_curves(self, wanted: SeriesQuery, query: CurvesQuery, until: float) -> Reply:
        job_ids = [span.job_id for span in query.spans]
        matchers, window = self._settings.matchers_of(wanted.cluster), query.window_seconds
        expression = curves_expression(wanted, job_ids, window_seconds=window, matchers=matchers)
        times = (query.first_seconds, query.last_seconds)
        return self._client.query_range(expression, times, query.step_seconds, kind=CURVES_KIND, until=until)

    def _query_totals(self, wanted: SeriesQuery, query: TotalsQuery, kind: str, until: float) -> Reply:
        expression = self._totals_expression(wanted, query.spans)
        at_seconds = max(span.end_seconds for span in query.spans)
        return self._client.query_instant(expression, at_seconds, kind=kind, until=until)

    def _totals_expression(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> str:
        return totals_expression(wanted, spans, matchers=self._settings.matchers_of(wanted.cluster))


class _QueryRunner:
    """Run planned queries, split those that are too large, and record of which jobs something is missing."""

    def __init__(self, counters: QueryCounters, kind: str, jobs: int) -> None:
        self.lost_jobs: set[int] = set()
        self._counters = counters
        self._kind = kind
        self._jobs = jobs
        self._splits_left = _MAX_SPLITS
        self._has_reply = False

    @property
    def _needs_fewer_jobs(self) -> bool:
        """Return whether all queries may succeed in calls for fewer jobs; not where the server rejects the smallest."""
        return not self._splits_left and self._has_reply and self._jobs > 1

    def run(
        self, plan: Iterable[PlannedQuery], send: Callable[[PlannedQuery], Reply]
    ) -> list[tuple[PlannedQuery, Reply]]:
        replies = []
        for planned in plan:
            waiting = [planned]
            while waiting:
                query = waiting.pop()
                try:
                    reply = send(query)
                except QueryTooLarge as error:
                    waiting.extend(reversed(self._split(query, error)))
                    continue
                self._has_reply = True
                replies.append((query, reply))
        return replies

    def _split(self, query: PlannedQuery, error: QueryTooLarge) -> tuple[PlannedQuery, ...]:
        halves = query.split() if self._splits_left else ()
        if not halves:
            if self._needs_fewer_jobs or isinstance(error, QueryTimedOut):
                raise ServerTimedOut(str(error)) from error
            self.lost_jobs.update(span.job_id for span in query.spans)
            return ()
        self._splits_left -= 1
        self._counters.note_split(self._kind)
        return halves


@dataclass(frozen=True, slots=True)
class _Piece:
    """The value of a part of a run, and the length of that part."""

    value: float
    seconds: float


def _check(spans: Sequence[JobSpan]) -> list[JobSpan]:
    """Drop empty spans; reject two runs of one job, which an answer does not distinguish."""
    lasting = [span for span in spans if span.end_seconds > span.start_seconds]
    if len({span.job_id for span in lasting}) != len(lasting):
        raise ValueError("two runs of one job cannot be read together: an answer is by job ID")
    return lasting


def _by_run(
    reply: Reply, spans: Sequence[JobSpan], wanted: SeriesQuery
) -> Iterator[tuple[JobSpan, tuple[str, ...], FoundSeries]]:
    """Yield each series with its run; drop series of other jobs."""
    by_label = {str(span.job_id): span for span in spans}
    for found in reply.series:
        span = by_label.get(found.labels.get(JOB_LABEL, ""))
        if span is not None:
            yield span, tuple(found.labels.get(name, "") for name in wanted.by), found


def _highest(
    series: Iterable[tuple[JobSpan, tuple[str, ...], FoundSeries]],
) -> Mapping[tuple[JobSpan, tuple[str, ...]], float]:
    highest: dict[tuple[JobSpan, tuple[str, ...]], float] = {}
    for span, labels, found in series:
        for value in found.values:
            highest[span, labels] = max(value, highest.get((span, labels), value))
    return highest


def _total(how: Aggregation, pieces: Sequence[_Piece], run_seconds: float) -> float:
    """Combine the parts of a run in order of time, of which there is usually one, into one value."""
    if how is Aggregation.MAX:
        return max(piece.value for piece in pieces)
    if how is Aggregation.TOTAL:
        values = [abs(piece.value) for piece in pieces]
        # It may also have fallen between two parts.
        has_fallen = any(piece.value < 0 for piece in pieces) or values != sorted(values)
        return -max(values) if has_fallen else max(values)
    if how is Aggregation.RATE:
        return sum(piece.value for piece in pieces) / run_seconds
    return sum(piece.value * piece.seconds for piece in pieces) / sum(piece.seconds for piece in pieces)
