# SPDX-License-Identifier: Apache-2.0
"""Make job reports: accounting records in, one document per run out, with what a time series source measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.queries import CURVES, TOTALS
from slurmscope.analysis.summary import summarise
from slurmscope.errors import ServerBusy, ServerRefused, ServerTimedOut, SourceError
from slurmscope.log import fields
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import MAX_CHART_POINTS, JobReport
from slurmscope.model.series import Curves, JobSpan, Measured, Series, SeriesSource, Totals
from slurmscope.model.summary import JobSummary
from slurmscope.rules import judge
from slurmscope.services.reporting.node_sizes import NodeSizes

logger = logging.getLogger(__name__)

T = TypeVar("T")

NO_SERIES = "Nothing was measured: no time series source is configured."
NOT_SUMMARISED = "This job could not be summarised because of a bug; see the log of slurmscope."
NO_CURVE = (
    "CPU time was measured, but not its course over time, so the rules do not use it. If this applies to all jobs, run "
    "slurmscope doctor portal."
)
PARTIAL = "Accounting has only part of this job's record so far: name, partition and requested resources are missing."
PARTIAL_SERIES = "The time series server returned partial results, so some curves may be incomplete."
LONG_RUN_SECONDS = 600.0
"""A job that ran this long should have a curve at any scrape interval."""
MAX_CORES_DRAWN = 128
"""Jobs with more cores have the total of each core, and no curve for each."""
CORE_CURVE = "cpu_core"

UNREACHABLE = (ServerRefused, ServerTimedOut)
"""A server that does not answer one query will not answer the next one either."""
TRANSIENT = (*UNREACHABLE, ServerBusy)
"""Errors after which the same query may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Hold query results by query name and job id."""

    curves: Mapping[str, Mapping[int, tuple[Series, ...]]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[int, Mapping[tuple[str, ...], float]]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    busy: ServerBusy | None = None
    """Set when the server was too busy to answer a query."""

    def of(self, job_id: int) -> Measured:
        """Return the measurements of one job."""
        return Measured(
            curves={name: found[job_id] for name, found in self.curves.items() if job_id in found},
            totals={name: found[job_id] for name, found in self.totals.items() if job_id in found},
            problems=self.problems,
        )


class ReportMaker:
    """Turn accounting records into reports."""

    def __init__(
        self,
        series: SeriesSource | None,
        *,
        thresholds: Mapping[str, float] | None = None,
        node_sizes: NodeSizes | None = None,
        timeout_seconds: float = 60.0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the time series source, the thresholds of the rules, the sizes of nodes, and the timeout of a batch."""
        self._series = series
        self._thresholds = thresholds
        self._node_sizes = node_sizes
        self._timeout_seconds = timeout_seconds
        self._wall_clock = wall_clock

    def make(self, records: Sequence[JobRecord], *, must_measure: bool = False) -> list[JobReport]:
        """Return a report for each record, in their order; ``missing`` lists failed queries.

        With ``must_measure``, raise one of :data:`TRANSIENT` when the time series server did not answer: it may later.
        """
        now = self._wall_clock()
        reports: dict[int, JobReport] = {}
        for batch in split_runs(enumerate(records)):
            measurements = self._measure([record for _, record in batch], now, must_measure=must_measure)
            for position, record in batch:
                reports[position] = self._make_one(record, measurements.of(record.job_id), now)
        return [reports[position] for position in range(len(records))]

    def _measure(self, records: Sequence[JobRecord], now: float, *, must_measure: bool) -> Measurements:
        if self._series is None:
            return Measurements(problems=(NO_SERIES,))
        until = time.monotonic() + self._timeout_seconds
        try:
            measurements = measure(self._series, records, now_seconds=now, until=until)
        except UNREACHABLE as error:
            if must_measure:
                raise
            return Measurements(problems=(f"The time series server is unreachable: {error}",))
        if must_measure and measurements.busy:
            raise measurements.busy
        return measurements

    def _make_one(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        """Make one report; a bug in its summary costs this job its summary, and other jobs nothing."""
        try:
            summary = self._add_sizes(summarise(record, measured, now_seconds=now))
            return JobReport(
                summary=summary,
                made_seconds=int(now),
                findings=judge(summary, self._thresholds),
                charts=make_charts(summary, measured),
                missing=(*measured.problems, *_gaps(summary)),
            )
        except Exception:  # a bug; the accounting record is still worth a report
            logger.exception("job not summarised", extra=fields(job=record.shown_id))
            end = now if record.end_seconds is None else record.end_seconds
            run_seconds = max(0.0, end - (end if record.start_seconds is None else record.start_seconds))
            summary = JobSummary(record=record, run_seconds=run_seconds)
            return JobReport(summary=summary, made_seconds=int(now), missing=(*measured.problems, NOT_SUMMARISED))

    def _add_sizes(self, summary: JobSummary) -> JobSummary:
        """Add how large the nodes are: only rules about jobs on several nodes need it."""
        record = summary.record
        if self._node_sizes is None or record.node_count < 2:
            return summary
        size = self._node_sizes.smallest(record.nodes)
        return replace(summary, node_cpus=size.cpus, node_memory_bytes=size.memory_bytes) if size else summary


def measure(series: SeriesSource, records: Sequence[JobRecord], *, now_seconds: float, until: float) -> Measurements:
    """Run every query for jobs with different ids; failed queries are listed among the problems.

    Raises one of :data:`UNREACHABLE` when the server does not answer at all.
    """
    spans = {record.job_id: span for record in records if (span := _span(record, now_seconds))}
    if not spans:
        return Measurements()
    everything = tuple(spans.values())
    small = tuple(
        spans[record.job_id] for record in records if record.job_id in spans and record.cpus <= MAX_CORES_DRAWN
    )
    reads: list[tuple[str, Callable[[], Totals | Curves]]] = [
        (name, partial(series.read_totals, query, everything, until=until)) for name, query in TOTALS.items()
    ]
    for name, query in CURVES.items():
        if drawn := small if name == CORE_CURVE else everything:
            reads.append((name, partial(series.read_curves, query, drawn, points=MAX_CHART_POINTS, until=until)))
    results = _run_all([partial(_read_or_error, read) for _, read in reads], series.max_concurrent_queries)
    named = [(name, result) for (name, _), result in zip(reads, results, strict=True)]
    problems = (_problem(result) for result in results)
    return Measurements(
        curves={name: result.by_job for name, result in named if isinstance(result, Curves)},
        totals={name: result.by_job for name, result in named if isinstance(result, Totals)},
        problems=tuple(dict.fromkeys(problem for problem in problems if problem)),
        busy=next((result for result in results if isinstance(result, ServerBusy)), None),
    )


def _read_or_error(read: Callable[[], Totals | Curves]) -> Totals | Curves | SourceError:
    try:
        return read()
    except UNREACHABLE:
        raise
    except SourceError as error:
        return error


def _problem(result: Totals | Curves | SourceError) -> str:
    if isinstance(result, SourceError):
        return str(result)
    return PARTIAL_SERIES if result.is_partial else ""


def _run_all(calls: Sequence[Callable[[], T]], concurrency: int) -> list[T]:
    """Run the first call alone, to see whether the server answers, and the others concurrently."""
    first = calls[0]()
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(call) for call in calls[1:]]
        try:
            return [first, *(future.result() for future in futures)]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _span(record: JobRecord, now_seconds: float) -> JobSpan | None:
    """Return when a job ran; None when it did not."""
    if record.start_seconds is None:
        return None
    end = now_seconds if record.end_seconds is None else record.end_seconds
    return JobSpan(record.job_id, record.start_seconds, end) if end > record.start_seconds else None


def _gaps(summary: JobSummary) -> Iterator[str]:
    """Report a partial record, and totals without curves: mostly the configured scrape interval is wrong."""
    if summary.record.is_partial:
        yield PARTIAL
    coverage = summary.coverage
    if coverage.nodes_measured and not coverage.run_ratio and summary.run_seconds >= LONG_RUN_SECONDS:
        yield NO_CURVE


def split_runs(records: Iterable[tuple[int, JobRecord]]) -> list[list[tuple[int, JobRecord]]]:
    """Put runs of the same job into different batches: query results are by job id."""
    batches: list[list[tuple[int, JobRecord]]] = []
    runs: dict[int, int] = {}
    for position, record in records:
        run = runs[record.job_id] = runs.get(record.job_id, -1) + 1
        if run == len(batches):
            batches.append([])
        batches[run].append((position, record))
    return batches
