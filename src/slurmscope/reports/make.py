# SPDX-License-Identifier: Apache-2.0
"""Make job reports: accounting records in, one document per run out, with what a time series source measured.

Traced processes are read in two rounds: first which processes the jobs have, then more about a few of them. So are
Slurm's own samples and GPUs: first which jobs have any, then those.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeGuard

from slurmscope.core.errors import QueryRejected, ServerRefused, ServerTimedOut, SourceError
from slurmscope.core.log import fields
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.energy import EnergySite
from slurmscope.jobs.findings import judge
from slurmscope.jobs.heat_maps import make_heat_maps
from slurmscope.jobs.js1 import FROM_COMMENT, add_js1
from slurmscope.jobs.process_samples import MAX_PROCESSES, order_processes
from slurmscope.jobs.queries import (
    CURVES,
    GPU_CURVES,
    GPU_FAULTS,
    GPU_FAULTS_SECONDS,
    GPU_TOTALS,
    PROCESS_LABELS,
    PROFILED_CURVES,
    PROFILED_TOTALS,
    TOTALS,
    TRACED_BY_NODE,
    TRACED_CURVES,
    TRACED_TOTALS,
)
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS, JobReport, SiteSection
from slurmscope.jobs.rule import Finding, Rule
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, Measured, Series, SeriesQuery, SeriesSource
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import JobSummary
from slurmscope.reports.resubmission import NodeSizes

logger = logging.getLogger(__name__)


PARTIAL_SERIES = "The time series server returned partial results, so some curves may be incomplete."
MAX_CORES_DRAWN = 128
"""Jobs with more cores have the total of each core, and no curve for each."""
CORE_CURVE = "cpu_core"
TRACED_JOBS_AT_ONCE = 10
"""Traced jobs in one query, which names the processes of all of them; also profiled jobs, with all their tasks."""

MAX_JOB_SERIES, MAX_NODE_SERIES = 10_000, 1_024
"""Series of one metric that a job may have, of processes and the like, and for each node, of cores and the like."""

_LATER_TOTALS = frozenset({*TRACED_TOTALS, *PROFILED_TOTALS, *GPU_TOTALS, *GPU_FAULTS})
_LATER_CURVES = frozenset({*TRACED_CURVES, *TRACED_BY_NODE, *PROFILED_CURVES, *GPU_CURVES})
"""Queries of the second round."""

_GPU_SIGNS = ("gpu_held_idle", "gpu_memory", "gpu")

UNREACHABLE = (ServerRefused, ServerTimedOut)
"""A server that does not respond to one query will not respond to the next one either."""

_PID = PROCESS_LABELS.index("pid")

TotalsByJob = Mapping[str, Mapping[int, Mapping[tuple[str, ...], float]]]
Result = JobTotals | Curves | SourceError
Read = Callable[[], tuple[str, Result]]
"""Send a query, and return its name and result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Query results by query name and job ID."""

    curves: Mapping[str, Mapping[int, tuple[Series, ...]]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[int, Mapping[tuple[str, ...], float]]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    failure: SourceError | None = None
    """The first failure after which the same query may succeed later."""
    lost_jobs: frozenset[int] = frozenset()
    """Jobs of which the source returned only a part."""

    def of(self, job_id: int) -> Measured:
        return Measured(
            curves={name: found[job_id] for name, found in self.curves.items() if job_id in found},
            totals={name: found[job_id] for name, found in self.totals.items() if job_id in found},
            problems=(*self.problems, PARTIAL_SERIES) if job_id in self.lost_jobs else self.problems,
        )

    def is_incomplete(self, job_id: int) -> bool:
        """Return whether numbers of a job may be returned later."""
        return self.failure is not None or job_id in self.lost_jobs


def measure(series: SeriesSource, records: Sequence[JobRecord], *, now_seconds: float, until: float) -> Measurements:
    """Run every query for jobs of one cluster with different ids; failed queries are listed among the problems.

    Raises one of :data:`UNREACHABLE` when the server does not respond at all.
    """
    spans = {record.job_id: span for record in records if (span := run_span(record, now_seconds))}
    if not spans:
        return Measurements()
    everything = tuple(spans.values())
    small = tuple(
        spans[record.job_id] for record in records if record.job_id in spans and (record.cpus or 0) <= MAX_CORES_DRAWN
    )
    reader = _Reader(series, records[0].cluster, {record.job_id: _most_series(record) for record in records}, until)
    reads = [reader.totals(name, query, everything) for name, query in TOTALS.items() if name not in _LATER_TOTALS]
    for name, query in CURVES.items():
        drawn = small if name == CORE_CURVE else everything
        if drawn and name not in _LATER_CURVES:
            reads.append(reader.curves(name, query, drawn))
    results = _run_all(reads, series.max_concurrent_queries)
    found = _join(results).totals
    later = [
        *_gpu_reads(reader, spans, found),
        *_traced_reads(reader, spans, found),
        *_profiled_reads(reader, spans, found),
    ]
    if later:
        results += _run_all(later, series.max_concurrent_queries)
    return _join(results)


class _Reader:
    """Make the calls that send queries for jobs of a cluster."""

    def __init__(self, series: SeriesSource, cluster: str, most_series: Mapping[int, int], until: float) -> None:
        self._series = series
        self._cluster = cluster
        self._most_series = most_series
        self._until = until

    def totals(self, name: str, query: SeriesQuery, spans: Sequence[JobSpan]) -> Read:
        own = replace(query, cluster=self._cluster)
        return partial(self._read, name, partial(self._series.read_totals, own, spans, until=self._until))

    def curves(self, name: str, query: SeriesQuery, spans: Sequence[JobSpan]) -> Read:
        own = replace(query, cluster=self._cluster)
        read = partial(self._series.read_curves, own, spans, points=MAX_CHART_POINTS, until=self._until)
        return partial(self._read, name, read)

    def _read(self, name: str, read: Callable[[], JobTotals | Curves]) -> tuple[str, Result]:
        try:
            return name, self._without_excess(read())
        except UNREACHABLE:
            raise
        except SourceError as error:
            return name, error

    def _without_excess(self, found: JobTotals | Curves) -> JobTotals | Curves:
        """Drop what no job can have: a server that returns it would fill the memory, query by query."""
        excess = frozenset(job for job, series in found.by_job.items() if len(series) > self._most_series[job])
        lost = found.lost_jobs | excess
        if isinstance(found, Curves):
            return Curves({job: series for job, series in found.by_job.items() if job not in excess}, lost)
        return JobTotals({job: series for job, series in found.by_job.items() if job not in excess}, lost)


def _most_series(record: JobRecord) -> int:
    return MAX_JOB_SERIES + MAX_NODE_SERIES * record.node_count


def _gpu_reads(reader: _Reader, spans: Mapping[int, JobSpan], totals: TotalsByJob) -> Iterator[Read]:
    some = tuple(span for job, span in spans.items() if any(job in totals.get(name, ()) for name in _GPU_SIGNS))
    if some:
        for name, query in GPU_TOTALS.items():
            yield reader.totals(name, query, some)
        for name, query in GPU_CURVES.items():
            yield reader.curves(name, query, some)
        longer = tuple(JobSpan(span.job_id, span.start_seconds, span.end_seconds + GPU_FAULTS_SECONDS) for span in some)
        for name, query in GPU_FAULTS.items():
            yield reader.totals(name, query, longer)


def _traced_reads(reader: _Reader, spans: Mapping[int, JobSpan], totals: TotalsByJob) -> Iterator[Read]:
    """Yield queries for the busiest processes of traced jobs; most jobs have none."""
    traced = iter(
        [job for job in spans if any(job in totals.get(name, ()) for name in ("traced_cpu", "traced_memory"))]
    )
    while jobs := tuple(islice(traced, TRACED_JOBS_AT_ONCE)):
        chosen = [
            key
            for job in jobs
            for key in order_processes({name: found.get(job, {}) for name, found in totals.items()})[:MAX_PROCESSES]
        ]
        among = (("pid", tuple(sorted({key[_PID] for key in chosen}))),)
        some = tuple(spans[job] for job in jobs)
        for name, query in TRACED_TOTALS.items():
            yield reader.totals(name, replace(query, among=among), some)
        for name, query in TRACED_CURVES.items():
            yield reader.curves(name, replace(query, among=among), some)
        for name, query in TRACED_BY_NODE.items():
            yield reader.curves(name, query, some)


def _profiled_reads(reader: _Reader, spans: Mapping[int, JobSpan], totals: TotalsByJob) -> Iterator[Read]:
    """Yield queries for Slurm's own samples of profiled jobs."""
    profiled = iter([job for job in spans if job in totals.get("profiled", ())])
    while jobs := tuple(islice(profiled, TRACED_JOBS_AT_ONCE)):
        some = tuple(spans[job] for job in jobs)
        for name, query in PROFILED_TOTALS.items():
            yield reader.totals(name, query, some)
        for name, query in PROFILED_CURVES.items():
            yield reader.curves(name, query, some)


def _join(results: Sequence[tuple[str, Result]]) -> Measurements:
    curves: dict[str, dict[int, tuple[Series, ...]]] = {}
    totals: dict[str, dict[int, Mapping[tuple[str, ...], float]]] = {}
    for name, result in results:
        if isinstance(result, Curves):
            curves.setdefault(name, {}).update(result.by_job)
        elif isinstance(result, JobTotals):
            totals.setdefault(name, {}).update(result.by_job)
    problems = (str(result) for _, result in results if isinstance(result, SourceError))
    lost = (result.lost_jobs for _, result in results if not isinstance(result, SourceError))
    return Measurements(
        curves=curves,
        totals=totals,
        problems=tuple(dict.fromkeys(problems)),
        failure=next((result for _, result in results if _may_succeed_later(result)), None),
        lost_jobs=frozenset[int]().union(*lost),
    )


def _may_succeed_later(result: Result) -> TypeGuard[SourceError]:
    """Return whether a query failed for a reason that may pass, also one that is not known."""
    return isinstance(result, SourceError) and not isinstance(result, QueryRejected)


def _run_all(reads: Sequence[Read], concurrency: int) -> list[tuple[str, Result]]:
    """Run the first query alone, to see whether the server responds, and the others concurrently."""
    first = reads[0]()
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(read) for read in reads[1:]]
        try:
            return [first, *(future.result() for future in futures)]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_span(record: JobRecord, now_seconds: float) -> JobSpan | None:
    """Return when a job ran; None when it did not."""
    if record.start_seconds is None:
        return None
    end = now_seconds if record.end_seconds is None else record.end_seconds
    return JobSpan(record.job_id, record.start_seconds, end) if end > record.start_seconds else None


NO_SERIES = "Nothing was measured: no time series source is configured."
NOT_SUMMARIZED = "This job could not be summarized because of a bug; see the log of slurmscope."
NO_CURVE = (
    "CPU time was measured, but not its course over time, so the rules do not use it. If this applies to all jobs, run "
    "slurmscope doctor portal."
)
PARTIAL = "Accounting has only part of this job's record so far: name, partition and requested resources are missing."
LONG_RUN_SECONDS = 600.0
"""A job that ran this long should have a curve at any scrape interval."""


class MadeReports(NamedTuple):
    """Reports, and the first failure after which the same queries may succeed later."""

    reports: list[JobReport]
    failure: SourceError | None


class ReportMaker:
    """Turn accounting records into reports."""

    def __init__(  # noqa: PLR0913 - all but the first are keyword-only
        self,
        series: SeriesSource | None,
        *,
        thresholds: Mapping[str, float] | None = None,
        rules: Sequence[Rule] = (),
        sections: Callable[[JobSummary], tuple[SiteSection, ...]] = lambda _: (),
        node_sizes: NodeSizes | None = None,
        site: EnergySite | None = None,
        timeout_seconds: float = 60.0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the time series source, thresholds of the rules, rules and sections of the site, and more."""
        self._series = series
        self._thresholds = thresholds
        self._rules = rules
        self._sections = sections
        self._node_sizes = node_sizes
        self._site = site or EnergySite()
        self._timeout_seconds = timeout_seconds
        self._wall_clock = wall_clock

    @property
    def series(self) -> SeriesSource | None:
        return self._series

    @property
    def has_series(self) -> bool:
        """Return whether there is a time series source."""
        return self._series is not None

    def make(self, records: Sequence[JobRecord]) -> list[JobReport]:
        """Return a report for each record, in their order; ``missing`` lists failed queries."""
        return self.try_make(records).reports

    def try_make(self, records: Sequence[JobRecord]) -> MadeReports:
        """Return a report for each record, and why a query failed that the time series server may answer later."""
        now = self._wall_clock()
        reports: dict[int, JobReport] = {}
        failure: SourceError | None = None
        for batch in split_runs(enumerate(records)):
            measurements = self._measure([record for _, record in batch], now)
            failure = failure or measurements.failure
            reports |= {position: self._make_marked(record, measurements, now) for position, record in batch}
        return MadeReports([reports[position] for position in range(len(records))], failure)

    def judge(self, summary: JobSummary) -> tuple[Finding, ...]:
        """Return what the rules find, with the thresholds and the rules of this site."""
        return judge(summary, self._thresholds, self._rules)

    def make_unmeasured(self, records: Sequence[JobRecord], problem: str) -> list[JobReport]:
        """Return reports from accounting alone, without a query; jobs that ran are incomplete."""
        now = self._wall_clock()
        nothing = Measurements(problems=(problem,), failure=SourceError(problem))
        return [self._make_marked(record, nothing, now) for record in records]

    def _measure(self, records: Sequence[JobRecord], now: float) -> Measurements:
        if self._series is None:
            return Measurements(problems=(NO_SERIES,))
        until = time.monotonic() + self._timeout_seconds
        try:
            return measure(self._series, records, now_seconds=now, until=until)
        except UNREACHABLE as error:
            return Measurements(problems=(f"The time series server is unreachable: {error}",), failure=error)

    def _make_marked(self, record: JobRecord, measurements: Measurements, now: float) -> JobReport:
        is_incomplete = run_span(record, now) is not None and measurements.is_incomplete(record.job_id)
        return replace(self._make_one(record, measurements.of(record.job_id), now), is_incomplete=is_incomplete)

    def _make_one(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        """Make one report; a bug in its summary costs this job its summary, and other jobs nothing."""
        try:
            bare = replace(record, jobstats_comment="")
            found = summarize(bare, measured, now_seconds=now)
            whole = add_js1(found, record.jobstats_comment)
            summary = self._add_sizes(self._site.add_costs(whole))
            return JobReport(
                summary=summary,
                made_seconds=int(now),
                findings=self.judge(summary),
                charts=make_charts(summary, measured),
                heat_maps=make_heat_maps(summary, measured),
                missing=(*measured.problems, *(_gaps(summary) if whole is found else (FROM_COMMENT,))),
                site_sections=self._sections(summary),
            )
        except Exception:  # a bug; the accounting record is still worth a report
            logger.exception("job not summarized", extra=fields(job=record.shown_id))
            end = now if record.end_seconds is None else record.end_seconds
            run_seconds = max(0.0, end - (end if record.start_seconds is None else record.start_seconds))
            summary = JobSummary(record=record, run_seconds=run_seconds)
            return JobReport(summary=summary, made_seconds=int(now), missing=(*measured.problems, NOT_SUMMARIZED))

    def _add_sizes(self, summary: JobSummary) -> JobSummary:
        """Add how large the nodes are."""
        record = summary.record
        if self._node_sizes is None or not record.nodes:
            return summary
        size = self._node_sizes.smallest(record.cluster, record.nodes)
        return replace(summary, node_cpus=size.cpus, node_memory_bytes=size.memory_bytes) if size else summary


def _gaps(summary: JobSummary) -> Iterator[str]:
    """Report a partial record, and totals without curves: mostly the configured scrape interval is wrong."""
    if summary.record.is_partial:
        yield PARTIAL
    coverage = summary.coverage
    if coverage.nodes_measured and not coverage.run_ratio and summary.run_seconds >= LONG_RUN_SECONDS:
        yield NO_CURVE


def split_runs(records: Iterable[tuple[int, JobRecord]]) -> list[list[tuple[int, JobRecord]]]:
    """Put runs of the same job, and jobs of other clusters, into different batches: query results are by job ID."""
    batches: dict[tuple[str, int], list[tuple[int, JobRecord]]] = {}
    runs: Counter[tuple[str, int]] = Counter()
    for position, record in records:
        runs[record.cluster, record.job_id] += 1
        batch = (record.cluster, runs[record.cluster, record.job_id])
        batches.setdefault(batch, []).append((position, record))
    return [*batches.values()]
