# SPDX-License-Identifier: Apache-2.0
"""Each ended job is archived once, late or not, and none is lost to an unreachable server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.job_rows import job_values
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.tables import JOBS
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, ServerRefused
from slurmscope.jobs.report import JobReport
from slurmscope.reporter import reporter as reporter_module
from slurmscope.reporter.measure import BATCH_JOBS
from slurmscope.reporter.reporter import OVERLAP_SECONDS, Reporter
from slurmscope.reporter.reporters import make_retention
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.reporter_bench import CHECKPOINT, DAY, Bench
from tests.fakes.reports import START, make_record, make_unmeasured_report


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


def test_record_that_comes_late_is_not_lost() -> None:
    bench = Bench()
    bench.reporter.work()
    bench.accounting.records.append(make_record(7, end_seconds=int(bench.now) - OVERLAP_SECONDS // 2))
    bench.now += 60
    bench.reporter.work()
    assert {7} == bench.archived()


def test_records_that_arrive_days_late_are_not_lost() -> None:
    last = make_record(6, end_seconds=START + 15_000)
    bench = Bench(last)
    bench.reporter.work()
    # slurmdbd is down for two days, and its database shows no later job; then it gets the messages of slurmctld.
    for _ in range(49):
        bench.now += 3600
        bench.reporter.work()
    bench.accounting.records += [make_record(number, end_seconds=START + 20_000 + number * 3600) for number in (7, 40)]
    bench.restarted()
    bench.reporter.work()
    assert {6, 7, 40} == bench.archived()


def test_new_ends_between_two_hourly_rounds_do_not_hide_late_ones() -> None:
    bench = Bench(make_record(6, end_seconds=START + 15_000))
    bench.reporter.work()
    for _ in range(49):
        bench.now += 3600
        bench.reporter.work()
    late, fresh = make_record(7, end_seconds=START + 16_000), make_record(8, end_seconds=int(bench.now) - 200)
    bench.accounting.records += [late, fresh]
    bench.now += 60
    bench.reporter.work()
    assert {6, 8} == bench.archived()
    bench.now += 3600
    bench.reporter.work()
    assert {6, 7, 8} == bench.archived()


def test_late_records_are_not_searched_where_retention_has_deleted() -> None:
    bench = Bench(make_record(6, end_seconds=START + 15_000))
    bench.reporter.work()
    bench.archive.reports.clear()
    bench.now += 8 * DAY
    bench.archive.checkpoints[CHECKPOINT] = str(int(bench.now) - 600)
    settings = ReporterSettings(keep_jobs=7.0 * DAY)
    maker = ReportMaker(bench.series, wall_clock=lambda: bench.now)
    parts = (bench.accounting, maker, bench.archive, bench.archive, settings)
    Reporter(*parts, cluster="lab", clock=bench.clock()).work()  # type: ignore[arg-type]
    assert set() == bench.archived()


def test_suspended_job_is_refreshed_as_such() -> None:
    running = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(running)
    for state in ("RUNNING", "SUSPENDED", "RUNNING"):
        bench.accounting.records[0] = replace(running, state=state)
        bench.now += 60
        bench.reporter.work()
        assert [state] == [report.record.state for report in bench.archive.reports.values()]


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
    assert "daily maintenance of the archive failed; retrying in an hour" in caplog.text


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


def test_suspended_job_is_not_archived_as_running() -> None:
    running = make_record(5, state="RUNNING", end_seconds=None)
    bench = Bench(running)
    bench.reporter.work()
    bench.accounting.records[0] = replace(running, state="SUSPENDED", suspended_seconds=20)
    bench.series.value = 50.0
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert ("SUSPENDED", 20, 50.0) == (
        report.record.state,
        report.record.suspended_seconds,
        report.summary.io.read_bytes,
    )


def test_numbers_of_a_running_job_stay_while_the_server_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(make_record(5, state="RUNNING", end_seconds=None))
    bench.reporter.work()
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert 1.0 == report.summary.io.read_bytes
    assert "jobs were not measured; retrying in the next round" in caplog.messages


@pytest.mark.no_cover
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


@pytest.mark.no_cover
def test_many_new_running_jobs_are_stored_over_several_rounds() -> None:
    count = reporter_module.NEW_JOBS + 10
    bench = Bench(*(make_record(number, state="RUNNING", end_seconds=None) for number in range(1, count + 1)))
    bench.reporter.work()
    assert reporter_module.NEW_JOBS == len(bench.archive.reports)
    bench.reporter.work()
    assert count == len(bench.archive.reports)


@pytest.mark.no_cover
def test_new_running_jobs_wait_for_the_next_round_if_the_server_is_slow() -> None:
    bench = Bench(*(make_record(number, state="RUNNING", end_seconds=None) for number in range(1, 502)))
    save = bench.archive.save

    def save_slowly(reports: Sequence[JobReport]) -> None:
        bench.now += reporter_module.NEW_JOBS_SECONDS / 2
        save(reports)

    bench.archive.save = save_slowly  # type: ignore[method-assign] # time passes
    stored = []
    while len(bench.archive.reports) < 501:
        bench.reporter.work()
        stored.append(len(bench.archive.reports))
    assert [200, 400, 501] == stored


@pytest.mark.no_cover
def test_more_running_tasks_than_a_hundred_thousand_are_not_reported_again(tmp_path: Path) -> None:
    count = 120_000
    task = make_record(1, state="RUNNING", end_seconds=None, array_job_id=1)
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=600.0))
    row = job_values(make_unmeasured_report(task))
    with archive.database.writing() as connection:
        connection.execute(insert(JOBS), [{**row, "job_id": number} for number in range(1, count)])
    # All but the last are archived as running.
    bench = Bench(*(replace(task, job_id=number, array_task_id=number) for number in range(1, count + 1)))
    Checkpoints(archive.database).write_checkpoint(CHECKPOINT, str(int(bench.now)))
    parts = (ReportMaker(bench.series, wall_clock=lambda: bench.now), archive, Checkpoints(archive.database))
    clock = Clock(wall=lambda: bench.now, monotonic=lambda: bench.now)

    Reporter(bench.accounting, *parts, ReporterSettings(), cluster="lab", clock=clock).work()

    reported = {job_id for _, job_ids in bench.series.queried for job_id in job_ids}
    assert {count, *range(1, reporter_module.REFRESHED_JOBS + 1)} == reported
    assert count == len(archive.unfinished_runs()) == len(archive.unfinished_runs(cluster="lab"))
    assert frozenset() == archive.unfinished_runs(cluster="other")
    archive.close()


def test_bug_in_one_round_is_reported_and_does_not_end_the_work() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ZeroDivisionError("an unexpected job")
    with pytest.raises(ZeroDivisionError):
        bench.reporter.work()
    assert (1, reporter_module.BUG) == (bench.reporter.progress.failures, bench.reporter.progress.problem)
    bench.series.errors.clear()
    bench.reporter.work()
    assert ({1}, "") == (bench.archived(), bench.reporter.progress.problem)


def test_old_curves_are_thinned_where_a_time_is_set() -> None:
    bench = Bench()
    bench.archive.newest = int(bench.now)
    settings = replace(ReporterSettings(), keep_curves=0.0, keep_audit=0.0, thin_curves_after=30.0 * DAY)
    make_retention(bench.archive, bench.archive, settings, bench.clock()).work()  # type: ignore[arg-type]
    assert ["points over 60"] == [kind for kind, _ in bench.archive.forgotten]
