# SPDX-License-Identifier: Apache-2.0
"""Archives of earlier releases have all their jobs and sums after the migration, in every database."""

from __future__ import annotations

from itertools import product

from sqlalchemy import inspect, text, update

from slurmscope.archive.columns import METADATA
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import SCHEMA
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.contracts.jobs import END_OF_TIME, check_totals, make_fact
from tests.contracts.model import (
    ListArchive,
)
from tests.fakes.archive_version_1 import write_version_1
from tests.fakes.archive_version_2 import write_version_2
from tests.fakes.reports import (
    START,
    make_record,
    make_report,
)


class VersionContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_archive_of_version_1_is_migrated(self, archive: SqlArchive) -> None:
        oom = make_report(make_record(5, submit_seconds=START, state="OUT_OF_MEMORY"))
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
            write_version_1(connection, [make_report(), oom])

        later = open_archive(archive.database.settings)
        try:
            rows = later.list_jobs(EVERYTHING, JobFilter()).rows
            (before,) = later.total(EVERYTHING, JobFilter(), GroupBy.USER)
            # Unknown, not 0; the one that is saved again is known.
            assert [(None,) * 4] * 2 == [
                (row.wait_seconds, row.time_limit_seconds, row.exit_code, row.blocked_core_seconds) for row in rows
            ]
            assert () == later.waiting_times(0)
            later.save([make_report()])
            (again, _) = sorted(later.list_jobs(EVERYTHING, JobFilter()).rows, key=lambda row: -row.job_id)
            assert (600.0, 86400, 0) == (again.wait_seconds, again.time_limit_seconds, again.exit_code)
            assert (before,) == later.total(EVERYTHING, JobFilter(), GroupBy.USER)
            assert [1] == [waited.jobs for waited in later.waiting_times(0)]
            assert [4711] == [row.job_id for row in later.list_jobs(EVERYTHING, JobFilter(node="n1")).rows]
            assert 2 == later.delete_jobs(END_OF_TIME)
            assert ((), ()) == (later.total(EVERYTHING, JobFilter(), GroupBy.RULE), later.waiting_times(0))
        finally:
            later.close()

    def test_archive_of_version_2_is_migrated_with_its_sums(self, archive: SqlArchive) -> None:
        model = ListArchive()
        model.save(make_fact(number) for number in range(60))
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
            write_version_2(connection, [fact.report() for fact in model.facts])
        for is_repeated in (False, True):
            migrated = open_archive(archive.database.settings)
            try:
                for cluster, by in product(("", "lab"), GroupBy):
                    check_totals(migrated, model, EVERYTHING, JobFilter(cluster=cluster), by)
                with migrated.database.writing() as connection:
                    names = {index["name"] for index in inspect(connection).get_indexes("slurmscope_jobs")}
                    assert "slurmscope_jobs_cluster" in names
                    if not is_repeated:
                        # As a migration that was stopped leaves it on MariaDB, which commits after each new index.
                        connection.execute(update(SCHEMA).values(version=2))
                        connection.execute(text("DROP INDEX slurmscope_jobs_cluster" + _on_jobs(migrated)))
                migrated.save([make_fact(number).report() for number in range(50, 70)])
                model.save(make_fact(number) for number in range(50, 70))
            finally:
                migrated.close()


def _on_jobs(archive: SqlArchive) -> str:
    """Return what MariaDB wants to know where an index is dropped."""
    return " ON slurmscope_jobs" if archive.database.dialect == "mariadb" else ""
