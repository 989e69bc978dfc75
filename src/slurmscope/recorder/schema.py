# SPDX-License-Identifier: Apache-2.0
"""Open the file of the recorder, and never modify a file of another program.

SQLite is used as it comes with Python, without SQLAlchemy: a file of samples is never moved to a database server, and
the recorder needs pragmas, blobs and nothing between them and the loop that takes 50,000 samples a second.

Samples of the last hour stand in the journal, one row for all samples of one moment. Then they are packed: the
series of one metric and job into one row of ``slabs``, and the times that all metrics of a job share into one row of
``times``. What was packed together has the same ``period``, and is dropped together. Numbers are written as this
machine holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmscope.core.errors import ArchiveError, ServerTimedOut, SourceError
from slurmscope.core.log import escape

MODE = 0o600
BUSY_SECONDS = 5.0

_APPLICATION = 0x536C5363
_VERSION = 1
_MAGIC = b"SQLite format 3\0"
_APPLICATION_PLACE = 68
_WAL_LIMIT_BYTES = 64 * 1024 * 1024
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_TABLES = """
CREATE TABLE heads (id INTEGER PRIMARY KEY, metric TEXT NOT NULL, job_id INTEGER NOT NULL, labels TEXT NOT NULL);
CREATE TABLE journal (id INTEGER PRIMARY KEY, at REAL NOT NULL, series BLOB NOT NULL, numbers BLOB NOT NULL);
CREATE TABLE times (id INTEGER PRIMARY KEY, period REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE slabs (
    id INTEGER PRIMARY KEY, period REAL NOT NULL, metric TEXT NOT NULL, job_id INTEGER NOT NULL,
    start REAL NOT NULL, end REAL NOT NULL, times_id INTEGER NOT NULL,
    labels BLOB NOT NULL, layout BLOB NOT NULL, digests BLOB NOT NULL, data BLOB NOT NULL
);
CREATE INDEX times_by_period ON times (period);
CREATE INDEX slabs_by_period ON slabs (period);
CREATE INDEX slabs_by_job ON slabs (job_id, metric, start);
CREATE INDEX heads_by_job ON heads (job_id, metric);
"""


def open_writer(file: Path) -> sqlite3.Connection:
    """Open the file for the one who records, and make it where there is none; it may be used from any thread."""
    _make_file(file)
    connection = _connect(file, "rw")
    try:
        _set_up(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def open_reader(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the file to read from one moment of it; a failure is a SourceError."""
    try:
        with contextlib.closing(_connect(file, "ro")) as connection:
            if _pragma(connection, "user_version") != _VERSION:
                raise SourceError(f"{escape(str(file))} was written by another version of slurmscope")
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise ServerTimedOut(f"reading recorded samples from {escape(str(file))} timed out") from error
        raise SourceError(f"cannot read recorded samples from {escape(str(file))}: {error}") from error


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def lock(file: Path) -> int:
    """Lock the file against other recorders; return a descriptor that keeps the lock until it is closed.

    The lock is on a separate file: closing any descriptor of a database file releases all of SQLite's locks.
    """
    beside = file.with_name(f"{file.name}.lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    except OSError as error:
        raise ArchiveError(
            f"cannot create {escape(str(beside))}: {error.strerror}; create its folder for this user, "
            "or set another file with --recorder.file"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ArchiveError(
            f"another process records into {escape(str(file))}; stop it, or set another file with --recorder.file"
        ) from error
    return descriptor


def move_aside(file: Path) -> Path:
    """Rename a damaged file, with the other files of SQLite, and return the new name."""
    number = next(n for n in range(1, 10_000) if not file.with_name(f"{file.name}.damaged-{n}").exists())
    aside = file.with_name(f"{file.name}.damaged-{number}")
    for ending in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            file.with_name(file.name + ending).rename(aside.with_name(aside.name + ending))
    return aside


def is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def used_bytes(connection: sqlite3.Connection) -> int:
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def _make_file(file: Path) -> None:
    """Create an empty file with its mode, or make sure that the one there is ours."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    except FileExistsError:
        if not _is_ours(file):
            raise ArchiveError(
                f"{escape(str(file))} is not a file of the recorder; move it, or set another file with --recorder.file"
            ) from None
        return
    except OSError as error:
        raise ArchiveError(f"cannot write {escape(str(file))}: {error.strerror}") from error
    try:
        os.fchmod(descriptor, MODE)
    finally:
        os.close(descriptor)


def _is_ours(file: Path) -> bool:
    """Return whether we may write here: our mark, or what a machine that lost power leaves of a new file."""
    try:
        if not file.is_file():  # reading a pipe would keep us waiting
            return False
        with file.open("rb") as opened:
            begin = opened.read(100)
    except OSError as error:
        raise ArchiveError(f"cannot write {escape(str(file))}: {error.strerror}") from error
    mark = int.from_bytes(begin[_APPLICATION_PLACE : _APPLICATION_PLACE + 4], "big")
    return not begin.strip(b"\0") or (begin.startswith(_MAGIC) and mark == _APPLICATION)


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _set_up(connection: sqlite3.Connection, file: Path) -> None:
    version = _pragma(connection, "user_version")
    if version not in {0, _VERSION}:
        raise ArchiveError(
            f"{escape(str(file))} was written by another version of slurmscope; move it, or set "
            "another file with --recorder.file"
        )
    if not _pragma(connection, "application_id"):
        # The mark comes first and by itself: a file that was left half made is still known as ours.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
    if not version:
        with writing(connection):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number
