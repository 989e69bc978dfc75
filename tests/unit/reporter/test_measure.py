# SPDX-License-Identifier: Apache-2.0
"""A failing server is queried for fewer jobs at once; jobs for which alone it fails cost others little."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.core.errors import MalformedAnswer, ServerBusy, ServerError, ServerRefused, ServerTimedOut
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import JobSpan, JobTotals, SeriesQuery
from slurmscope.reporter.measure import BATCH_JOBS, MAX_FAILED, MAX_FAILED_FIRST, MeasureOutcome, Measurer
from slurmscope.reports.make import ReportMaker
from tests.fakes.reporting import FakeSeries
from tests.fakes.reports import START, make_record

JOBS = [make_record(number) for number in range(100, 200)]
BAD_ANSWERS = [
    ServerTimedOut("timed out before its answer was complete"),
    ServerError("it answered 422: something new"),
    MalformedAnswer("it answered with a value that is not a number"),
    ServerBusy("it answered 502: Bad Gateway"),
]


class Series(FakeSeries):
    """Time out for many jobs; every query about ``bad_jobs`` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.bad_jobs: dict[int, Exception] = {}

    most_jobs = BATCH_JOBS

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        totals = super().read_totals(wanted, spans, until=until)
        if len(spans) > self.most_jobs:
            raise ServerTimedOut("timed out before its answer was complete")
        for span in spans:
            if span.job_id in self.bad_jobs:
                raise self.bad_jobs[span.job_id]
        return totals


class Bench:
    """Measure jobs, and sort them by what became of them."""

    def __init__(self) -> None:
        self.series = Series()
        self.measurer = Measurer(ReportMaker(self.series, wall_clock=lambda: START + 20_000.0))

    def measure(self, records: Sequence[JobRecord] = JOBS) -> dict[MeasureOutcome, set[int]]:
        """Measure jobs in a round of their own."""
        self.measurer.begin_round()
        found: dict[MeasureOutcome, set[int]] = {outcome: set() for outcome in MeasureOutcome}
        self.sizes = []
        for part in self.measurer.measure(records):
            found[part.outcome].update(record.job_id for record in part.records)
            self.sizes.append(len(part.records))
        assert len(records) == sum(self.sizes) == sum(map(len, found.values()))
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_slow_server_is_queried_for_fewer_jobs(bench: Bench) -> None:
    bench.series.most_jobs = 30
    bench.measure(JOBS[:60])
    assert [30, 30] == bench.sizes


def test_slow_server_is_seldom_tried_with_too_many_jobs(bench: Bench) -> None:
    bench.series.most_jobs = 30
    for _ in range(5):
        bench.measure()
    sizes = [len(job_ids) for _, job_ids in bench.series.queried]
    assert len([size for size in sizes if size > 30]) < 6


def test_server_that_hung_is_queried_for_many_jobs_again(bench: Bench) -> None:
    bench.series.most_jobs = 0
    bench.measure()
    bench.series.most_jobs = BATCH_JOBS
    sizes = []
    for _ in range(4):
        assert len(JOBS) == len(bench.measure()[MeasureOutcome.ANSWERED])
        sizes += bench.sizes
    assert len(sizes) < 70
    assert max(sizes) > 15


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("bad", [{150}, {100, 101, 102, 197, 198, 199}, set(range(130, 140))], ids=len)
def test_only_jobs_fail_for_which_alone_the_server_fails(bench: Bench, error: Exception, bad: set[int]) -> None:
    bench.series.bad_jobs = dict.fromkeys(bad, error)
    found = bench.measure()
    assert bad == found[MeasureOutcome.FAILED]
    assert set() == found[MeasureOutcome.UNTRIED]
    assert "" == bench.measurer.problem


def test_numbers_that_came_are_kept_where_one_query_fails_for_a_single_job(bench: Bench) -> None:
    bench.series.errors["jobs_io_read_bytes_total"] = BAD_ANSWERS[1]
    (part,) = bench.measurer.measure(JOBS[:1])
    (report,) = part.reports
    assert (MeasureOutcome.FAILED, True) == (part.outcome, report.is_incomplete)
    assert (None, 1.0) == (report.summary.io.read_bytes, report.summary.io.write_bytes)


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_few_of_many_bad_jobs_are_tried_in_one_round(bench: Bench, error: Exception) -> None:
    bench.series.bad_jobs = dict.fromkeys(range(100, 199), error)
    found = bench.measure()
    assert {199} == found[MeasureOutcome.ANSWERED]
    assert MAX_FAILED == len(found[MeasureOutcome.FAILED])
    assert "" == bench.measurer.problem


def test_hanging_server_costs_few_queries(bench: Bench) -> None:
    bench.series.errors["*"] = BAD_ANSWERS[0]
    rounds = []
    for _ in range(2):
        bench.series.queried.clear()
        assert MAX_FAILED_FIRST == len(bench.measure()[MeasureOutcome.FAILED])
        # Nothing more is tried in the same round.
        assert [MeasureOutcome.UNTRIED] == [part.outcome for part in bench.measurer.measure(JOBS)]
        rounds.append([len(job_ids) for _, job_ids in bench.series.queried])
    assert [[100, 50, 25, 12, 6, 3, 1, 1, 1], [1, 1, 1]] == rounds
    assert str(BAD_ANSWERS[0]) == bench.measurer.problem


def test_unreachable_server_is_queried_once(bench: Bench) -> None:
    bench.series.errors["*"] = ServerRefused("connection refused")
    found = bench.measure()
    assert {record.job_id for record in JOBS} == found[MeasureOutcome.UNTRIED]
    assert [100] == [len(job_ids) for _, job_ids in bench.series.queried]
    assert "connection refused" == bench.measurer.problem


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_server_may_begin_to_fail_after_it_has_answered(bench: Bench, error: Exception) -> None:
    """As behind a proxy, if the server is restarted while a backlog is read."""
    bench.series.most_jobs = 30
    parts = bench.measurer.measure(JOBS)
    first = next(parts)
    bench.series.errors["*"] = error
    outcomes = [part.outcome for part in parts]
    assert MeasureOutcome.ANSWERED is first.outcome
    assert [*[MeasureOutcome.FAILED] * MAX_FAILED, MeasureOutcome.UNTRIED] == outcomes


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_jobs_that_never_ran_do_not_show_that_the_server_answers(bench: Bench, error: Exception) -> None:
    bench.series.errors["*"] = error
    never = [make_record(number, state="CANCELLED", start_seconds=None) for number in range(50, 60)]
    found = bench.measure([job for pair in zip(never, JOBS[:10], strict=True) for job in pair])
    assert {job.job_id for job in never} == found[MeasureOutcome.ANSWERED]
    assert str(error) == bench.measurer.problem
