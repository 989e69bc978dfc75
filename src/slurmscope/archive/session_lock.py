# SPDX-License-Identifier: Apache-2.0
"""Hold a lock of the archive that one process at a time can hold, and that ends with its process.

PostgreSQL and MariaDB bind it to a connection of its own, SQLite to an open file beside the archive. A killed process
loses it at once, one that lost its network or was stopped within 45 seconds: the server closes idle connections.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from slurmscope.archive.drivers import FILE_MODE, SILENCE_SECONDS, choose_driver
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError

LONGEST_ANSWER_SECONDS = 10.0
"""How long the server may take to confirm a lock, whatever the timeout of queries is."""


class _Statements(NamedTuple):
    """The SQL statements of one server for a lock; a true result or 1 means yes."""

    set_up: str
    take: str
    is_mine: str
    is_taken: str


_PG_LOCKS = (
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid::bigint << 32 | objid::bigint) = :number"
)
_STATEMENTS = {
    "postgresql": _Statements(
        # A process that is stopped answers TCP, and would keep the lock. PostgreSQL 13 cannot close such connections.
        set_up=f"SELECT set_config('idle_session_timeout', '{SILENCE_SECONDS}s', false) "
        "WHERE current_setting('server_version_num')::int >= 140000",
        take="SELECT pg_try_advisory_lock(:number)",
        is_mine=f"{_PG_LOCKS} AND pid = pg_backend_pid())",
        is_taken=f"{_PG_LOCKS})",
    ),
    "mariadb": _Statements(
        set_up=f"SET SESSION wait_timeout = {SILENCE_SECONDS}",
        take="SELECT GET_LOCK(:name, 0)",
        is_mine="SELECT IS_USED_LOCK(:name) = CONNECTION_ID()",
        is_taken="SELECT IS_FREE_LOCK(:name) = 0",
    ),
}
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"[A-Za-z0-9_ -]{1,64}\Z")


class SessionLock(Protocol):
    """A lock that one process at a time can take; not thread-safe. Failures are raised as ``ArchiveError``."""

    def hold(self) -> bool:
        """Take the lock if it is free, or confirm that it is still held; return whether this process has it."""
        ...

    def is_taken(self) -> bool:
        """Return whether any process has the lock, without taking it."""
        ...

    def release(self) -> None: ...


def make_session_lock(url: URL, settings: ArchiveSettings, name: str) -> SessionLock:
    """Return the lock of this name in the database of the settings; nothing is opened yet."""
    if url.get_backend_name() == "sqlite":
        # One file may have several names.
        path = Path(url.database or "").resolve()
        return FileLock(Path(f"{path}.{_file_name(name)}.lock"))
    hurried = replace(settings, timeout=min(settings.timeout, LONGEST_ANSWER_SECONDS))
    driver = choose_driver(url, hurried)
    engine = create_engine(
        url.set(drivername=driver.name),
        connect_args=dict(driver.lock_arguments),
        hide_parameters=True,
        isolation_level="AUTOCOMMIT",
        poolclass=NullPool,
    )
    driver.attach(engine)
    return ConnectionLock(engine, f"{url.database} {name}")


def _file_name(name: str) -> str:
    """Return the name of a lock as a part of a file name; those of clusters a.b and a_b differ."""
    plain = _ODD.sub("_", name)
    return plain if _PLAIN.match(name) else f"{plain[:48]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class FileLock:
    """Lock a file beside the archive."""

    def __init__(self, path: Path) -> None:
        """Set the path; nothing is opened yet."""
        self._path = path
        self._file: int | None = None

    def hold(self) -> bool:
        """Take the lock, or confirm it: the file may have been deleted, and locked anew by another process."""
        try:
            if self._file is not None and not self._is_in_place(self._file):
                self.release()
            if self._file is None:
                self._file = self._try_lock()
        except OSError as error:
            raise ArchiveError(f"cannot lock {self._path}: {error.strerror}") from error
        return self._file is not None

    def is_taken(self) -> bool:
        """Return whether any process has the lock."""
        if self._file is not None:
            return True
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ArchiveError(f"cannot read {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def release(self) -> None:
        """Close the file, which ends the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try_lock(self) -> int | None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            os.close(file)
            raise
        return file

    def _is_in_place(self, file: int) -> bool:
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            return False
        held = os.fstat(file)
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


class ConnectionLock:
    """Lock a name in a database server, on a connection of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Set the engine and the name of the lock; nothing is opened yet."""
        self._engine = engine
        self._statements = _STATEMENTS[engine.dialect.name]
        digest = hashlib.sha256(f"slurmscope {name}".encode()).digest()
        # A number for PostgreSQL; MariaDB takes names of up to 64 characters, which count for the whole server.
        self._parameters = {
            "number": int.from_bytes(digest[:8], "big", signed=True),
            "name": f"slurmscope.{digest.hex()[:40]}",
        }
        self._connection: Connection | None = None
        self._is_held = False

    def hold(self) -> bool:
        """Take the lock, or confirm it. A lock that was lost is not taken again in the same call."""
        try:
            if self._is_held:
                if not self._ask(self._statements.is_mine):
                    self.release()
            else:
                self._is_held = self._ask(self._statements.take)
        except (SQLAlchemyError, OSError) as error:
            self.release()
            raise ArchiveError(f"the archive database did not confirm a lock: {_reason(error)}") from error
        return self._is_held

    def is_taken(self) -> bool:
        """Return whether any process has the lock."""
        try:
            return self._ask(self._statements.is_taken)
        except (SQLAlchemyError, OSError) as error:
            self.release()
            raise ArchiveError(f"the archive database did not answer: {_reason(error)}") from error

    def release(self) -> None:
        """Close the connection, which ends the lock."""
        connection, self._connection, self._is_held = self._connection, None, False
        if connection is not None:
            with suppress(SQLAlchemyError, OSError):  # it may be broken
                connection.invalidate()
                connection.close()

    def _ask(self, statement: str) -> bool:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.execute(text(self._statements.set_up))
        query = text(statement)
        parameters = {name: self._parameters[name] for name in query.compile().params}
        return self._connection.scalar(query, parameters) in (1, True)


def _reason(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    said = str(cause.args[-1]) if cause.args else repr(cause)
    return next((line.strip() for line in said.splitlines() if line.strip()), "no reason was given")[:300]
