# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost while accounting, archive or the server of the series is unreachable."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, CommandRefused, CommandTimedOut, ServerRefused
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter import reporter as reporter_module
from slurmscope.reporter.ended_reports import MEASURED_AGAIN
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.settings import ReporterSettings
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


def test_jobs_wait_for_the_server_of_the_series() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    assert set() == bench.archived()
    bench.series.errors.clear()
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert () == report.missing


def test_jobs_do_not_wait_for_ever() -> None:
    bench = Bench(make_record(1))
    bench.series.errors["*"] = ServerRefused("Prometheus is down")
    bench.reporter.work()
    bench.now += 2 * DAY
    bench.reporter.work()
    (report,) = bench.archive.reports.values()
    assert ("The time series server is unreachable: Prometheus is down", MEASURED_AGAIN) == report.missing
