# SPDX-License-Identifier: Apache-2.0
"""Know how SQLite, MariaDB and PostgreSQL want to be opened, and how each is kept to a time limit."""

from __future__ import annotations

import errno
import importlib.util
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import read_password
from slurmscope.core.errors import ArchiveError, ConfigError, MissingExtraError

FILE_MODE = 0o600
WRITES = "slurmscope_writes"
"""Execution option of connections that will write: SQLite takes its lock at the beginning, not in the middle."""

SILENCE_SECONDS = 45
"""After so long without a query a server closes a connection that holds a lock."""
_STEPS_BETWEEN_LOOKS = 20_000
# ANALYZE must sample more rows than a user has jobs, or else all indexes seem equally good to SQLite.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-16000", "analysis_limit=20000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Fit one kind of database."""

    name: str
    """As SQLAlchemy writes the database with its Python driver."""
    arguments: Mapping[str, Any]
    """What the Python driver is given for every connection."""
    lock_arguments: Mapping[str, Any]
    """The same for a connection that holds a lock: both sides notice soon that the other is gone."""
    attach: Callable[[Engine], None]
    """Listen to what the engine does."""
    is_remote: bool = True
    make_room: Callable[[], None] = lambda: None
    """Do what must be done before the first connection; a database of a server is made by its administrator."""

    @property
    def isolation_level(self) -> Literal["READ COMMITTED"] | None:
        """Return that of servers: without gap locks two reporters of MariaDB do not stand in each other's way."""
        return "READ COMMITTED" if self.is_remote else None


def choose_driver(url: URL, settings: ArchiveSettings) -> Driver:
    """Return what fits the address; raise MissingExtraError when its Python driver is not installed."""
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _sqlite(Path(url.database or ""), settings.timeout)
    if backend == "postgresql":
        require_package("psycopg", "an archive in PostgreSQL", "postgresql")
        return _postgresql(settings.password_file, settings.timeout)
    if backend in {"mariadb", "mysql"}:
        require_package("pymysql", "an archive in MariaDB", "mariadb")
        return _mariadb(settings.password_file, settings.timeout)
    raise ConfigError(f"--archive.url: {backend} is not supported; use sqlite, mariadb or postgresql")


def _sqlite(path: Path, timeout_seconds: float) -> Driver:
    """Open a file: readers do not wait for the writer, and long queries are interrupted."""
    # Locks are waited for no longer than anything else; transactions are begun by us.
    arguments = {"timeout": timeout_seconds, "isolation_level": None, "check_same_thread": False}

    def start_clock(connection: Connection, *_: Any) -> None:
        connection.info["watch"].deadline = time.monotonic() + timeout_seconds

    def attach(engine: Engine) -> None:
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        event.listen(engine, "before_cursor_execute", start_clock)

    return Driver(
        name="sqlite+pysqlite",
        arguments=arguments,
        lock_arguments=arguments,
        attach=attach,
        is_remote=False,
        make_room=partial(_make_file, path),
    )


def _make_file(path: Path) -> None:
    """Create the file without access for others: it shows who ran what."""
    if not path.parent.is_dir():
        raise ArchiveError(f"cannot open the archive {path}: its folder does not exist; create it")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # An existing file is not opened: closing it would end the locks of all connections of this process to it,
    # and another process would then delete the WAL under them.
    if not path.exists():
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))


def _set_up(connection: Any, record: Any) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()
    watch = record.info["watch"] = _Watch()
    connection.set_progress_handler(watch.is_late, _STEPS_BETWEEN_LOOKS)


class _Watch:
    """Return to SQLite, which calls this now and then, whether a statement has run for too long."""

    deadline = float("inf")

    def is_late(self) -> int:
        return int(time.monotonic() > self.deadline)


def _begin(connection: Connection) -> None:
    # A reader that becomes a writer half-way cannot wait for another writer: it fails at once. So writers say so first.
    # Past SQLAlchemy, whose own way takes longer than reading a page of a list.
    is_writer = connection.get_execution_options().get(WRITES, False)
    connection.connection.cursor().execute("BEGIN IMMEDIATE" if is_writer else "BEGIN").close()


def _mariadb(password_file: Path | None, timeout_seconds: float) -> Driver:
    """Open MariaDB through PyMySQL; both sides limit the time: the server ends a statement, and if not, we leave."""
    whole_seconds = _whole(timeout_seconds)
    variables = {
        "max_statement_time": f"{timeout_seconds:.3f}",
        "innodb_lock_wait_timeout": whole_seconds,
        "lock_wait_timeout": whole_seconds,
        # A transaction of a host that vanished ends, and with it the locks on rows.
        "idle_transaction_timeout": whole_seconds,
    }
    arguments = {
        "charset": "utf8mb4",
        "connect_timeout": whole_seconds,
        "read_timeout": timeout_seconds + 1,
        "write_timeout": timeout_seconds + 1,
        "init_command": "SET SESSION " + ", ".join(f"{name}={value}" for name, value in variables.items()),
    }

    def give_password(_dialect: Any, _record: Any, _arguments: Any, named: dict[str, Any]) -> None:
        named |= _read_login(password_file)

    def attach(engine: Engine) -> None:
        event.listen(engine, "do_connect", give_password)

    # The server closes connections that are silent, and answers have a time limit: the same for locks.
    return Driver(name="mariadb+pymysql", arguments=arguments, lock_arguments=arguments, attach=attach)


def _postgresql(password_file: Path | None, timeout_seconds: float) -> Driver:
    """Open PostgreSQL through psycopg; both sides limit the time, as with MariaDB."""
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    options = " ".join(f"-c {name}={_whole(timeout_seconds * 1000)}" for name in limits)
    # libpq takes 1 for 2.
    arguments = {"connect_timeout": max(2, round(timeout_seconds)), "options": options, "client_encoding": "utf8"}
    # The kernels of both sides test a connection with a lock every few seconds.
    server = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 4}
    client = {name.removeprefix("tcp_"): value for name, value in server.items()}
    user_timeout = {"tcp_user_timeout": 30_000}
    lock_options = [options, *(f"-c {name}={value}" for name, value in {**server, **user_timeout}.items())]

    def connect(_dialect: Any, _record: Any, arguments: Any, named: dict[str, Any]) -> Any:
        """Make every connection ourselves: with the password, and with a time limit."""
        named |= _read_login(password_file)
        return _bounded_connection(timeout_seconds + 1).connect(*arguments, **named)

    def attach(engine: Engine) -> None:
        event.listen(engine, "do_connect", connect)

    return Driver(
        name="postgresql+psycopg",
        arguments=arguments,
        lock_arguments={**arguments, **client, **user_timeout, "options": " ".join(lock_options)},
        attach=attach,
    )


@lru_cache(maxsize=16)
def _bounded_connection(limit_seconds: float) -> type[Any]:
    """Return a kind of connection to PostgreSQL that is closed when one exchange takes longer than this.

    The server ends a statement that takes too long. But a server that hangs, or a network that swallows packets, ends
    nothing, and psycopg would wait for hours.
    """
    import psycopg

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **named: Any) -> Any:
            return super().wait(self._hurry(gen), *arguments, **named)

        def _hurry(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            deadline = time.monotonic() + limit_seconds
            try:
                wanted = next(gen)
                while True:
                    # psycopg wakes several times a second, with a 0 when nothing has arrived.
                    ready = yield wanted
                    if not ready and time.monotonic() > deadline:
                        # In the middle of an exchange the connection is of no further use.
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server did not answer in time")
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

    return BoundedConnection


def _read_login(password_file: Path | None) -> dict[str, str]:
    """Read the password for every new connection."""
    try:
        return {"password": read_password(password_file)} if password_file else {}
    except ConfigError as error:
        raise ArchiveError(str(error)) from error


def require_package(package: str, feature: str, extra: str) -> None:
    """Raise MissingExtraError unless a package is installed; it is not imported yet."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(feature, extra)


def _whole(number: float) -> int:
    return max(1, round(number))
