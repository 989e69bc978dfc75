# SPDX-License-Identifier: Apache-2.0
"""Jobs wait for a failing time series server, but not where nothing is measured; a slow one is queried for fewer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from slurmscope.core.errors import (
    MalformedAnswer,
    QueryRejected,
    ServerBusy,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SourceError,
)
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Curves, JobSpan, SeriesQuery, Totals
from slurmscope.reporter.ended_reports import (
    BATCH_JOBS,
    MAX_FAILED_OF_BATCH,
    MEASURED_AGAIN,
    MIN_SILENT_JOBS,
    EndedReports,
)
from slurmscope.reporter.known_agents import MIN_RUN_SECONDS
from slurmscope.reports.make import ReportMaker
from tests.fakes.reporting import FakeAccounting, FakeArchive, FakeSeries
from tests.fakes.reports import START, make_record, make_unmeasured_report

NOW = START + 20_000.0
DAY = 86400.0
RUNNING = make_record(1, state="RUNNING", end_seconds=None)
JOBS = [make_record(number, cpu_seconds=None) for number in range(10, 10 + MIN_SILENT_JOBS)]


class Series(FakeSeries):
    """Have series of no job, or time out for many jobs; every query about ``bad_jobs`` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.bad_jobs: dict[int, Exception] = {}
        self.kept_jobs: set[int] = set()
        """Jobs that have series although it is silent about others."""

    is_silent = False
    most_jobs = BATCH_JOBS

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        curves = super().read_curves(wanted, spans, points=points, until=until)
        return Curves() if self._is_empty(spans) else curves

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> Totals:
        totals = super().read_totals(wanted, spans, until=until)
        return Totals() if self._is_empty(spans) else totals

    def _is_empty(self, spans: Sequence[JobSpan]) -> bool:
        if len(spans) > self.most_jobs:
            raise ServerTimedOut("timed out before its answer was complete")
        for span in spans:
            if span.job_id in self.bad_jobs:
                raise self.bad_jobs[span.job_id]
        return self.is_silent and not self.kept_jobs.issuperset(span.job_id for span in spans)


class Bench:
    """Hold what makes reports of ended jobs."""

    def __init__(self) -> None:
        self.series = Series()
        self.archive = FakeArchive()
        self.accounting = FakeAccounting([RUNNING])
        self.ended = self.restarted()

    def restarted(self) -> EndedReports:
        maker = ReportMaker(self.series, wall_clock=lambda: NOW)
        self.ended = EndedReports(maker, self.accounting, self.archive, cluster="lab", give_up_seconds=DAY)  # type: ignore[arg-type]
        return self.ended

    def make(self, records: Sequence[object] = JOBS, now: float = NOW) -> list[int]:
        """Store reports, and return how many were made at once."""
        sizes = []
        for reports in self.ended.make(records, now):  # type: ignore[arg-type]
            self.archive.save(reports)
            sizes.append(len(reports))
        return sizes

    def make_in_rounds(self, records: Sequence[JobRecord]) -> int:
        """Store reports of all jobs, those that must wait in later rounds; return the number of rounds."""
        rounds = 0
        while waiting := [record for record in records if record.job_id not in self.stored()]:
            rounds += 1
            assert rounds <= len(records)
            with contextlib.suppress(SourceError):
                self.make(waiting)
        return rounds

    def stored(self) -> dict[int, bool]:
        """Return the IDs of stored jobs, and whether they are marked."""
        return {report.record.job_id: report.is_incomplete for report in self.archive.reports.values()}

    def marks(self) -> list[bool]:
        return [report.is_incomplete for report in self.archive.reports.values()]


@pytest.fixture
def bench() -> Bench:
    """Return a site on which a job on the node was measured."""
    bench = Bench()
    bench.make([make_record(2)])
    bench.archive.reports.clear()
    return bench


def test_jobs_wait_while_the_server_has_no_series_at_all(bench: Bench) -> None:
    bench.series.is_silent = True
    with pytest.raises(ServerBusy, match="no series of 3 ended and 1 running jobs, although their nodes have agents"):
        bench.make()
    assert bench.ended.is_server_failing
    bench.series.is_silent = False
    assert [len(JOBS)] == bench.make()
    assert not bench.ended.is_server_failing


def test_agents_are_known_after_a_restart() -> None:
    bench = Bench()
    bench.make([make_record(2)])
    bench.restarted()
    bench.series.is_silent = True
    with pytest.raises(ServerBusy, match="no series"):
        bench.make()


def test_agents_are_known_after_a_restart_in_a_long_failure() -> None:
    bench = Bench()
    bench.make([make_record(2)])
    bench.series.is_silent = True
    bench.accounting.records.clear()
    bench.make()
    bench.restarted()
    bench.make([make_record(20, cpu_seconds=None)])
    assert [False, *[True] * (len(JOBS) + 1)] == bench.marks()


def test_jobs_do_not_wait_where_nothing_was_ever_measured() -> None:
    bench = Bench()
    bench.series.is_silent = True
    assert [len(JOBS)] == bench.make()
    assert [False] * len(JOBS) == bench.marks()


def test_jobs_on_nodes_without_an_agent_do_not_wait(bench: Bench) -> None:
    bench.series.is_silent = True
    assert [len(JOBS)] == bench.make([make_record(record.job_id, nodes=("n2",)) for record in JOBS])
    assert [False] * len(JOBS) == bench.marks()


@pytest.mark.parametrize("running", [[], [make_record(1, state="RUNNING", end_seconds=None, nodes=("n2",))]])
def test_jobs_without_series_are_marked_where_no_running_job_shows_why(bench: Bench, running: list[object]) -> None:
    bench.series.is_silent = True
    bench.accounting.records = running  # type: ignore[assignment]
    assert [len(JOBS)] == bench.make()
    assert [True] * len(JOBS) == bench.marks()


def test_few_jobs_without_series_are_marked_and_do_not_wait(bench: Bench) -> None:
    bench.series.is_silent = True
    assert [1] == bench.make(JOBS[:1])
    assert [True] == bench.marks()
    assert [(MEASURED_AGAIN,)] == [report.missing for report in bench.archive.reports.values()]


def test_short_jobs_need_no_series(bench: Bench) -> None:
    bench.series.is_silent = True
    end = int(START + MIN_RUN_SECONDS) - 1
    assert [len(JOBS)] == bench.make([make_record(record.job_id, end_seconds=end) for record in JOBS])
    assert [False] * len(JOBS) == bench.marks()


def test_without_a_source_of_series_nothing_waits(bench: Bench) -> None:
    bench.make([make_record(2)])
    maker, archive = ReportMaker(None), bench.archive
    ended = EndedReports(maker, bench.accounting, archive, cluster="lab", give_up_seconds=DAY)  # type: ignore[arg-type]
    ((first, *_),) = ended.make(JOBS, NOW)
    assert JOBS[0] == first.record
    assert [] == bench.archive.found


def test_silence_is_waited_for_once(bench: Bench) -> None:
    """Agents may have been removed: their jobs are marked from then on."""
    bench.series.is_silent = True
    with pytest.raises(ServerBusy):
        bench.make()
    assert [len(JOBS)] == bench.make(now=NOW + 2 * DAY)
    later = [make_record(record.job_id, end_seconds=int(NOW + 2 * DAY)) for record in JOBS]
    assert [len(JOBS)] == bench.make(later, NOW + 2 * DAY)
    assert {True} == set(bench.marks())
    assert 0 == bench.ended.recoveries
    bench.series.is_silent = False
    bench.make(now=NOW + 2 * DAY)
    assert 1 == bench.ended.recoveries


def test_unknown_error_is_waited_for_and_then_marked(bench: Bench) -> None:
    bench.series.errors["jobs_io_read_bytes_total"] = ServerError("it answered 422: something new")
    with pytest.raises(ServerError, match="something new"):
        bench.make()
    assert len(JOBS) == sum(bench.make(now=NOW + 2 * DAY))
    assert [True] * len(JOBS) == bench.marks()
    # The jobs of the day before do not wait once more.
    assert [1] == bench.make([make_record(50)], now=NOW + 2 * DAY)


def test_job_that_never_ran_is_not_incomplete(bench: Bench) -> None:
    bench.series.errors["*"] = ServerTimedOut("timed out before its answer was complete")
    bench.ended.failing_since = NOW - DAY
    never = make_record(20, state="CANCELLED", start_seconds=None, cpu_seconds=None)
    bench.make([never, make_record(21, cpu_seconds=None)], now=NOW + 2 * DAY)
    assert [False, True] == bench.marks()


def test_query_that_the_server_cannot_evaluate_costs_only_its_own_numbers(bench: Bench) -> None:
    bench.series.errors["jobs_io_read_bytes_total"] = QueryRejected("it answered 400: parse error")
    assert [len(JOBS)] == bench.make()
    assert [False] * len(JOBS) == bench.marks()


def test_slow_server_is_queried_for_fewer_jobs(bench: Bench) -> None:
    bench.series.most_jobs = 30
    jobs = [make_record(number) for number in range(100, 160)]
    assert [30, 30] == bench.make(jobs)


def test_server_that_hung_is_queried_for_many_jobs_again(bench: Bench) -> None:
    """All in one round: a backlog of a day is read in one."""
    bench.series.most_jobs = 0
    with pytest.raises(ServerTimedOut):
        bench.make([make_record(number) for number in range(100, 200)])
    bench.series.most_jobs = BATCH_JOBS
    backlog = [make_record(number) for number in range(1000, 1400)]
    sizes = [size for begin in range(0, 400, 100) for size in bench.make(backlog[begin : begin + 100])]
    assert 400 == sum(sizes)
    assert len(sizes) < 70
    assert max(sizes) > 15


def test_slow_server_is_seldom_tried_with_too_many_jobs(bench: Bench) -> None:
    bench.series.most_jobs = 30
    for begin in range(1000, 1500, 100):
        bench.make([make_record(number) for number in range(begin, begin + 100)])
    sizes = [len(job_ids) for _, job_ids in bench.series.queried]
    assert len([size for size in sizes if size > 30]) < 6


BAD_ANSWERS = [
    ServerTimedOut("timed out before its answer was complete"),
    ServerError("it answered 422: something new"),
    MalformedAnswer("it answered with a value that is not a number"),
    ServerBusy("it answered 502: Bad Gateway"),
]


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("bad", [{100}, {150}, {199}, {100, 199}, set(range(130, 140)), set(range(101, 200))], ids=len)
def test_jobs_for_which_alone_the_server_fails_delay_no_others(bench: Bench, error: Exception, bad: set[int]) -> None:
    bench.series.bad_jobs = dict.fromkeys(bad, error)
    bench.make_in_rounds([make_record(number) for number in range(100, 200)])

    assert bad == {job_id for job_id, is_marked in bench.stored().items() if is_marked}
    assert not bench.ended.is_server_failing
    bench.series.bad_jobs.clear()
    bench.make([make_record(300)])
    assert 0 == bench.ended.recoveries, "the server had not failed"


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("bad", [{150}, {100, 101, 102, 197, 198, 199}], ids=len)
def test_only_bad_jobs_are_marked_at_once(bench: Bench, error: Exception, bad: set[int]) -> None:
    bench.series.bad_jobs = dict.fromkeys(bad, error)
    assert 1 == bench.make_in_rounds([make_record(number) for number in range(100, 200)])
    assert bad == {job_id for job_id, is_marked in bench.stored().items() if is_marked}


def test_few_of_many_bad_jobs_are_tried_in_one_round(bench: Bench) -> None:
    bench.series.bad_jobs = dict.fromkeys(range(101, 200), BAD_ANSWERS[0])
    with pytest.raises(type(BAD_ANSWERS[0])):
        bench.make([make_record(number) for number in range(100, 200)])
    assert MAX_FAILED_OF_BATCH == sum(bench.marks())
    assert not bench.ended.is_server_failing


def test_only_bad_running_jobs_are_left_out(bench: Bench) -> None:
    bench.series.bad_jobs = dict.fromkeys((100, 101, 102, 197, 198, 199), BAD_ANSWERS[0])
    left_out: list[JobRecord] = []
    running = [make_record(number, state="RUNNING", end_seconds=None) for number in range(100, 200)]
    made = [report.record.job_id for part in bench.ended.measure_running(running, left_out.extend) for report in part]
    assert set(bench.series.bad_jobs) == {record.job_id for record in left_out}
    assert set(range(103, 197)) == set(made)


def test_other_marked_jobs_are_tried_each_time_where_many_are_bad(bench: Bench) -> None:
    good = {125, 150, 175}
    bench.series.bad_jobs = dict.fromkeys(set(range(100, 200)) - good, BAD_ANSWERS[0])
    jobs = [make_unmeasured_report(make_record(number)) for number in range(100, 200)]
    made: set[int] = set()
    for _ in range(len(jobs)):
        with contextlib.suppress(SourceError):
            made.update(report.record.job_id for reports in bench.ended.make_again(jobs) for report in reports)
    assert good == made


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_only_job_of_a_batch_waits_for_a_server_that_fails(bench: Bench, error: Exception) -> None:
    bench.series.errors["*"] = error
    with pytest.raises(type(error)):
        bench.make([make_record(100)])
    assert bench.ended.is_server_failing
    assert {} == bench.archive.reports


@pytest.mark.parametrize("is_restarted", [False, True])
def test_only_job_of_a_batch_does_not_wait_if_the_server_answers_for_others(bench: Bench, is_restarted: bool) -> None:
    """It answers for the job that was measured last; a process that has measured none tries those that run."""
    if is_restarted:
        bench.restarted()
    bench.series.bad_jobs = {100: BAD_ANSWERS[0]}
    assert [1] == bench.make([make_record(100)])
    assert [True] == bench.marks()
    assert not bench.ended.is_server_failing


def test_jobs_wait_for_series_after_one_has_failed_alone(bench: Bench) -> None:
    bench.series.bad_jobs = {100: BAD_ANSWERS[0]}
    bench.make([make_record(100)])
    bench.series.is_silent = True
    with pytest.raises(ServerBusy, match="no series"):
        bench.make()


def test_only_job_of_a_batch_waits_if_no_other_job_has_series() -> None:
    bench = Bench()
    bench.series.is_silent = True
    bench.series.bad_jobs = {100: BAD_ANSWERS[0]}
    for running in ([RUNNING], []):
        bench.accounting.records = [*running]
        with pytest.raises(ServerTimedOut):
            bench.make([make_record(100)])
    bench.accounting.error = SourceError("squeue failed")
    with pytest.raises(ServerTimedOut):
        bench.make([make_record(100)])


def test_jobs_that_fail_alone_are_marked_where_nothing_was_ever_measured() -> None:
    bench = Bench()
    bench.series.is_silent = True
    bench.series.bad_jobs = {101: BAD_ANSWERS[0]}
    assert [1, 1] == bench.make([make_record(100), make_record(101)])
    assert [False, True] == bench.marks()


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_jobs_wait_for_a_server_that_begins_to_fail_after_it_has_answered(bench: Bench, error: Exception) -> None:
    """As behind a proxy, if the server is restarted while a backlog is read."""
    bench.series.most_jobs = 30
    jobs = [make_record(number) for number in range(100, 200)]
    made = bench.ended.make(jobs, NOW)
    first = next(made)
    bench.series.errors["*"] = error
    with pytest.raises(type(error)):
        list(made)
    assert {False} == {report.is_incomplete for report in first}
    assert bench.ended.is_server_failing


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_jobs_that_never_ran_do_not_show_that_the_server_answers(bench: Bench, error: Exception) -> None:
    """Nothing is queried for them, so they are archived at once, and the others wait."""
    bench.series.errors["*"] = error
    never = [make_record(number, state="CANCELLED", start_seconds=None) for number in range(50, 60)]
    ran = [make_record(number) for number in range(100, 110)]
    for _ in range(2):
        with pytest.raises(type(error)):
            bench.make([job for pair in zip(never, ran, strict=True) for job in pair], now=NOW)
        assert {job.job_id for job in never} == {report.record.job_id for report in bench.archive.reports.values()}
    assert NOW == bench.ended.failing_since


def test_jobs_without_series_wait_if_the_probed_running_job_fails(bench: Bench) -> None:
    bench.series.is_silent = True
    bench.series.bad_jobs = {RUNNING.job_id: BAD_ANSWERS[-1]}
    with pytest.raises(ServerBusy, match="502"):
        bench.make()
    assert {} == bench.archive.reports

    bench.series.kept_jobs = {2}
    assert [len(JOBS)] == bench.make(), "it has series of the job that was measured last"
    assert [True] * len(JOBS) == bench.marks()


def test_unreachable_server_is_not_queried_for_fewer_jobs(bench: Bench) -> None:
    bench.series.errors["*"] = ServerRefused("connection refused")
    bench.series.queried.clear()
    with pytest.raises(ServerRefused):
        bench.make([make_record(number) for number in range(100, 200)])
    assert [100] == [len(job_ids) for _, job_ids in bench.series.queried]


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: type(error).__name__)
def test_jobs_for_which_alone_the_server_fails_do_not_keep_others_from_being_measured_again(
    bench: Bench, error: Exception
) -> None:
    bench.series.bad_jobs = dict.fromkeys((100, 101, 102, 103), error)
    jobs = [make_unmeasured_report(make_record(number)) for number in range(100, 200)]
    made = [report.record.job_id for reports in bench.ended.make_again(jobs) for report in reports]
    assert set(range(104, 200)) == set(made)


def test_hanging_server_costs_few_queries_in_later_rounds(bench: Bench) -> None:
    bench.series.errors["*"] = ServerTimedOut("timed out before its answer was complete")
    jobs = [make_record(number) for number in range(100, 200)]
    rounds = []
    for _ in range(2):
        bench.series.queried.clear()
        with pytest.raises(ServerTimedOut):
            bench.make(jobs)
        rounds.append([len(job_ids) for _, job_ids in bench.series.queried])
    # The last one is about a job that was measured before.
    assert [[100, 50, 25, 12, 6, 3, 1, 1, 1, 1], [1, 1, 1, 1]] == rounds
