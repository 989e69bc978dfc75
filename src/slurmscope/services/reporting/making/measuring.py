# SPDX-License-Identifier: Apache-2.0
"""Run the time series queries of job reports, each for many jobs at once.

Traced processes are read in two rounds: first which processes the jobs have, then more about a few of them. So are
Slurm's own samples and GPUs: first which jobs have any, then those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeGuard

from slurmscope.analysis.queries import (
    CURVES,
    GPU_TOTALS,
    PROCESS_LABELS,
    PROFILED_CURVES,
    PROFILED_TOTALS,
    TOTALS,
    TRACED_BY_NODE,
    TRACED_CURVES,
    TRACED_TOTALS,
)
from slurmscope.analysis.traced_processes import MAX_PROCESSES, order_processes
from slurmscope.errors import QueryRejected, ServerRefused, ServerTimedOut, SourceError
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import MAX_CHART_POINTS
from slurmscope.model.series import Curves, JobSpan, Measured, Series, SeriesQuery, SeriesSource, Totals

PARTIAL_SERIES = "The time series server returned partial results, so some curves may be incomplete."
MAX_CORES_DRAWN = 128
"""Jobs with more cores have the total of each core, and no curve for each."""
CORE_CURVE = "cpu_core"
TRACED_JOBS_AT_ONCE = 10
"""Traced jobs in one query, which names the processes of all of them; also profiled jobs, with all their tasks."""

_LATER_TOTALS = frozenset({*TRACED_TOTALS, *PROFILED_TOTALS, *GPU_TOTALS})
_LATER_CURVES = frozenset({*TRACED_CURVES, *TRACED_BY_NODE, *PROFILED_CURVES})
"""Queries of the second round."""

_GPU_SIGNS = ("gpu_held_idle", "gpu_memory", "gpu")

UNREACHABLE = (ServerRefused, ServerTimedOut)
"""A server that does not answer one query will not answer the next one either."""

_PID = PROCESS_LABELS.index("pid")

TotalsByJob = Mapping[str, Mapping[int, Mapping[tuple[str, ...], float]]]
Result = Totals | Curves | SourceError
Read = Callable[[], tuple[str, Result]]
"""Send a query, and return its name and result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Hold query results by query name and job ID."""

    curves: Mapping[str, Mapping[int, tuple[Series, ...]]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[int, Mapping[tuple[str, ...], float]]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    failure: SourceError | None = None
    """The first failure after which the same query may succeed later."""
    lost_jobs: frozenset[int] = frozenset()
    """Jobs of which the source returned only a part."""

    def of(self, job_id: int) -> Measured:
        """Return the measurements of one job."""
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

    Raises one of :data:`UNREACHABLE` when the server does not answer at all.
    """
    spans = {record.job_id: span for record in records if (span := run_span(record, now_seconds))}
    if not spans:
        return Measurements()
    everything = tuple(spans.values())
    small = tuple(
        spans[record.job_id] for record in records if record.job_id in spans and (record.cpus or 0) <= MAX_CORES_DRAWN
    )
    reader = _Reader(series, records[0].cluster, until)
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

    def __init__(self, series: SeriesSource, cluster: str, until: float) -> None:
        self._series = series
        self._cluster = cluster
        self._until = until

    def totals(self, name: str, query: SeriesQuery, spans: Sequence[JobSpan]) -> Read:
        own = replace(query, cluster=self._cluster)
        return partial(_read, name, partial(self._series.read_totals, own, spans, until=self._until))

    def curves(self, name: str, query: SeriesQuery, spans: Sequence[JobSpan]) -> Read:
        own = replace(query, cluster=self._cluster)
        read = partial(self._series.read_curves, own, spans, points=MAX_CHART_POINTS, until=self._until)
        return partial(_read, name, read)


def _gpu_reads(reader: _Reader, spans: Mapping[int, JobSpan], totals: TotalsByJob) -> Iterator[Read]:
    """Yield queries for each GPU of jobs that hold any."""
    some = tuple(span for job, span in spans.items() if any(job in totals.get(name, ()) for name in _GPU_SIGNS))
    if some:
        for name, query in GPU_TOTALS.items():
            yield reader.totals(name, query, some)


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


def _read(name: str, read: Callable[[], Totals | Curves]) -> tuple[str, Result]:
    try:
        return name, read()
    except UNREACHABLE:
        raise
    except SourceError as error:
        return name, error


def _join(results: Sequence[tuple[str, Result]]) -> Measurements:
    curves: dict[str, dict[int, tuple[Series, ...]]] = {}
    totals: dict[str, dict[int, Mapping[tuple[str, ...], float]]] = {}
    for name, result in results:
        if isinstance(result, Curves):
            curves.setdefault(name, {}).update(result.by_job)
        elif isinstance(result, Totals):
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
    """Run the first query alone, to see whether the server answers, and the others concurrently."""
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
