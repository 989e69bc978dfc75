# SPDX-License-Identifier: Apache-2.0
"""An archive is created once, and one with the tables of another release is refused, in every database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Connection, Engine, delete, event, select, text, update

from slurmscope.archive import engine
from slurmscope.archive.engine import Database
from slurmscope.archive.interface import JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import METADATA, SCHEMA
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import make_record, make_report

COMMIT_SECONDS = 0.5


@contextmanager
def opened_again(archive: SqlArchive, **changed: object) -> Iterator[Database]:
    settings = replace(archive.database.settings, **changed)  # type: ignore[arg-type]
    with closing(open_archive(settings)) as again:
        yield again.database


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


def set_version(archive: SqlArchive, version: int) -> None:
    """Write a version past the archive, which refuses that of another release."""
    with archive.database._engine.begin() as connection:
        connection.execute(update(SCHEMA).values(version=version))


class SchemaVersionContract:
    """Run these with a fixture ``archive``."""

    @pytest.mark.parametrize("version", [0, 2, 99])
    def test_archive_of_another_release_is_refused_in_one_sentence(self, archive: SqlArchive, version: int) -> None:
        archive.save([make_report()])
        set_version(archive, version)
        try:
            with opened_again(archive) as other:
                for use in (numbers, lambda database: SqlArchive(database).save([make_report(make_record(2))])):
                    with pytest.raises(ArchiveSchemaError) as refusal:
                        use(other)
                    assert (
                        f"the archive has schema {version}, and this release supports only schema 1: run the release "
                        "of slurmscope that wrote it, or choose another archive with archive.url"
                    ) == str(refusal.value)
        finally:
            set_version(archive, 1)
        assert [4711] == numbers(archive.database)

    def test_running_process_notices_another_schema(self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "SCHEMA_SECONDS", 0.0)
        archive.save([make_report()])
        set_version(archive, 99)
        try:
            with pytest.raises(ArchiveSchemaError, match="schema 99"):
                archive.save([make_report(make_record(2))])
            with pytest.raises(ArchiveSchemaError, match="schema 99"):
                numbers(archive.database)
        finally:
            set_version(archive, 1)
        assert [4711] == numbers(archive.database)

    def test_two_processes_that_create_the_tables_at_once_do_so_once(self, archive: SqlArchive) -> None:
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
        both = threading.Barrier(2)
        failures: list[ArchiveError] = []

        def create() -> None:
            with opened_again(archive) as database:
                both.wait(60)
                try:
                    numbers(database)
                except ArchiveError as error:
                    failures.append(error)

        threads = [threading.Thread(target=create) for _ in range(2)]
        with slow_commits():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)

        assert [] == failures
        with opened_again(archive) as database, database.reading() as connection:
            assert [(1, 1)] == [tuple(row) for row in connection.execute(select(SCHEMA))]

    def test_interrupted_creation_is_completed(self, archive: SqlArchive) -> None:
        archive.save([make_report()])
        # As it is left by a process that is killed in MariaDB, which commits every table: the version comes last.
        with archive.database.writing() as connection:
            connection.execute(delete(SCHEMA))
            connection.execute(text("DROP TABLE slurmscope_views"))

        with opened_again(archive) as again:
            assert [4711] == numbers(again)
            with again.reading() as connection:
                assert [] == connection.execute(text("SELECT * FROM slurmscope_views")).all()
