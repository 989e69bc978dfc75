# SPDX-License-Identifier: Apache-2.0
"""An archive in a file is closed to strangers, quick, and says in one sentence what is wrong."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pymysql  # type: ignore[import-untyped]
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from slurmscope.archive import retention as day_retention
from slurmscope.archive import sql_archive as archive_module
from slurmscope.archive.access import TokenStore
from slurmscope.archive.engine import ArchiveConflict
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.errors import ArchiveError, ArchiveTooLarge
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from tests.fakes.archive_file import open_at, refusal
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report


def test_only_the_owner_can_read_the_files(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])

    assert {0o600} == {file.stat().st_mode & 0o777 for file in path.parent.glob(f"{path.name}*")}


def test_archive_is_there_after_a_restart(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])
    archive.close()

    again = open_at(path)

    assert (make_report(),) == again.find(EVERYTHING, 4711)
    again.close()


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    assert f"cannot open the archive {tmp_path}/no/a.db: its folder does not exist; create it" == refusal(
        open_at(tmp_path / "no" / "a.db")
    )


def test_file_of_another_kind_is_reported(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)

    assert "not a database" in refusal(open_at(path))


def test_directory_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    assert "Is a directory" in refusal(open_at(tmp_path))


def test_writer_that_never_ends_costs_an_error_and_readers_go_on(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 4711)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(ArchiveError, match="locked"):
            hurried.save([make_report(make_record(5))])
        assert (make_report(),) == hurried.find(EVERYTHING, 4711)
        other.execute("ROLLBACK")
    hurried.save([make_report(make_record(5))])
    hurried.close()


def test_row_that_is_too_large_is_distinguished_from_a_lock(archive: SqlArchive, path: Path) -> None:
    report = make_report()
    noise = random.Random(1)
    # Some 9 bytes for each of 20,000 numbers that do not repeat: far more than fits, in any coding.
    line = replace(report.charts[0].lines[0], values=tuple(noise.random() for _ in range(20_000)))
    times = tuple(float(START + second) for second in range(20_000))
    large = replace(report, charts=(replace(report.charts[0], times=times, lines=(line,)),))
    archive.save([report])
    with archive.database.reading() as connection:
        connection.connection.dbapi_connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)  # type: ignore[union-attr]

    with pytest.raises(ArchiveTooLarge, match="too big"):
        archive.save([large])
    archive.save([replace(large, charts=())])
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError) as told:
            hurried.save([large])
        other.execute("ROLLBACK")
    hurried.close()
    assert ArchiveError is type(told.value)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (pymysql.err.OperationalError(1153, "Got a packet bigger than 'max_allowed_packet' bytes"), ArchiveTooLarge),
        (pymysql.err.DataError(1406, "Data too long for column"), ArchiveTooLarge),
        (psycopg.errors.ProgramLimitExceeded("row is too big"), ArchiveTooLarge),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), ArchiveConflict),
        (pymysql.err.OperationalError(2006, "MySQL server has gone away"), ArchiveError),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), ArchiveError),
        (psycopg.errors.DiskFull("no space left"), ArchiveError),
    ],
)
def test_reason_of_a_server_is_known_by_its_number(
    archive: SqlArchive, reason: Exception, expected: type[ArchiveError]
) -> None:
    with pytest.raises(ArchiveError) as told, archive.database.reading():
        raise DBAPIError("INSERT", {"body": b"x" * 10_000_000}, reason)

    assert expected is type(told.value)
    # The message of the server, without its number or the name of a class.
    assert str(reason.args[-1]) in str(told.value)
    assert type(reason).__name__ not in str(told.value)


def test_first_of_two_errors_counts_and_none_that_was_reported_before(archive: SqlArchive) -> None:
    too_large = DBAPIError("INSERT", {}, pymysql.err.OperationalError(1153, "a packet is too big"))
    gone = DBAPIError("ROLLBACK", None, pymysql.err.OperationalError(2006, "the server has gone away"))

    def save() -> None:
        with archive.database.reading():
            try:
                raise too_large
            finally:
                raise gone

    with pytest.raises(ArchiveTooLarge, match="too big"):
        save()
    try:
        save()
    except ArchiveTooLarge:
        with pytest.raises(ArchiveError, match="locked") as told, archive.database.reading():
            raise DBAPIError("INSERT", {}, sqlite3.OperationalError("database is locked")) from None
    assert ArchiveError is type(told.value)


def test_large_archive_is_emptied_little_by_little(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "DELETE_ROWS", 2)
    monkeypatch.setattr(archive_module, "DELETE_BATCHES", 3)
    archive.save([make_unmeasured_report(make_record(number)) for number in range(1, 11)])
    later = START + 30 * 86400

    assert [6, 4, 0] == [archive.delete_curves(later) for _ in range(3)]
    monkeypatch.setitem(day_retention.MAX_DAY_JOBS, "sqlite", 9)
    assert [6, 4, 0] == [archive.delete_jobs(later) for _ in range(3)]
    assert () == archive.total(EVERYTHING, JobFilter(), GroupBy.DAY)


def test_query_without_end_is_broken_off(path: Path) -> None:
    hurried = open_at(path, timeout=0.2)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"

    with pytest.raises(ArchiveError, match="interrupted"), hurried.database.reading() as connection:
        connection.execute(text(endless))

    assert () == hurried.find(EVERYTHING, 1)
    hurried.close()


def test_more_people_than_connections_wait_or_are_reported(path: Path) -> None:
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)
    is_over = threading.Event()
    taken = threading.Barrier(25)

    def hold() -> None:
        with hurried.database.reading():
            taken.wait(60)
            is_over.wait(60)

    threads = [threading.Thread(target=hold) for _ in range(24)]
    for thread in threads:
        thread.start()
    taken.wait(60)

    with pytest.raises(ArchiveError, match="busy"):
        hurried.find(EVERYTHING, 1)
    is_over.set()
    for thread in threads:
        thread.join()
    assert () == hurried.find(EVERYTHING, 1)
    hurried.close()


def test_token_still_works_when_its_use_cannot_be_noted(archive: SqlArchive, path: Path) -> None:
    token = TokenStore(archive.database).create("ada")
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert Viewer(name="ada") == TokenStore(hurried.database).find(token)
        other.execute("ROLLBACK")
    hurried.close()


def test_token_itself_is_nowhere_in_the_file(archive: SqlArchive, path: Path) -> None:
    token = TokenStore(archive.database).create("ada")
    archive.close()

    assert len(token) > 43
    assert token.removeprefix("slsc_").encode() not in path.read_bytes()
