# SPDX-License-Identifier: Apache-2.0
"""Jobs of this host come from the archive and from accounting, each run once, the newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.config import Config
from slurmscope.core.errors import CommandFailed, SourceError
from slurmscope.jobs.record import JobRecord
from slurmscope.reports.find import KnownClusters, Outages, ReportFinder
from slurmscope.reports.local_jobs import LocalJobs
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import Reporting, open_archive
from slurmscope.slurm.command import RunCommand
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record, make_report

DAY = 86400
NOW = 100 * DAY


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    opened = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path / 'archive.db'}", timeout=60.0))
    yield opened
    opened.close()


def _job(job_id: int, days_ago: float = 0.5, **changed: object) -> JobRecord:
    submit = int(NOW - days_ago * DAY)
    times = {"submit_seconds": submit, "start_seconds": submit + 60, "end_seconds": submit + 3660}
    return make_record(job_id, **(times | changed))


def make_jobs(
    accounting: FakeAccounting, archive: SqlArchive | None = None, run: RunCommand = lambda _name, _arguments: b""
) -> LocalJobs:
    maker, outages = ReportMaker(None), Outages()
    reporting = Reporting(
        config=Config((), {}),
        archive=archive,
        accounting=accounting,
        maker=maker,
        finder=ReportFinder(archive, accounting, maker, outages),
        clusters=KnownClusters(archive),
        outages=outages,
        prometheus=None,
    )
    return LocalJobs(reporting, run, lambda: NOW)


def _ids(jobs: LocalJobs, wanted: JobFilter, limit: int = 20) -> list[str]:
    return [row.shown_id for row in jobs.list_jobs(wanted, limit).rows]


def test_accounting_alone_gives_the_jobs_of_a_user_newest_first() -> None:
    jobs = make_jobs(FakeAccounting([_job(1, 0.9), _job(2, 0.1), _job(3, 0.5, user="bob")]))

    assert ["2", "1"] == _ids(jobs, JobFilter(user="ada"))
    assert ["2"] == _ids(jobs, JobFilter(user="ada"), limit=1)
    assert jobs.list_jobs(JobFilter(user="ada"), 1).is_cut
    assert not jobs.list_jobs(JobFilter(user="ada"), 2).is_cut


def test_accounting_is_searched_further_back_until_there_are_enough_jobs() -> None:
    accounting = FakeAccounting([_job(1, 20)])

    assert ["1"] == _ids(make_jobs(accounting), JobFilter(user="ada"), limit=1)
    assert [1, 7, 30] == [(until - since) // DAY for since, until in accounting.windows]


def test_report_knows_the_options_in_the_script_of_the_job() -> None:
    def run(name: str, arguments: Sequence[str]) -> bytes:
        if name == "sacct" and "--batch-script" in arguments:
            return b"Batch Script for 1\n" + b"-" * 80 + b"\n#!/bin/sh\n#SBATCH --ntasks=4\nsrun ./a\n"
        raise CommandFailed([name], "slurmdbd is down")

    accounting = FakeAccounting([_job(1, submit_line="sbatch a.sh"), _job(2, submit_line="srun ./a")])
    reports = [make_jobs(accounting, run=run).report(shown_id) for shown_id in ("1", "2")]
    assert ["--ntasks=4", None] == [report and report.record.script_options for report in reports]
    assert make_jobs(accounting).report("1")


def test_time_and_state_select_jobs() -> None:
    jobs = make_jobs(FakeAccounting([_job(1, 20), _job(2, 2, state="FAILED"), _job(3, 2)]))

    assert ["3", "2"] == _ids(jobs, JobFilter(user="ada", since_seconds=NOW - 7 * DAY))
    assert ["2"] == _ids(jobs, JobFilter(user="ada", state="FAILED"))


def test_run_that_ended_comes_from_the_archive_and_others_from_accounting(archive: SqlArchive) -> None:
    archive.save([make_report(_job(4)), make_report(_job(5, 0.2, state="RUNNING", end_seconds=None))])
    accounting = FakeAccounting([_job(4, state="FAILED"), _job(5, 0.2)])

    rows = make_jobs(accounting, archive).list_jobs(JobFilter(user="ada"), 20).rows

    assert [("5", "COMPLETED"), ("4", "COMPLETED")] == [(row.shown_id, row.state) for row in rows]


def test_only_the_newest_run_of_a_requeued_job_is_listed() -> None:
    jobs = make_jobs(FakeAccounting([_job(1, 0.9, state="REQUEUED"), _job(1, 0.1)]))

    assert ["COMPLETED"] == [row.state for row in jobs.list_jobs(JobFilter(user="ada"), 20).rows]


def test_ids_select_jobs_of_all_users_and_tasks_of_arrays(archive: SqlArchive) -> None:
    task = _job(9, array_job_id=8, array_task_id=1)
    accounting = FakeAccounting([_job(1), _job(2, user="bob"), task, _job(10)])
    archive.save([make_report(task)])
    wanted = JobFilter(shown_ids=("1", "2", "3", "8"))

    assert {"1", "2", "8_1"} == set(_ids(make_jobs(accounting, archive), wanted))
    assert {"1", "2", "8_1"} == set(_ids(make_jobs(accounting), wanted))
    assert ["8_1"] == _ids(make_jobs(FakeAccounting(), archive), JobFilter(shown_ids=("8_1",)))


def test_archive_is_enough_while_accounting_fails(archive: SqlArchive) -> None:
    broken = FakeAccounting(error=SourceError("slurmdbd is down"))
    archive.save([make_report(_job(4))])
    found = make_jobs(broken, archive).list_jobs(JobFilter(user="ada"), 20)

    assert (1, "Accounting could not be read: slurmdbd is down") == (len(found.rows), found.problem)
    with pytest.raises(SourceError, match="slurmdbd is down"):
        make_jobs(broken).list_jobs(JobFilter(user="ada"), 20)


PENDING = {"state": "PENDING", "start_seconds": None, "end_seconds": None, "reason": "None"}


@pytest.mark.parametrize(("answer", "reason"), [(b"Licenses\n", "Licenses"), (b"", "None"), (b"\n \n", "None")])
def test_pending_job_has_the_reason_that_squeue_prints(answer: bytes, reason: str) -> None:
    asked: list[tuple[str, ...]] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        asked.append((name, *arguments))
        return answer

    report = make_jobs(FakeAccounting([_job(7, 0.5, **PENDING), _job(8)]), run=run).report("7")

    assert report
    assert reason == report.record.reason
    assert [("squeue", "--noheader", "--states=PENDING", "--jobs=7", "--format=%r")] == asked


def test_pending_job_is_reported_without_squeue() -> None:
    def run(_name: str, _arguments: Sequence[str]) -> bytes:
        raise SourceError("squeue is missing")

    report = make_jobs(FakeAccounting([_job(7, 0.5, **PENDING)]), run=run).report("7", "lab")

    assert report
    assert "None" == report.record.reason
