# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost while accounting, archive or the server of the series is unreachable."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.clock import Clock
from slurmscope.core.errors import (
    ArchiveError,
    CommandRefused,
    CommandTimedOut,
    ServerError,
    ServerRefused,
    UnreadableReport,
)
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reporter import reporter as reporter_module
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.reporter_bench import CHECKPOINT, DAY, Bench
from tests.fakes.reports import START, make_record


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


def test_report_that_is_too_large_without_its_curves_is_archived_without_measurements() -> None:
    bench = Bench(make_record(1), make_record(2))
    bench.archive.has_no_summary_for = 2
    bench.reporter.work()
    kept = {report.record.job_id: (report.summary.nodes, report.missing) for report in bench.archive.reports.values()}
    assert [1, 2] == sorted(kept)
    assert kept[1][0]
    assert ((), (reporter_module.NO_ROOM_AT_ALL,)) == kept[2]
    assert "" == bench.reporter.progress.problem


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
    saved: list[int] = []

    def fail(reports: object) -> None:
        saved.append(len(reports))  # type: ignore[arg-type]
        raise ArchiveError("database is locked")

    bench.archive.save = fail  # type: ignore[method-assign]
    bench.reporter.work()
    assert ([2], 1) == (saved, bench.reporter.progress.failures)


def test_job_is_archived_at_once_and_measured_when_the_server_is_back() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert report.is_incomplete
    assert (
        "The time series server failed: Prometheus is down",
        "This job was not measured yet; slurmscope tries again until 7d after its end.",
    ) == report.missing
    assert ("", "Prometheus is down") == (bench.reporter.progress.problem, bench.reporter.progress.series_problem)
    assert str(int(bench.now - 120)) == bench.archive.checkpoints[CHECKPOINT]

    bench.series.errors.clear()
    bench.now += 60
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert (False, (), "") == (report.is_incomplete, report.missing, bench.reporter.progress.series_problem)


@pytest.mark.parametrize("error", [ServerRefused("Prometheus is down"), ServerError("it answered 500")])
def test_mark_is_removed_after_the_time_to_give_up(error: Exception) -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = error
    bench.reporter.work()
    bench.now = START + 7200 + 7.0 * DAY - 60
    bench.restarted().work()
    assert [True] == [report.is_incomplete for report in bench.archive.reports.values()]
    bench.now += 3600
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert not report.is_incomplete
    assert "This job was not measured: the time series server did not return all series in time." == report.missing[-1]
    assert not any("tries again" in sentence for sentence in report.missing)

    bench.series.queried.clear()
    bench.series.errors.clear()
    bench.now += DAY
    bench.reporter.work()
    assert [] == bench.series.queried


def test_job_is_measured_for_the_last_time_when_it_is_given_up() -> None:
    """Whatever its pause is: its series may have come back since the last try."""
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerError("it answered 500")
    for _ in range(7):
        bench.reporter.work()
        bench.now += DAY
    assert START + 20_000 + 7 * DAY == bench.now
    bench.series.errors.clear()
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert (False, ()) == (report.is_incomplete, report.missing)


def test_job_that_ended_weeks_ago_is_measured_again_after_a_momentary_failure() -> None:
    bench = Bench()
    bench.reporter.work()
    bench.accounting.error = CommandTimedOut(["sacct"], "was killed")
    bench.accounting.records.append(make_record(1, end_seconds=int(bench.now) + 600))
    bench.now += 21 * DAY
    bench.reporter.work()
    bench.accounting.error, bench.series.errors["*"] = None, ServerRefused("Prometheus starts")
    bench.reporter.work()
    assert {1} == bench.archived()
    bench.series.errors.clear()
    bench.now += 60
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert (False, ()) == (report.is_incomplete, report.missing)


def test_report_that_cannot_be_read_does_not_keep_others_from_being_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(make_record(1), make_record(2))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    bench.series.errors.clear()
    find = bench.archive.find

    def fail_for_first(viewer: Viewer, job_id: int, *, cluster: str = "") -> tuple[JobReport, ...]:
        if job_id == 1:
            raise UnreadableReport("of a later release")
        return find(viewer, job_id, cluster=cluster)

    monkeypatch.setattr(bench.archive, "find", fail_for_first)
    bench.reporter.work()
    assert [True, False] == [report.is_incomplete for report in bench.archive.reports.values()]


def test_other_process_may_measure_if_this_one_cannot() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    found = []
    for _ in range(3):
        bench.reporter.work()
        found.append(bench.reporter.has_failed_for(600))
        bench.now += 400
    assert [False, False, True] == found
