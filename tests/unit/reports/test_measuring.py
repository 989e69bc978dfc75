# SPDX-License-Identifier: Apache-2.0
"""Check that traced processes and Slurm's samples are read in a second round, for jobs that have them only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.process_samples import MAX_PROCESSES
from slurmscope.jobs.queries import (
    GPU_FAULTS,
    GPU_TOTALS,
    PROFILED_CURVES,
    PROFILED_TOTALS,
    TRACED_BY_NODE,
    TRACED_CURVES,
    TRACED_TOTALS,
)
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, Series, SeriesQuery
from slurmscope.reports.make import MAX_JOB_SERIES, MAX_NODE_SERIES, TRACED_JOBS_AT_ONCE, Measurements, measure
from tests.fakes.reporting import FakeSeries
from tests.fakes.reports import START, make_record

LATER = len(TRACED_TOTALS) + len(TRACED_CURVES) + len(TRACED_BY_NODE)
CPU = "slurm_trace_cpu_seconds_total"


@dataclass
class TracedSeries:
    """Trace some jobs with so many processes each; process N used N seconds."""

    processes: dict[int, int]
    broken: str = ""
    later: list[tuple[SeriesQuery, tuple[int, ...]]] = field(default_factory=list)
    max_concurrent_queries: int = 2

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return the traced processes."""
        self._note(wanted, spans)
        jobs = [span.job_id for span in spans if span.job_id in self.processes]
        if not wanted.metric.startswith("slurm_trace_"):
            return JobTotals()
        return JobTotals(
            {job: {("n1", "0", "", str(pid), "a"): float(pid) for pid in range(self.processes[job])} for job in jobs}
        )

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return one curve for each job."""
        self._note(wanted, spans)
        return Curves({span.job_id: (Series(("n1",), (START + 1.0,), (1.0,)),) for span in spans})

    def _note(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> None:
        if wanted.metric.startswith("slurm_trace_") and (wanted.among or len(wanted.by) == 1):
            self.later.append((wanted, tuple(span.job_id for span in spans)))
            if wanted.metric == self.broken:
                raise MalformedAnswer("cut")


def measured(series: TracedSeries, jobs: Sequence[int]) -> Measurements:
    records = [make_record(job) for job in jobs]
    return measure(series, records, now_seconds=START + 10_000.0, until=0.0)


def test_jobs_without_traces_cost_no_second_round() -> None:
    series = TracedSeries({})
    found = measured(series, [1, 2])

    assert [] == series.later
    assert not found.curves.keys() & TRACED_CURVES.keys()


def test_second_round_is_about_the_busiest_processes_of_traced_jobs() -> None:
    series = TracedSeries({2: 100})
    found = measured(series, [1, 2, 3])

    assert {(2,)} == {jobs for _, jobs in series.later}
    assert LATER == len(series.later)
    busiest = {str(pid) for pid in range(100 - MAX_PROCESSES, 100)}
    named = [dict(query.among) for query, _ in series.later if query.among]
    assert all({"pid"} == among.keys() and busiest == set(among["pid"]) for among in named)
    assert LATER - len(TRACED_BY_NODE) == len(named)
    assert [2] == list(found.curves["traced_cpu"])
    assert {2} == found.totals["traced_threads"].keys()


def test_many_traced_jobs_are_read_in_parts_that_come_together() -> None:
    jobs = range(1, TRACED_JOBS_AT_ONCE + 2)
    series = TracedSeries(dict.fromkeys(jobs, 1))
    found = measured(series, jobs)

    assert {tuple(jobs[:-1]), (jobs[-1],)} == {some for _, some in series.later}
    assert set(jobs) == found.curves["traced_memory"].keys() == found.totals["traced_read"].keys()


def test_query_of_the_second_round_that_fails_costs_its_own_numbers() -> None:
    found = measured(TracedSeries({1: 1}, broken="slurm_trace_threads"), [1])

    assert ("cut",) == found.problems
    assert "traced_threads" not in found.curves
    assert "traced_memory" in found.curves


@dataclass
class ProfiledSeries:
    """Say that Slurm profiled some jobs."""

    profiled: frozenset[int]
    queries: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    max_concurrent_queries: int = 1

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one value for each profiled job."""
        self._note(wanted, spans)
        jobs = [span.job_id for span in spans if span.job_id in self.profiled]
        return JobTotals({job: {tuple(wanted.by): 1.0} for job in jobs if wanted.metric.startswith("slurm_profile_")})

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return nothing."""
        self._note(wanted, spans)
        return Curves()

    def _note(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> None:
        if wanted.metric.startswith("slurm_profile_"):
            self.queries.append((wanted.metric, tuple(span.job_id for span in spans)))


def test_one_query_finds_out_which_jobs_slurm_profiled() -> None:
    series = ProfiledSeries(frozenset())
    measure(series, [make_record(1), make_record(2)], now_seconds=START + 10_000.0, until=0.0)

    assert [("slurm_profile_last_sample_timestamp_seconds", (1, 2))] == series.queries


def test_samples_are_read_of_profiled_jobs_in_parts() -> None:
    jobs = range(1, TRACED_JOBS_AT_ONCE + 3)
    series = ProfiledSeries(frozenset(jobs[1:]))
    records = [make_record(job) for job in jobs]
    found = measure(series, records, now_seconds=START + 10_000.0, until=0.0)

    later = series.queries[1:]
    assert {tuple(jobs[1:-1]), (jobs[-1],)} == {some for _, some in later}
    assert 2 * (len(PROFILED_TOTALS) + len(PROFILED_CURVES)) == len(later)
    assert set(jobs[1:]) == found.totals["profiled_cpu"].keys() == found.totals["profiled_sent"].keys()


@dataclass
class GpuSeries:
    """Say that some jobs used GPUs."""

    with_gpus: frozenset[int]
    queries: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    max_concurrent_queries: int = 1

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one value for each job with GPUs."""
        self.queries.append((wanted.metric, tuple(span.job_id for span in spans)))
        jobs = [span.job_id for span in spans if span.job_id in self.with_gpus]
        return JobTotals({job: {tuple(wanted.by): 1.0} for job in jobs if wanted.metric.startswith("jobs_gpu_")})

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return nothing."""
        return Curves()


def test_each_gpu_is_queried_only_for_jobs_that_have_any() -> None:
    series = GpuSeries(frozenset({2}))
    found = measure(series, [make_record(1), make_record(2)], now_seconds=START + 10_000.0, until=0.0)

    of_each = {query.metric for query in (*GPU_TOTALS.values(), *GPU_FAULTS.values())}
    assert of_each == {metric for metric, jobs in series.queries if jobs == (2,)}
    assert {(2,)} == {jobs for metric, jobs in series.queries if metric in of_each}
    assert {2} == found.totals["gpu_memory_size"].keys()


def test_jobs_without_gpus_cost_no_query_for_each_gpu() -> None:
    series = GpuSeries(frozenset())
    measure(series, [make_record(1)], now_seconds=START + 10_000.0, until=0.0)

    assert not {query.metric for query in GPU_TOTALS.values()} & {metric for metric, _ in series.queries}


class LyingSeries(FakeSeries):
    """Return thousands of series of one job, and as many of another for which they are not too many."""

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        many: dict[tuple[str, ...], float] = {
            (f"n{number}",): 1.0 for number in range(MAX_JOB_SERIES + 2 * MAX_NODE_SERIES)
        }
        return JobTotals({span.job_id: many for span in spans} if len(wanted.by) == 1 else {})


def test_more_series_than_a_job_can_have_are_dropped() -> None:
    records = [make_record(1, node_count=1), make_record(2, node_count=2)]

    found = measure(LyingSeries(), records, now_seconds=START + 9000.0, until=0.0)

    assert {2} == {job for by_job in found.totals.values() for job in by_job}
    assert (True, False) == (found.is_incomplete(1), found.is_incomplete(2))
