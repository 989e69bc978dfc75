# SPDX-License-Identifier: Apache-2.0
"""A backup is one moment of a database that is written to, whole or not there at all."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.core import sqlite_backup as backup
from slurmscope.core.errors import ArchiveError, OutputError
from slurmscope.core.sqlite_backup import back_up

ROWS = 3000


class Stopped(BaseException):
    """End a copy half-way."""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a database in which two tables always have the same number of rows, all of it in the WAL."""
    monkeypatch.setattr(backup, "STEP_PAGES", 50)
    path = tmp_path / "archive.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        for name in ("a", "b"):
            connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, text TEXT)")
        insert(connection, ROWS)
        yield path


def insert(connection: sqlite3.Connection, rows: int) -> None:
    with connection:
        for name in ("a", "b"):
            connection.executemany(f"INSERT INTO {name} (text) VALUES (?)", [("x" * 500,)] * rows)


def copy(source: Path, target: Path, *, may_replace: bool = False) -> int:
    return back_up(source, target, may_replace=may_replace, show_pages=lambda _done, _total: None)


def counts(path: Path) -> tuple[int, int]:
    """Return the rows of both tables, after a check of the whole file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
        return tuple(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("a", "b"))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_copy_is_one_complete_file_for_this_user_only(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    # The main file alone has nothing yet.
    assert source.stat().st_size < 3 * 4096

    size_bytes = copy(source, folder / "copy.db")

    assert (ROWS, ROWS) == counts(folder / "copy.db")
    assert {"copy.db"} == files(folder)
    assert size_bytes == (folder / "copy.db").stat().st_size
    assert 0o600 == stat.S_IMODE((folder / "copy.db").stat().st_mode)


def test_copy_of_a_database_that_is_written_to_ends_and_is_one_moment(source: Path, tmp_path: Path) -> None:
    is_over, writes = threading.Event(), []

    def write() -> None:
        with closing(sqlite3.connect(source, timeout=60)) as connection:
            while not is_over.is_set():
                insert(connection, 10)
                writes.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    try:
        # Each step waits for a write in between, which would make an ordinary copy start again.
        def wait_for_write(_done: int, _total: int) -> None:
            seen.append(len(writes))
            while len(writes) == seen[-1] and writer.is_alive():
                is_over.wait(0.001)

        back_up(source, tmp_path / "copy.db", may_replace=False, show_pages=wait_for_write)
    finally:
        is_over.set()
        writer.join()

    a, b = counts(tmp_path / "copy.db")
    assert a == b >= ROWS
    assert len(seen) > 1
    with closing(sqlite3.connect(source)) as connection:
        assert connection.execute("SELECT count(*) FROM a").fetchone()[0] > a


def test_what_exists_is_replaced_only_if_that_is_wanted(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")

    with pytest.raises(OutputError, match="exists; choose another file, or replace it with --force"):
        copy(source, target)
    assert "precious" == target.read_text()

    copy(source, target, may_replace=True)
    assert (ROWS, ROWS) == counts(target)


def test_database_is_never_replaced_by_its_own_copy(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(source)

    for target in (source, tmp_path / "link.db"):
        with pytest.raises(OutputError, match="is the database itself"):
            copy(source, target, may_replace=True)


def test_copy_that_is_stopped_leaves_nothing(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()

    def stop(_done: int, _total: int) -> None:
        assert 1 == len(files(folder))
        raise Stopped

    with pytest.raises(Stopped):
        back_up(source, folder / "copy.db", may_replace=False, show_pages=stop)

    assert set() == files(folder)


def test_failures_are_one_sentence_and_leave_nothing(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    damaged, no_database = tmp_path / "damaged.db", tmp_path / "text"
    copy(source, damaged)
    content = bytearray(damaged.read_bytes())
    content[4096 * 3 : 4096 * 30] = b"\xff" * (4096 * 27)
    damaged.write_bytes(content)
    no_database.write_text("no database " * 1000)

    for broken in (damaged, no_database, tmp_path / "absent"):
        with pytest.raises(ArchiveError):
            copy(broken, folder / "copy.db")
    with pytest.raises(OutputError, match=r"cannot write .*No such file or directory"):
        copy(source, folder / "absent" / "copy.db")

    assert set() == files(folder)
