# SPDX-License-Identifier: Apache-2.0
"""Each ended job is archived once, late or not, and none is lost to an unreachable server."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from slurmscope.errors import ArchiveError, CommandRefused, CommandTimedOut, ServerRefused
from slurmscope.model.viewer import EVERYTHING
from slurmscope.services.reporting.archiving import reporter as reporter_module
from slurmscope.services.reporting.archiving.ended_reports import BATCH_JOBS, MEASURED_AGAIN
from slurmscope.services.reporting.archiving.reporter import (
    CHECKPOINT as EARLIER_CHECKPOINT,
)
from slurmscope.services.reporting.archiving.reporter import (
    CLUSTER_CHECKPOINT,
    FAR_OVERLAP_SECONDS,
    OVERLAP_SECONDS,
    Reporter,
    ReporterSettings,
)
from slurmscope.services.reporting.archiving.reporters import make_retention
from slurmscope.services.reporting.archiving.retention import Retention
from slurmscope.services.reporting.making.report_maker import ReportMaker
from slurmscope.services.runtime.clock import Clock
from slurmscope.store.archive.checkpoints import Checkpoints
from slurmscope.store.archive.job_rows import job_values
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.archive.tables.schema import JOBS
from tests.fakes.reporting import FakeAccounting, FakeArchive, FakeSeries, make_row
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report

DAY = 86400
CHECKPOINT = CLUSTER_CHECKPOINT + "lab"


class Bench:
    """Hold a reporter and everything around it; the clock stands until a test moves it."""

    def __init__(self, *records: object, now: float = START + 20_000.0) -> None:
        self.now = now
        self.accounting = FakeAccounting([*records])  # type: ignore[list-item]
        self.archive = FakeArchive()
        self.series = FakeSeries()
        self.reporter = self.restarted()

    def restarted(self) -> Reporter:
        self.reporter = Reporter(
            self.accounting,
            ReportMaker(self.series, wall_clock=lambda: self.now),
            self.archive,  # type: ignore[arg-type]
            self.archive,
            ReporterSettings(),
            cluster="lab",
            clock=self.clock(),
        )
        return self.reporter

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, monotonic=lambda: self.now)

    def retention(self) -> Retention:
        return make_retention(self.archive, self.archive, ReporterSettings(), self.clock())  # type: ignore[arg-type]

    def archived(self) -> set[int]:
        return {report.record.job_id for report in self.archive.reports.values() if report.record.has_ended}


def test_ended_jobs_are_archived_once() -> None:
    bench = Bench(make_record(1), make_record(2))
    bench.reporter.work()
    bench.now += 60
    bench.reporter.work()
    assert [(1, 2)] == bench.archive.saves
    assert (2, 2, 0, "") == (
        bench.reporter.progress.jobs_archived,
        bench.reporter.progress.rounds,
        bench.reporter.progress.failures,
        bench.reporter.progress.problem,
    )


def test_job_that_ended_just_now_waits_for_its_last_samples() -> None:
    bench = Bench(make_record(1, end_seconds=START + 20_000 - 30))
    bench.reporter.work()
    assert set() == bench.archived()
    bench.now += 100
    bench.reporter.work()
    assert {1} == bench.archived()


def test_new_archive_begins_a_week_back() -> None:
    old, older = make_record(1, end_seconds=START - 6 * DAY), make_record(2, end_seconds=START - 9 * DAY)
    bench = Bench(old, older, now=START)
    bench.reporter.work()
    assert {1} == bench.archived()


def test_work_goes_on_where_it_was_after_a_restart() -> None:
    bench = Bench(make_record(1))
    bench.reporter.work()
    until = int(bench.archive.checkpoints[CHECKPOINT])
    bench.now += 3 * DAY
    bench.accounting.windows.clear()
    bench.restarted().work()
    assert until - FAR_OVERLAP_SECONDS == bench.accounting.windows[0][0]


def test_record_that_comes_late_is_not_lost() -> None:
    bench = Bench()
    bench.reporter.work()
    bench.accounting.records.append(make_record(7, end_seconds=int(bench.now) - OVERLAP_SECONDS // 2))
    bench.now += 60
    bench.reporter.work()
    assert {7} == bench.archived()


def test_partial_record_is_archived_when_it_is_whole() -> None:
    whole = make_record(1, end_seconds=START + 20_000 - OVERLAP_SECONDS // 2)
    bench = Bench(replace(whole, name="allocation", partition=""))
    bench.reporter.work()
    assert set() == bench.archived()
    bench.accounting.records[0] = whole
    bench.now += 60
    bench.reporter.work()
    assert ["relax"] == [report.record.name for report in bench.archive.reports.values()]


def test_record_that_stays_partial_is_archived_after_an_hour() -> None:
    bench = Bench(make_record(1, name="allocation", partition="", end_seconds=START + 20_000 - 300))
    bench.reporter.work()
    assert set() == bench.archived()
    for _ in range(OVERLAP_SECONDS // 60):
        bench.now += 60
        bench.reporter.work()
    assert {1} == bench.archived()


def test_run_that_was_seen_running_is_read_however_late_its_end_is_recorded() -> None:
    running = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(running)
    bench.reporter.work()
    bench.accounting.records[0] = replace(running, state="COMPLETED", end_seconds=START + 100)
    bench.now += 10 * DAY
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now))
    bench.reporter.work()
    assert {5} == bench.archived()


def test_nothing_moves_while_accounting_is_unreachable() -> None:
    bench = Bench(make_record(1))
    bench.accounting.error = CommandTimedOut(["sacct"], "was killed")
    bench.reporter.work()
    first = str(int(bench.now - 7 * DAY))
    assert ({CHECKPOINT: first}, 1) == (bench.archive.checkpoints, bench.reporter.progress.failures)
    assert "was killed" == bench.reporter.progress.problem
    bench.accounting.error = None
    bench.reporter.work()
    assert ({1}, "") == (bench.archived(), bench.reporter.progress.problem)


def test_jobs_that_were_hidden_for_weeks_are_archived_when_they_become_visible() -> None:
    running = make_record(2, state="RUNNING", end_seconds=None)
    bench = Bench(make_record(1), running)
    bench.accounting.error = CommandRefused(["sacct"], "PrivateData hides the jobs of others")
    for _ in range(21):
        bench.reporter.work()
        bench.now += DAY
    assert {} == bench.archive.reports
    bench.accounting.error = None
    bench.reporter.work()
    assert {1} == bench.archived()
    # One that was seen running keeps that state while it is hidden, and gets its end when it is not.
    bench.accounting.error = CommandRefused(["sacct"], "PrivateData hides the jobs of others")
    bench.accounting.records[1] = replace(running, state="FAILED", end_seconds=int(bench.now))
    bench.now += 21 * DAY
    bench.reporter.work()
    assert {1} == bench.archived()
    bench.accounting.error = None
    bench.reporter.work()
    assert {1, 2} == bench.archived()


def test_nothing_is_lost_while_the_archive_is_unreachable() -> None:
    bench = Bench(make_record(1))
    bench.archive.error = ArchiveError("it is read-only")
    bench.reporter.work()
    bench.archive.error = None
    bench.reporter.work()
    assert {1} == bench.archived()


def test_report_that_is_too_large_costs_only_its_curves() -> None:
    bench = Bench(make_record(1), make_record(2))
    bench.archive.has_no_room_for = 2
    bench.reporter.work()
    kept = {report.record.job_id: (bool(report.charts), report.missing) for report in bench.archive.reports.values()}
    assert {1: (True, ()), 2: (False, (reporter_module.NO_ROOM,))} == kept


def test_archive_that_is_locked_for_a_while_costs_no_curves(tmp_path: Path) -> None:
    limit_seconds = 0.4
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=limit_seconds))
    bench = Bench(make_record(1))
    parts = (ReportMaker(bench.series, wall_clock=lambda: bench.now), archive, Checkpoints(archive.database))
    clock = Clock(wall=lambda: bench.now, monotonic=lambda: bench.now)
    reporter = Reporter(bench.accounting, *parts, ReporterSettings(), cluster="lab", clock=clock)
    # So that the report is the first that the lock keeps out: two tries of one limit each, and the lock is free again.
    Checkpoints(archive.database).write_checkpoint(CHECKPOINT, str(START))
    is_locked = threading.Event()

    def lock() -> None:
        with closing(sqlite3.connect(tmp_path / "archive.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            is_locked.set()
            time.sleep(2.5 * limit_seconds)
            other.execute("ROLLBACK")

    locker = threading.Thread(target=lock)
    locker.start()
    assert is_locked.wait(60)
    reporter.work()
    locker.join()
    reporter.work()

    (report,) = archive.find(EVERYTHING, 1)
    assert (True, ()) == (bool(report.charts), report.missing)
    archive.close()


def test_error_that_may_pass_is_not_tried_without_curves() -> None:
    bench = Bench(make_record(1), make_record(2))
    asked: list[int] = []

    def fail(reports: object) -> None:
        asked.append(len(reports))  # type: ignore[arg-type]
        raise ArchiveError("database is locked")

    bench.archive.save = fail  # type: ignore[method-assign]
    bench.reporter.work()
    assert ([2], 1) == (asked, bench.reporter.progress.failures)


def test_old_rows_are_taken_out_once_a_day() -> None:
    # The clock stands 1,000 seconds after a midnight.
    midnight = 20_000 * DAY
    bench = Bench(now=midnight + 1000.0)
    bench.archive.newest = midnight + 500
    retention = bench.retention()
    for _ in range(3):
        retention.work()
    expected = [("curves", midnight - 365 * DAY), ("looks", midnight - 365 * DAY)]
    assert expected == bench.archive.forgotten
    bench.now += DAY
    bench.archive.newest += DAY
    retention.work()
    assert [(kind, before + DAY) for kind, before in expected] == bench.archive.forgotten[2:]


def test_years_of_old_rows_go_little_by_little() -> None:
    bench = Bench()
    bench.archive.old_rows = 45
    bench.archive.newest = int(bench.now)
    left = []
    retention = bench.retention()
    for _ in range(5):
        retention.work()
        left.append((bench.archive.old_rows, len(bench.archive.forgotten)))
    # Ten rows of each kind a round; in the third one kind has none left, in the fourth the other.
    assert [(25, 2), (5, 4), (0, 6), (0, 7), (0, 7)] == left


def test_rows_that_cannot_be_taken_out_are_tried_again_in_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.archive.newest = int(bench.now)
    tries: list[int] = []

    def fail(before_seconds: int) -> int:
        tries.append(before_seconds)
        raise ArchiveError("database is locked")

    bench.archive.delete_curves = fail  # type: ignore[method-assign]
    retention = bench.retention()
    for seconds in (0, 60, 3600):
        bench.now += seconds
        retention.work()
    assert 2 == len(tries)
    assert "deleting old rows failed; retrying in an hour" in caplog.text


def test_jobs_wait_for_the_server_of_the_series() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is away")
    bench.reporter.work()
    assert set() == bench.archived()
    bench.series.errors.clear()
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert () == report.missing


def test_jobs_do_not_wait_for_ever() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is away")
    bench.reporter.work()
    bench.now += 2 * DAY
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert ("The time series server is unreachable: Prometheus is away", MEASURED_AGAIN) == report.missing


def test_batches_are_stored_one_by_one() -> None:
    bench = Bench(*(make_record(number) for number in range(BATCH_JOBS + 20)))
    bench.reporter.work()
    assert [BATCH_JOBS, 20] == [len(save) for save in bench.archive.saves]


def test_running_jobs_are_stored_and_measured_again() -> None:
    bench = Bench(make_record(5, state="RUNNING", end_seconds=None))
    bench.reporter.work()
    bench.series.value = 50.0
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert 50.0 == report.summary.io.read_bytes


def test_numbers_of_a_running_job_stay_while_the_server_is_unreachable() -> None:
    bench = Bench(make_record(5, state="RUNNING", end_seconds=None))
    bench.reporter.work()
    bench.series.errors["*"] = ServerRefused("Prometheus is away")
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert 1.0 == report.summary.io.read_bytes


def test_many_running_jobs_take_turns() -> None:
    count = reporter_module.REFRESHED_JOBS + 10
    bench = Bench(*(make_record(number, state="RUNNING", end_seconds=None) for number in range(1, count + 1)))
    bench.reporter.work()
    assert count == len(bench.archive.reports)
    bench.archive.saves.clear()
    bench.reporter.work()
    bench.reporter.work()
    refreshed = [job for save in bench.archive.saves for job in save]
    assert 2 * reporter_module.REFRESHED_JOBS == len(refreshed)
    assert count == len(set(refreshed))


def test_more_running_tasks_than_a_hundred_thousand_are_not_reported_again(tmp_path: Path) -> None:
    count = 120_000
    task = make_record(1, state="RUNNING", end_seconds=None, array_job_id=1)
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    row = job_values(make_unmeasured_report(task))
    with archive.database.writing() as connection:
        connection.execute(insert(JOBS), [{**row, "job_id": number} for number in range(1, count)])
    # All but the last are archived as running.
    bench = Bench(*(replace(task, job_id=number, array_task_id=number) for number in range(1, count + 1)))
    Checkpoints(archive.database).write_checkpoint(CHECKPOINT, str(int(bench.now)))
    parts = (ReportMaker(bench.series, wall_clock=lambda: bench.now), archive, Checkpoints(archive.database))
    clock = Clock(wall=lambda: bench.now, monotonic=lambda: bench.now)

    Reporter(bench.accounting, *parts, ReporterSettings(), cluster="lab", clock=clock).work()

    reported = {job_id for _, job_ids in bench.series.asked for job_id in job_ids}
    assert {count, *range(1, reporter_module.REFRESHED_JOBS + 1)} == reported
    assert count == len(archive.unfinished_runs()) == len(archive.unfinished_runs(cluster="lab"))
    assert frozenset() == archive.unfinished_runs(cluster="other")
    archive.close()


def test_bug_in_one_round_is_reported_and_does_not_end_the_work() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ZeroDivisionError("a job that nobody thought of")
    with pytest.raises(ZeroDivisionError):
        bench.reporter.work()
    assert (1, reporter_module.BUG) == (bench.reporter.progress.failures, bench.reporter.progress.problem)
    bench.series.errors.clear()
    bench.reporter.work()
    assert ({1}, "") == (bench.archived(), bench.reporter.progress.problem)


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


def test_checkpoint_of_an_earlier_release_is_taken_over() -> None:
    bench = Bench(make_record(1))
    bench.reporter.work()
    until = bench.archive.checkpoints.pop(CHECKPOINT)
    bench.archive.checkpoints[EARLIER_CHECKPOINT] = until
    bench.now += 10 * DAY
    bench.accounting.records.append(make_record(2, end_seconds=START + 2 * DAY))
    bench.accounting.windows.clear()
    bench.restarted().work()
    assert int(until) - FAR_OVERLAP_SECONDS == bench.accounting.windows[0][0]
    assert [(1,), (2,)] == bench.archive.saves


def test_earlier_checkpoint_that_another_cluster_moved_loses_no_job_of_the_last_week() -> None:
    bench = Bench(make_record(1), make_record(2, end_seconds=START + 2 * DAY), now=START + 3.0 * DAY)
    bench.archive.save([make_report(make_record(1)), make_report(make_record(1, cluster="other", start_seconds=1))])
    bench.archive.saves.clear()
    bench.archive.checkpoints[EARLIER_CHECKPOINT] = str(int(bench.now))
    bench.reporter.work()
    assert [(2,)] == bench.archive.saves


def test_new_cluster_of_an_archive_begins_as_in_a_new_archive() -> None:
    bench = Bench(make_record(1), now=START + 3.0 * DAY)
    bench.archive.save([make_report(make_record(1, cluster="other", start_seconds=1))])
    bench.archive.checkpoints[EARLIER_CHECKPOINT] = str(int(bench.now))
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
    assert [] == bench.archive.saves


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


def test_old_jobs_too_wait_for_a_server_that_is_unreachable_for_a_moment() -> None:
    bench = Bench(make_record(1), now=START + 3.0 * DAY)
    bench.series.errors["*"] = ServerRefused("Prometheus starts")
    bench.reporter.work()
    assert set() == bench.archived()
    bench.series.errors.clear()
    bench.now += 60
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert () == report.missing


def test_young_job_does_not_lose_its_curves_to_an_old_one() -> None:
    bench = Bench(make_record(1), make_record(2, end_seconds=START + 7200 + 4 * 3600))
    bench.series.errors["*"] = ServerRefused("Prometheus is away")
    bench.reporter.work()
    bench.now = START + 7200.0 + DAY + 3600
    bench.reporter.work()
    assert set() == bench.archived()
    bench.now += 4 * 3600
    bench.reporter.work()
    assert {1, 2} == bench.archived()


def test_end_that_is_known_late_waits_for_the_server_of_the_series() -> None:
    running = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(running)
    bench.reporter.work()
    bench.accounting.records[0] = replace(running, state="COMPLETED", end_seconds=START + 100)
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now))
    bench.series.errors["*"] = ServerRefused("Prometheus is away")
    bench.reporter.work()
    assert set() == bench.archived()
    bench.series.errors.clear()
    bench.reporter.work()
    assert {5} == bench.archived()


def test_old_curves_are_thinned_where_a_time_is_set() -> None:
    bench = Bench()
    bench.archive.newest = int(bench.now)
    settings = replace(ReporterSettings(), keep_curves=0.0, keep_audit=0.0, thin_curves_after=30.0 * DAY)
    make_retention(bench.archive, bench.archive, settings, bench.clock()).work()  # type: ignore[arg-type]
    assert ["points over 60"] == [kind for kind, _ in bench.archive.forgotten]
