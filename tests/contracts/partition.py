# SPDX-License-Identifier: Apache-2.0
"""What is true of the partitions of an archive in a database server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

from slurmscope.archive import partitions, sql_archive
from slurmscope.archive import retention as day_retention
from slurmscope.archive.interface import JobFilter
from slurmscope.archive.partitions import RUNS_A_WEEK, WEEK_SECONDS, prepare_weeks, read_weeks, week_of
from slurmscope.archive.retention import delete_runs
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import CURVES, JOBS, METADATA, REPORTS
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from tests.contracts.schema_version import opened_again
from tests.fakes.reports import make_record, make_report

DAY_SECONDS = 86_400
TABLES = (REPORTS, CURVES)


def reports_that_ended(end_seconds: int, job_ids: Sequence[int]) -> list[JobReport]:
    times = {"submit_seconds": end_seconds - 120, "start_seconds": end_seconds - 60, "end_seconds": end_seconds}
    return [make_report(make_record(job_id, **times)) for job_id in job_ids]


def run_ids(connection: Connection) -> list[list[int]]:
    return [sorted(connection.scalars(select(table.c.run_id))) for table in (JOBS, *TABLES)]


class PartitionContract:
    """Run these with fixtures ``server`` and ``archive``."""

    def test_many_rows_without_a_partition_are_not_copied(
        self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # An empty partition of MariaDB has one page of 16 KiB.
        monkeypatch.setattr(partitions, "LARGE_REST_BYTES", 20_000)
        now = int(time.time())
        this_week = week_of(now - 120)
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
        with opened_again(archive) as database:
            again = SqlArchive(database)
            again.save(reports_that_ended(now, range(1, 200)))
            if database.dialect == "mariadb":
                # An administrator does it while no portal runs, as the message says.
                for table in TABLES:
                    with database.writing() as connection:
                        connection.execute(text(f"ANALYZE TABLE {table.name}")).all()
                    with pytest.raises(ArchiveError, match=f"ALTER TABLE {table.name} REORGANIZE") as refusal:
                        again.prepare_weeks()
                    with database.writing() as connection:
                        assert {} == read_weeks(connection, table)
                        connection.execute(text(str(refusal.value).partition("run in MariaDB: ")[2]))
            again.prepare_weeks()
            again.save(reports_that_ended(now, (200,)))
            with database.reading() as connection:
                weeks, runs = [set(read_weeks(connection, table)) for table in TABLES], run_ids(connection)

        assert [{*range(this_week, this_week + 4)}] * 2 == weeks
        assert [this_week] * 3 == [found[-1] // RUNS_A_WEEK for found in runs]
        assert [200] * 3 == [len(found) for found in runs]

    def test_partition_that_is_read_for_long_is_dropped_later_without_blocking_readers(
        self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(partitions, "LARGE_WEEK_JOBS", 0)
        week = week_of(int(time.time())) - 20
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
        with opened_again(archive) as database:
            again = SqlArchive(database)
            for each, job_id in ((week, 1), (week + 1, 2)):
                with database.writing() as connection:
                    prepare_weeks(connection, each * WEEK_SECONDS)
                again.save(reports_that_ended(each * WEEK_SECONDS + DAY_SECONDS, (job_id,)))
            before = (week + 1) * WEEK_SECONDS

            with database.reading() as long_reader, ThreadPoolExecutor(1) as pool:
                long_reader.execute(select(REPORTS.c.run_id)).all()
                deleting = pool.submit(again.delete_jobs, before)
                finds = [again.find(EVERYTHING, 2)]
                while not deleting.done():
                    finds.append(again.find(EVERYTHING, 2))
                # The job is gone, its partition is not, and the next one is not tried for an hour.
                assert 1 == deleting.result()
                assert week in read_weeks(long_reader, REPORTS)
                assert {1} == {len(found) for found in finds}
                tries: list[float] = []
                monkeypatch.setattr(sql_archive, "drop_week", lambda *_, **__: tries.append(1))
                assert 0 == again.delete_jobs(before)
                assert not tries
                monkeypatch.setattr(sql_archive, "drop_week", partitions.drop_week)

            monkeypatch.setattr(again, "_drop_at", 0.0)
            again.delete_jobs(before)
            with database.reading() as connection:
                assert not any(week in read_weeks(connection, table) for table in TABLES)

    def test_reports_are_saved_while_the_rows_of_a_day_are_deleted(
        self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = int(time.time())
        archive.save(reports_that_ended(now - 100 * DAY_SECONDS, range(1, 200)))
        saved: list[int] = []

        def delete_and_save(connection: Connection, *arguments: Any) -> None:
            delete_runs(connection, *arguments)
            # Another process, with the transaction of the deletion still open; one that had to wait would fail.
            with opened_again(archive, timeout=10.0) as other:
                SqlArchive(other).save(reports_that_ended(now, (1000, 1001)))
            saved.append(len(archive.find(EVERYTHING, 1000)))

        monkeypatch.setattr(day_retention, "delete_runs", delete_and_save)

        assert 199 == archive.delete_jobs(now - 50 * DAY_SECONDS)
        assert [1] == saved
        assert [1000, 1001] == sorted(row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter()).rows)
