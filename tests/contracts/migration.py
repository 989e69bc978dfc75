# SPDX-License-Identifier: Apache-2.0
"""What is true of a migration in every archive, whether it is in a file or in a database server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from slurmscope.archive import engine, migrations
from slurmscope.archive import tables as schema
from slurmscope.archive.columns import METADATA
from slurmscope.archive.engine import Database
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.migrations import OLDER_NAMES, Step
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import JOBS, SCHEMA
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.archive_version_1 import write_version_1
from tests.fakes.archive_version_2 import save_version_2, write_version_2
from tests.fakes.reports import START, make_record, make_report
from tests.processes import until

TIMEOUT_SECONDS = 1.0
COMMIT_SECONDS = 0.5
LONG = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000000) SELECT max(i) FROM n",
    "mariadb": "SELECT SLEEP(2.5)",
    "postgresql": "SELECT pg_sleep(2.5)",
}
"""Statements that take longer than the timeout; MariaDB ends a sleep that is too long with 1."""


@contextmanager
def opened_again(archive: SqlArchive, **changed: object) -> Iterator[Database]:
    settings = replace(archive.database.settings, **changed)  # type: ignore[arg-type]
    with closing(open_archive(settings)) as again:
        yield again.database


def make_version_1(archive: SqlArchive) -> None:
    with archive.database.writing() as connection:
        METADATA.drop_all(connection)
        write_version_1(connection, [make_report(), make_report(make_record(5))])


def make_version_2(archive: SqlArchive, reports: Sequence[JobReport]) -> None:
    with archive.database.writing() as connection:
        METADATA.drop_all(connection)
        for name in OLDER_NAMES.values():
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        write_version_2(connection, reports)


@contextmanager
def slow_commits() -> Iterator[None]:
    """Let others do a lot between the end of a transaction's work and its commit."""

    def wait(_: Connection) -> None:
        time.sleep(COMMIT_SECONDS)

    event.listen(Engine, "commit", wait)
    try:
        yield
    finally:
        event.remove(Engine, "commit", wait)


def numbers(database: Database) -> list[int]:
    return sorted(row.job_id for row in SqlArchive(database).list_jobs(EVERYTHING, JobFilter()).rows)


def is_read(database: Database) -> bool:
    """Return whether jobs can be listed; on a busy machine that may take longer than the timeout of a test."""
    try:
        return bool(numbers(database))
    except ArchiveError:
        return False


def ignore_step(_number: int, _count: int, _step: Step) -> None:
    """Show nothing."""


class MigrationContract:
    """Run these with a fixture ``archive``."""

    def test_large_archive_is_left_to_the_command(self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        make_version_1(archive)
        monkeypatch.setattr(engine, "AUTOMATIC_ROWS", 1)
        shown: list[str] = []

        with opened_again(archive) as portal, opened_again(archive) as command:
            with pytest.raises(ArchiveSchemaError, match=r"schema 1 of an earlier .* slurmscope archive migrate"):
                numbers(portal)
            planned = [(step.title, rows) for step, rows in command.plan_migration()]
            with pytest.raises(ArchiveSchemaError):
                numbers(portal)
            command.migrate(lambda number, count, step: shown.append(f"{number}/{count} {step.title}"))

            # The portal that waited goes on by itself.
            assert [5, 4711] == numbers(portal)
            assert () == command.plan_migration()
        titles = [title for title, _ in planned]
        assert [f"{n}/{len(titles)} {title}" for n, title in enumerate(titles, 1)] == shown
        (column,) = (title for title in titles if "eligible_seconds" in title)
        assert column.upper().startswith("ALTER TABLE SLURMSCOPE_JOBS ADD COLUMN ELIGIBLE_SECONDS BIGINT")
        assert any(title.startswith("CREATE INDEX slurmscope_jobs_het ON slurmscope_jobs") for title in titles)

    def test_migration_may_take_longer_than_a_query(self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: list[object] = []
        long = text(LONG[archive.database.dialect])
        step = Step("take long", JOBS, lambda connection: answers.append(connection.scalar(long)))
        monkeypatch.setattr(migrations, "MIGRATIONS", {1: [step]})
        make_version_1(archive)

        with opened_again(archive, timeout=TIMEOUT_SECONDS) as hurried:
            until(lambda: is_read(hurried))

        with opened_again(archive) as migrated:
            assert [5, 4711] == numbers(migrated)
        assert answers
        assert 1 not in answers

    def test_two_migrations_at_once_are_one(self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        runs: list[int] = []
        both = threading.Barrier(2)
        pause = text(LONG[archive.database.dialect])

        def run(connection: Connection) -> None:
            connection.execute(pause)
            runs.append(1)

        def migrate() -> None:
            with opened_again(archive) as database:
                both.wait(60)
                database.migrate(ignore_step)

        monkeypatch.setattr(migrations, "MIGRATIONS", {1: [Step("pause", JOBS, run)]})
        make_version_1(archive)
        threads = [threading.Thread(target=migrate) for _ in range(2)]
        with slow_commits():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)

        assert len(runs) == 1
        with opened_again(archive) as database:
            assert [5, 4711] == numbers(database)

    def test_running_process_notices_a_later_schema(self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "SCHEMA_SECONDS", 0.0)
        archive.save([make_report()])
        later = "schema 99 of a later release"
        with opened_again(archive) as other, other.writing() as connection:
            connection.execute(update(SCHEMA).where(SCHEMA.c.id == 1).values(version=99))

        with pytest.raises(ArchiveSchemaError, match=later):
            archive.save([make_report(make_record(2))])
        with pytest.raises(ArchiveSchemaError, match=later):
            numbers(archive.database)

        _set_version(archive)
        assert [4711] == numbers(archive.database)

    def test_previous_release_that_still_runs_can_save_nothing_after_the_migration(self, archive: SqlArchive) -> None:
        first, second, third = (
            make_report(make_record(job_id, submit_seconds=START + job_id * 40 * 86_400)) for job_id in (1, 2, 3)
        )
        make_version_2(archive, [first])
        # It noticed no later schema, and its sums by user alone would be missing for ever.
        with opened_again(archive) as older:
            with archive.database._engine.begin() as connection:
                save_version_2(connection, [second])
            assert [1, 2] == numbers(older)

            with pytest.raises(DBAPIError, match=r"no such table|exist"), older._engine.begin() as connection:
                save_version_2(connection, [third])
            assert [1, 2] == numbers(older)
            SqlArchive(older).save([third])
            (total,) = SqlArchive(older).total(EVERYTHING, JobFilter(), GroupBy.USER)
            assert 3 == total.jobs

    def test_nothing_is_written_while_a_later_release_migrates(self, archive: SqlArchive) -> None:
        archive.save([make_report()])
        with opened_again(archive) as other, other.writing() as connection:
            connection.execute(insert(SCHEMA).values(id=2, version=99))

        with pytest.raises(ArchiveSchemaError, match="schema 99 of a later release"):
            archive.save([make_report(make_record(2))])

        _set_version(archive)
        archive.save([make_report(make_record(2))])


def _set_version(archive: SqlArchive) -> None:
    """Leave the table as this release writes it; not through the archive, which refuses."""
    with archive.database._engine.begin() as connection:
        connection.execute(SCHEMA.delete().where(SCHEMA.c.id == 2))
        connection.execute(update(SCHEMA).values(version=schema.SCHEMA_VERSION))
        assert [(1, schema.SCHEMA_VERSION)] == [tuple(row) for row in connection.execute(select(SCHEMA))]
