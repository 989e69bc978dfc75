# SPDX-License-Identifier: Apache-2.0
"""A reporter resumes where it was, whatever happened to its checkpoint, its clock or its records meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurmscope.core.errors import ServerError, ServerRefused
from slurmscope.jobs.series import JobSpan, JobTotals, SeriesQuery
from slurmscope.reporter.reporter import FAR_OVERLAP_SECONDS, OVERLAP_SECONDS
from tests.fakes.reporter_bench import CHECKPOINT, DAY, Bench
from tests.fakes.reporting import FakeSeries, make_row
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report


def test_work_goes_on_where_it_was_after_a_restart() -> None:
    bench = Bench(make_record(1))
    bench.reporter.work()
    until = int(bench.archive.checkpoints[CHECKPOINT])
    bench.now += 3 * DAY
    bench.accounting.windows.clear()
    bench.restarted().work()
    # A day before the newest end that was read, which slurmdbd may have got long before others.
    assert START + 7200 - FAR_OVERLAP_SECONDS == bench.accounting.windows[0][0]
    assert bench.accounting.windows[0][0] < until


def test_record_that_comes_half_a_day_late_is_found_within_the_hour() -> None:
    bench = Bench()
    bench.reporter.work()
    bench.accounting.records.append(make_record(7, end_seconds=int(bench.now) - DAY // 2))
    bench.now += 60
    bench.reporter.work()
    assert set() == bench.archived()
    bench.now += OVERLAP_SECONDS
    bench.reporter.work()
    assert {7} == bench.archived()


def test_what_is_archived_is_not_made_anew_after_a_restart() -> None:
    bench = Bench(make_record(1))
    bench.reporter.work()
    bench.restarted().work()
    assert [(1,)] == bench.archive.saves


def test_clock_that_was_wrong_once_does_not_stop_the_work() -> None:
    bench = Bench(make_record(1))
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now) + 365 * DAY)
    bench.reporter.work()
    assert {1} == bench.archived()


def test_new_cluster_of_an_archive_begins_as_in_a_new_archive() -> None:
    bench = Bench(make_record(1), now=START + 3.0 * DAY)
    bench.archive.save([make_report(make_record(1, cluster="other", start_seconds=1))])
    bench.reporter.work()
    assert int(bench.now - 7 * DAY) - FAR_OVERLAP_SECONDS == bench.accounting.windows[0][0]


def test_runs_of_other_clusters_are_left_alone() -> None:
    running = make_record(5, cluster="other", state="RUNNING", end_seconds=None)
    bench = Bench(make_record(5))
    bench.archive.save(
        [make_report(running), replace(make_report(make_record(6, cluster="other")), is_incomplete=True)]
    )
    bench.archive.saves.clear()
    bench.reporter.work()
    # Job 5 of this cluster has ended; that of the other one, with the same ID, has not.
    assert [(5,)] == bench.archive.saves
    assert ["COMPLETED", "RUNNING"] == sorted(row.state for row in map(make_row, bench.archive.reports.values()))[1:]


def test_other_tasks_of_an_array_are_not_made_again() -> None:
    last = make_record(9, array_job_id=9, array_task_id=2, state="RUNNING", end_seconds=None)
    bench = Bench(make_record(8, array_job_id=9, array_task_id=1), last)
    bench.reporter.work()
    bench.accounting.records[1] = replace(last, state="SUSPENDED")
    bench.now += DAY
    bench.reporter.work()
    bench.archive.saves.clear()
    bench.now += 60
    bench.reporter.work()
    assert [] == [save for save in bench.archive.saves if 8 in save]


def test_run_that_was_requeued_ends_though_its_successor_runs() -> None:
    first = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(first)
    bench.reporter.work()
    again = replace(first, submit_seconds=START + 100, start_seconds=START + 200)
    bench.accounting.records[:] = [replace(first, state="REQUEUED", end_seconds=START + 100), again]
    bench.now += 10 * DAY
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now))
    bench.reporter.work()
    states = {report.record.start_seconds: report.record.state for report in bench.archive.reports.values()}
    assert {START: "REQUEUED", START + 200: "RUNNING"} == states


def test_end_that_is_known_late_is_archived_although_the_server_fails() -> None:
    running = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(running)
    bench.reporter.work()
    bench.accounting.records[0] = replace(running, state="COMPLETED", end_seconds=START + 100)
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    assert {5} == bench.archived()
    bench.series.errors.clear()
    bench.reporter.work()
    assert [False] == [report.is_incomplete for report in bench.archive.reports.values()]


class HalfBadSeries(FakeSeries):
    """Fail for jobs below 200, and for all that are queried together with one."""

    def __init__(self) -> None:
        super().__init__()
        self.tried_alone: list[int] = []

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        if any(span.job_id < 200 for span in spans):
            if len(spans) == 1 and wanted.metric == "jobs_cpu_seconds_total":
                self.tried_alone.append(spans[0].job_id)
            raise ServerError("it answered 422: something new")
        return super().read_totals(wanted, spans, until=until)


def test_marked_jobs_that_fail_alone_do_not_delay_others() -> None:
    bench = Bench()
    bench.series = series = HalfBadSeries()
    bench.restarted()
    for number in range(100, 220):
        bench.archive.save([replace(make_unmeasured_report(make_record(number)), is_incomplete=True)])
    for _ in range(9):
        bench.reporter.work()
        bench.now += 60
    completed = {report.record.job_id for report in bench.archive.reports.values() if not report.is_incomplete}
    assert set(range(200, 220)) == completed
    assert len(set(series.tried_alone)) * 2 >= len(series.tried_alone), "none is tried in every round"
