# SPDX-License-Identifier: Apache-2.0
"""Open the database of the archive, create its tables, and convert its exceptions into one-sentence errors.

No connection is opened before the first query: an unreachable server does not prevent a start. A broken connection is
replaced; every query, and every wait for a connection, has a time limit. An archive whose tables are those of another
release is refused. The version is written last: a creation that was interrupted is completed by the next one.
"""

from __future__ import annotations

import copy
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from slurmscope.archive.drivers import WRITES, Driver, choose_driver
from slurmscope.archive.session_lock import SessionLock, make_session_lock
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.tables import METADATA, SCHEMA, SCHEMA_VERSION
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError, ArchiveTooLarge
from slurmscope.core.log import escape

T = TypeVar("T")

POOL_SIZE = 10
MAX_OVERFLOW = 14
RECYCLE_SECONDS = 1800
SCHEMA_SECONDS = 10.0
"""How often readers check that the tables are still those of this release; writers always do."""

# Deadlock and lock wait in MariaDB; serialization failure and deadlock in PostgreSQL.
_CONFLICTS = frozenset({1205, 1213, "40001", "40P01"})
# Packet and column of MariaDB; a limit of the program in PostgreSQL.
_TOO_LARGE = frozenset({1153, 1406, "54000"})
# PyMySQL: the connection broke before, or after, the statement was sent.
_BROKEN = frozenset({2006, 2013})
# What PyMySQL writes as two bytes.
_ESCAPED_BYTES = b"\0\n\r\x1a\"'\\"
_STATEMENT_BYTES = 1024
_SURELY_REPORTED_BYTES = 64 * 1024
_MESSAGE_LIMIT = 300
_ATTEMPT = re.compile(r"^- host: .*?: connection failed: (.+)$", re.MULTILINE)


class ArchiveConflict(ArchiveError):
    """Another writer was at the same rows; the same once more will do."""


class Database:
    """Lend connections to one database, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, settings: ArchiveSettings) -> None:
        """Set where it is; nothing is opened yet."""
        self.settings = settings
        self._url = make_url(settings.url)
        self._driver = choose_driver(self._url, settings)
        self._engine = _make_engine(self._url, self._driver, settings)
        self._check_writer: Callable[[Connection], None] = lambda _: None
        self._leave: Callable[[], None] = lambda: None
        self._is_prepared = False
        self._check_schema_at = 0.0
        self._preparing = threading.Lock()

    @property
    def dialect(self) -> str:
        """Return sqlite, mariadb or postgresql."""
        return self._engine.dialect.name

    @property
    def file(self) -> Path | None:
        """Return the file of an archive in SQLite."""
        name = self._url.database
        return Path(name) if self.dialect == "sqlite" and name else None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._raising_archive_errors(), self._lend(self._engine.connect) as connection:
            self._check_schema(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction: committed at the end of the block, rolled back on an error."""
        with self._raising_archive_errors(), self._lend(lambda: self._writer().begin()) as connection:
            check_version(connection)
            self._check_writer(connection)
            yield connection

    def write(self, write: Callable[[Connection], T]) -> T:
        """Write in one transaction; retry once if another writer changed the same rows."""
        try:
            with self.writing() as connection:
                return write(connection)
        except ArchiveConflict:
            with self.writing() as connection:
                return write(connection)

    def fenced(self, check: Callable[[Connection], None], leave: Callable[[], None]) -> Database:
        """Return this database for a writer that must pass a check at the beginning of every transaction.

        ``leave`` is called when the tables are found to be those of another release.
        """
        fenced = copy.copy(self)
        fenced._check_writer = check
        fenced._leave = leave
        return fenced

    def make_lock(self, name: str) -> SessionLock:
        """Return the lock of this name, which one process at a time can hold; nothing is opened yet."""
        return make_session_lock(self._url, self.settings, name)

    def refresh_statistics(self) -> None:
        """Run ANALYZE on SQLite, so that it chooses the right index; servers do so by themselves."""
        if self.dialect == "sqlite":
            with self.writing() as connection:
                connection.execute(text("ANALYZE"))

    def flush(self) -> None:
        """Move what was written into the SQLite file itself, so that a copy of it without its WAL is not empty."""
        if self.dialect == "sqlite":
            self._prepare()
            with self._raising_archive_errors(), closing(self._engine.raw_connection()) as connection:
                # Past SQLAlchemy: it must not be in a transaction. It waits for no reader and no writer.
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def close(self) -> None:
        """Close all connections; a later query opens new ones."""
        with self._raising_archive_errors():
            self._engine.dispose()

    @contextmanager
    def _lend(self, lend: Callable[[], Any]) -> Iterator[Connection]:
        self._prepare()
        with lend() as connection:
            yield connection

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        with self._preparing:
            if not self._is_prepared:
                self._driver.make_room()
                self._prepare_schema()
                self._is_prepared = True

    def _prepare_schema(self) -> None:
        """Create the tables of a new archive; an unreachable server is noticed here."""
        with self._engine.connect() as connection:
            is_created = has_tables(connection)
        if not is_created:
            create_tables(self._writer())

    def _check_schema(self, connection: Connection) -> None:
        """Notice now and then that another release has changed the tables."""
        if time.monotonic() >= self._check_schema_at:
            check_version(connection)
            self._check_schema_at = time.monotonic() + SCHEMA_SECONDS

    def _writer(self) -> Engine:
        return self._engine.execution_options(**{WRITES: True})

    @contextmanager
    def _raising_archive_errors(self) -> Iterator[None]:
        try:
            yield
        except ArchiveSchemaError:
            self._leave()
            raise
        except PoolTimeoutError as error:
            raise ArchiveError(
                f"the archive {self._shown} is busy: no connection was free in time; try again later"
            ) from error
        except DBAPIError as error:
            first = _first_error(error)
            raise self._kind(first)(self._message(first.orig)) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise ArchiveError(self._message(error)) from error

    def _kind(self, error: DBAPIError) -> type[ArchiveError]:
        if _is_conflict(error):
            return ArchiveConflict
        return ArchiveTooLarge if _is_too_large(error) or self._broke_by_size(error) else ArchiveError

    def _broke_by_size(self, error: DBAPIError) -> bool:
        """Return whether MariaDB closed the connection because of a large row.

        It does so in the middle of a packet over its limit, and its reason is lost with the connection. An
        unreachable server looks the same, so the limit is queried on a new connection.
        """
        sent_bytes = _largest_row_bytes(error.params)
        if self.dialect != "mariadb" or _codes(error).isdisjoint(_BROKEN) or sent_bytes < _SURELY_REPORTED_BYTES:
            return False
        try:
            with self._engine.connect() as connection:
                limit_bytes = connection.scalar(text("SELECT @@max_allowed_packet"))
        except (SQLAlchemyError, OSError):
            return False
        return sent_bytes + _STATEMENT_BYTES > int(limit_bytes)

    @property
    def _shown(self) -> str:
        return escape(_without_password(self._url), _MESSAGE_LIMIT)

    def _message(self, error: BaseException | None) -> str:
        """Return the first line of a database error; the others may repeat data."""
        return f"the archive {self._shown} could not be read or written: {escape(_first_line(error), _MESSAGE_LIMIT)}"


def _make_engine(url: URL, driver: Driver, settings: ArchiveSettings) -> Engine:
    engine = create_engine(
        url.set(drivername=driver.name),
        connect_args=dict(driver.arguments),
        hide_parameters=True,
        isolation_level=driver.isolation_level,
        max_overflow=MAX_OVERFLOW,
        pool_pre_ping=driver.is_remote,
        pool_recycle=RECYCLE_SECONDS,
        pool_size=POOL_SIZE,
        pool_timeout=settings.timeout,
    )
    driver.attach(engine)
    return engine


def _without_password(url: URL) -> str:
    hosts = url.query.get("host")
    if isinstance(hosts, tuple):
        user = f"{url.username}@" if url.username else ""
        return f"{url.drivername}://{user}{','.join(hosts)}/{url.database}"
    return url.set(query={}).render_as_string(hide_password=True)


def _first_line(error: BaseException | None) -> str:
    # PyMySQL raises a number and a message.
    said = str(error.args[-1]) if error is not None and error.args else repr(error)
    # psycopg repeats the failure of the last host, and lists those of all.
    if attempts := _ATTEMPT.findall(said):
        return "; ".join(dict.fromkeys(attempts))
    return next((line.strip() for line in said.splitlines() if line.strip()), "no reason was given")


def _first_error(error: DBAPIError) -> DBAPIError:
    """Return what went wrong first: on a connection that the server has closed, the ROLLBACK fails in its turn."""
    first: DBAPIError = error
    earlier = error.__context__
    # An ArchiveError was raised before: its causes are not those of a later attempt.
    while earlier is not None and not isinstance(earlier, ArchiveError):
        first = earlier if isinstance(earlier, DBAPIError) else first
        earlier = earlier.__context__
    return first


def _is_conflict(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return True
    return not _codes(error).isdisjoint(_CONFLICTS)


def _is_too_large(error: DBAPIError) -> bool:
    is_sqlite = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG
    return is_sqlite or not _codes(error).isdisjoint(_TOO_LARGE)


def _codes(error: DBAPIError) -> frozenset[object]:
    """Return the number of MariaDB, or the state of PostgreSQL."""
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return frozenset({number, getattr(error.orig, "sqlstate", None)})


def _largest_row_bytes(params: object) -> int:
    """Return how long the binary values of the largest row are as PyMySQL sends them."""
    rows = params if isinstance(params, list) else [params]
    return max((_sent_bytes(row) for row in rows), default=0)


def _sent_bytes(row: object) -> int:
    values: Iterable[object] = row.values() if isinstance(row, dict) else row if isinstance(row, tuple) else ()
    blobs = [value for value in values if isinstance(value, bytes)]
    return sum(2 * len(blob) - len(blob.translate(None, _ESCAPED_BYTES)) for blob in blobs)


LOCK_NAME = "slurmscope_schema"
LOCK_NUMBER = 0x736C7572
"""PostgreSQL numbers its advisory locks; any number that nothing else uses will do."""
LOCK_SECONDS = 60


def has_tables(connection: Connection) -> bool:
    """Return whether the archive was created; raise ArchiveSchemaError if another release did so."""
    return inspect(connection).has_table(SCHEMA.name) and check_version(connection)


def check_version(connection: Connection) -> bool:
    """Return whether the version was written; raise ArchiveSchemaError if it is that of another release."""
    version = connection.scalar(select(SCHEMA.c.version))
    if version is not None and version != SCHEMA_VERSION:
        raise ArchiveSchemaError(
            f"the archive has schema {version}, and this release supports only schema {SCHEMA_VERSION}: "
            "run the release of slurmscope that wrote it, or choose another archive with archive.url"
        )
    return version is not None


def create_tables(engine: Engine) -> None:
    """Create all tables unless another process did so meanwhile."""
    with _one_creation_at_a_time(engine) as connection:
        if not has_tables(connection):
            METADATA.create_all(connection)
            connection.execute(insert(SCHEMA).values(id=1, version=SCHEMA_VERSION))


@contextmanager
def _one_creation_at_a_time(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction that other processes wait for; SQLite locks its file with it."""
    dialect = engine.dialect.name
    with (
        engine.connect() as connection,
        _mariadb_lock(connection) if dialect == "mariadb" else nullcontext(),
        connection.begin(),
    ):
        if dialect == "postgresql":
            # Released at the end of the transaction.
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
        yield connection


@contextmanager
def _mariadb_lock(connection: Connection) -> Iterator[None]:
    """Lock until the transaction has ended: MariaDB commits after every new table."""
    lock = {"name": LOCK_NAME, "seconds": LOCK_SECONDS}
    # A name counts for the whole server: other archives on it have their own.
    if connection.scalar(text("SELECT GET_LOCK(CONCAT(DATABASE(), '.', :name), :seconds)"), lock) != 1:
        raise ArchiveError("the archive is being created by another process; try again later")
    connection.rollback()
    try:
        yield
    except BaseException:
        connection.invalidate()  # its end releases the lock, also where it no longer answers
        raise
    connection.execute(text("SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', :name))"), {"name": LOCK_NAME})
