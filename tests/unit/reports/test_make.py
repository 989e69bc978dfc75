# SPDX-License-Identifier: Apache-2.0
"""Reports are made in batches, of whatever could be had."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from slurmscope.core.errors import MalformedAnswer, ServerRefused, ServerTimedOut, SourceError
from slurmscope.http.client.request import HttpAnswer
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, SeriesQuery
from slurmscope.prometheus.responses import parse_answer
from slurmscope.reports.make import (
    MAX_CORES_DRAWN,
    NO_CURVE,
    NO_SERIES,
    NOT_SUMMARIZED,
    PARTIAL,
    PARTIAL_SERIES,
    ReportMaker,
)
from tests.fakes.reporting import FakeSeries
from tests.fakes.reports import START, make_record

NOW = START + 10_000.0


def maker(series: FakeSeries | None) -> ReportMaker:
    return ReportMaker(series, wall_clock=lambda: NOW)


def test_each_query_is_sent_once_for_all_jobs() -> None:
    series = FakeSeries()
    reports = maker(series).make([make_record(1), make_record(2), make_record(3)])
    assert [1, 2, 3] == [report.record.job_id for report in reports]
    assert {(1, 2, 3)} == {jobs for _, jobs in series.queried}
    assert len(CURVES) + len(TOTALS) == len(series.queried)


def test_jobs_of_several_clusters_are_never_in_one_query() -> None:
    series = FakeSeries()
    records = [make_record(number, cluster=name) for number in (1, 2) for name in ("alpha", "beta")]
    reports = maker(series).make(records)
    assert records == [report.record for report in reports]
    assert {("alpha", (1, 2)), ("beta", (1, 2))} == series.clusters


class CountingSeries(FakeSeries):
    """Count concurrent queries; all but the first, which is sent alone, wait for the others."""

    def __init__(self, max_concurrent_queries: int) -> None:
        super().__init__(max_concurrent_queries=max_concurrent_queries)
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.are_all_here = threading.Event()

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        is_first = not self.queried
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == self.max_concurrent_queries:
                self.are_all_here.set()
        assert is_first or self.are_all_here.wait(60)
        totals = super().read_totals(wanted, spans, until=until)
        with self.lock:
            self.now -= 1
        return totals


@pytest.mark.parametrize("at_once", [1, 3])
def test_source_is_queried_with_its_own_concurrency(at_once: int) -> None:
    series = CountingSeries(max_concurrent_queries=at_once)
    maker(series).make([make_record(1)])
    assert at_once == series.most


def test_runs_of_one_job_are_queried_separately() -> None:
    series = FakeSeries()
    first = make_record(1, end_seconds=START + 60, state="REQUEUED")
    again = make_record(1, start_seconds=START + 100)
    reports = maker(series).make([first, again, make_record(2)])
    assert [START, START + 100, START] == [report.record.start_seconds for report in reports]
    assert {(1, 2): len(CURVES) + len(TOTALS), (1,): len(CURVES) + len(TOTALS)} == Counter(
        jobs for _, jobs in series.queried
    )


def test_job_that_never_started_is_not_queried() -> None:
    series = FakeSeries()
    (report,) = maker(series).make([make_record(1, start_seconds=None, end_seconds=None, state="PENDING")])
    assert ([], 0) == (series.queried, report.summary.run_seconds)


def test_cores_of_large_jobs_have_no_curves() -> None:
    series = FakeSeries()
    maker(series).make([make_record(1, cpus=MAX_CORES_DRAWN + 1), make_record(2, cpus=MAX_CORES_DRAWN)])
    core = [jobs for metric, jobs in series.queried if metric == "jobs_cpu_core_seconds_total"]
    assert [(1, 2), (2,)] == core


def test_question_that_fails_costs_only_its_own_numbers() -> None:
    series = FakeSeries(errors={"jobs_io_read_bytes_total": MalformedAnswer("Prometheus: cut")})
    (report,) = maker(series).make([make_record(1)])
    assert ("Prometheus: cut",) == report.missing
    assert (None, 1.0) == (report.summary.io.read_bytes, report.summary.io.write_bytes)


@pytest.mark.parametrize("error", [ServerRefused("it is down"), ServerTimedOut("it is slow")])
def test_server_that_is_unreachable_is_queried_once(error: Exception) -> None:
    series = FakeSeries(errors={"*": error})
    (report,) = maker(series).make([make_record(1)])
    assert ((f"The time series server is unreachable: {error}",), 1) == (report.missing, len(series.queried))
    # What accounting knows is told all the same.
    assert 14000.0 == report.summary.cpu.time.used


def test_failure_that_may_pass_is_returned_with_the_reports() -> None:
    error = ServerRefused("it is down")
    made = maker(FakeSeries(errors={"*": error})).try_make([make_record(1)])
    assert (error, [True]) == (made.failure, [report.is_incomplete for report in made.reports])


def test_report_from_accounting_alone_is_incomplete_if_the_job_ran() -> None:
    series = FakeSeries()
    never = make_record(2, state="CANCELLED", start_seconds=None)
    reports = maker(series).make_unmeasured([make_record(1), never], "it failed")
    assert ([True, False], []) == ([report.is_incomplete for report in reports], series.queried)
    assert [("it failed",), ("it failed",)] == [report.missing for report in reports]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_busy_server_costs_one_number_for_now(status: int) -> None:
    with pytest.raises(SourceError) as busy:
        parse_answer(HttpAnswer(status=status, body=b"starting up"))
    series = FakeSeries(errors={"jobs_io_read_bytes_total": busy.value})
    (report,) = maker(series).make([make_record(1)])
    assert (None, 1.0) == (report.summary.io.read_bytes, report.summary.io.write_bytes)
    assert busy.value is maker(series).try_make([make_record(1)]).failure


def test_job_that_cannot_be_summed_up_costs_no_other() -> None:
    # No accounting says so: a size that is none.
    odd = make_record(2, memory_bytes="much")
    first, second = maker(FakeSeries()).make([make_record(1), odd])
    assert ((), (NOT_SUMMARIZED,)) == (first.missing, second.missing)
    assert 7200 == second.summary.run_seconds


def test_partial_answers_are_reported_once() -> None:
    (report,) = maker(FakeSeries(is_partial=True)).make([make_record(1)])
    assert 1 == len(report.missing)
    assert "partial results" in report.missing[0]
    assert report.is_incomplete


def test_partial_answers_about_one_job_are_reported_for_that_job() -> None:
    series = FakeSeries()
    series.read_curves = lambda *_, **__: Curves({}, frozenset({2}))  # type: ignore[method-assign]
    first, second = maker(series).make([make_record(1), make_record(2)])
    assert [(False, False), (True, True)] == [
        (report.is_incomplete, PARTIAL_SERIES in report.missing) for report in (first, second)
    ]


@pytest.mark.parametrize(("run_seconds", "is_told"), [(7200, True), (599, False)])
def test_total_without_a_curve_is_reported_of_a_long_run(run_seconds: int, is_told: bool) -> None:
    class Rare(FakeSeries):
        def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
            return Curves()

    (report,) = maker(Rare()).make([make_record(1, end_seconds=START + run_seconds)])
    assert ((NO_CURVE,) if is_told else ()) == report.missing


def test_report_says_that_the_record_is_partial() -> None:
    (report,) = maker(FakeSeries()).make([make_record(1, name="allocation", partition="")])
    assert (PARTIAL,) == report.missing


def test_reports_without_any_source_say_so() -> None:
    (report,) = maker(None).make([make_record(1)])
    assert (NO_SERIES,) == report.missing
