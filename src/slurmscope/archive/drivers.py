# SPDX-License-Identifier: Apache-2.0
"""Know how SQLite, MariaDB and PostgreSQL want to be opened, and how each is kept to a time limit."""

from __future__ import annotations

import errno
import importlib.util
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError, ConfigError, MissingExtraError

FILE_MODE = 0o600
WRITES = "slurmscope_writes"
"""Execution option of connections that will write: SQLite takes its lock at the beginning, not in the middle."""

PASSWORD_LIMIT_BYTES = 4096
SILENCE_SECONDS = 45
"""After so long without a query a server closes a connection that holds a lock."""
_STEPS_BETWEEN_LOOKS = 20_000
# ANALYZE must sample more rows than a user has jobs, or else all indexes seem equally good to SQLite.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-16000", "analysis_limit=20000")

Isolation = Literal["READ COMMITTED"]


class Driver(Protocol):
    """Fit one kind of database."""

    isolation_level: Isolation | None
    is_remote: bool

    def make_url(self, url: URL) -> URL:
        """Return the address with the name of the Python driver in it."""
        ...

    def connect_arguments(self) -> Mapping[str, Any]:
        """Return what the Python driver is given for every connection."""
        ...

    def lock_connect_arguments(self) -> Mapping[str, Any]:
        """Return those of a connection that holds a lock: both sides notice soon that the other is gone."""
        ...

    def attach(self, engine: Engine) -> None:
        """Listen to what the engine does."""
        ...

    def make_room(self) -> None:
        """Do what must be done before the first connection."""
        ...


def choose_driver(url: URL, settings: ArchiveSettings) -> Driver:
    """Return what fits the address; raise MissingExtraError when its Python driver is not installed."""
    backend = url.get_backend_name()
    if backend == "sqlite":
        return SqliteDriver(Path(url.database or ""), settings.timeout)
    if backend == "postgresql":
        require_package("psycopg", "an archive in PostgreSQL", "postgresql")
        return PostgresDriver(settings.password_file, settings.timeout)
    if backend in {"mariadb", "mysql"}:
        require_package("pymysql", "an archive in MariaDB", "mariadb")
        return MariadbDriver(settings.password_file, settings.timeout)
    raise ConfigError(f"--archive.url: {backend} is not supported; use sqlite, mariadb or postgresql")


class SqliteDriver:
    """Open a file: readers do not wait for the writer, and long queries are interrupted."""

    isolation_level: Isolation | None = None
    is_remote = False

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def make_url(self, url: URL) -> URL:
        """Return the address with the name of the Python driver in it."""
        return url.set(drivername="sqlite+pysqlite")

    def connect_arguments(self) -> Mapping[str, Any]:
        """Wait for locks no longer than for anything else; transactions are begun by us."""
        return {"timeout": self._timeout_seconds, "isolation_level": None, "check_same_thread": False}

    def lock_connect_arguments(self) -> Mapping[str, Any]:
        """Return the same: there is no server."""
        return self.connect_arguments()

    def make_room(self) -> None:
        """Create the file without access for others: it shows who ran what."""
        if not self._path.parent.is_dir():
            raise ArchiveError(f"cannot open the archive {self._path}: its folder does not exist; create it")
        if self._path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # An existing file is not opened: closing it would end the locks of all connections of this process to it,
        # and another process would then delete the WAL under them.
        if not self._path.exists():
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))

    def attach(self, engine: Engine) -> None:
        """Set up connections, begin transactions, and start the clock of every statement."""
        event.listen(engine, "connect", self._set_up)
        event.listen(engine, "begin", _begin)
        event.listen(engine, "before_cursor_execute", self._start_clock)

    def _set_up(self, connection: Any, record: Any) -> None:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()
        watch = record.info["watch"] = _Watch()
        connection.set_progress_handler(watch.is_late, _STEPS_BETWEEN_LOOKS)

    def _start_clock(self, connection: Connection, *_: Any) -> None:
        connection.info["watch"].deadline = time.monotonic() + self._timeout_seconds


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


class MariadbDriver:
    """Open MariaDB through PyMySQL."""

    # Without gap locks two reporters do not stand in each other's way.
    isolation_level: Isolation | None = "READ COMMITTED"
    is_remote = True

    def __init__(self, password_file: Path | None, timeout_seconds: float) -> None:
        self._password_file = password_file
        self._timeout_seconds = timeout_seconds

    def make_url(self, url: URL) -> URL:
        """Return the address with the name of the Python driver in it."""
        return url.set(drivername="mariadb+pymysql")

    def connect_arguments(self) -> Mapping[str, Any]:
        """Limit the time on both sides: the server ends the statement, and if it cannot, we leave."""
        seconds, whole_seconds = self._timeout_seconds, _whole(self._timeout_seconds)
        variables = {
            "max_statement_time": f"{seconds:.3f}",
            "innodb_lock_wait_timeout": whole_seconds,
            "lock_wait_timeout": whole_seconds,
            # A transaction of a host that vanished ends, and with it the locks on rows.
            "idle_transaction_timeout": whole_seconds,
        }
        return {
            "charset": "utf8mb4",
            "connect_timeout": whole_seconds,
            "read_timeout": seconds + 1,
            "write_timeout": seconds + 1,
            "init_command": "SET SESSION " + ", ".join(f"{name}={value}" for name, value in variables.items()),
        }

    def lock_connect_arguments(self) -> Mapping[str, Any]:
        """Return the same: the server closes connections that are silent, and answers have a time limit."""
        return self.connect_arguments()

    def make_room(self) -> None:
        """Do nothing: the database is made by its administrator."""

    def attach(self, engine: Engine) -> None:
        """Read the password for every new connection."""
        event.listen(engine, "do_connect", self._give_password)

    def _give_password(self, dialect: Any, record: Any, arguments: Any, named: dict[str, Any]) -> None:
        if self._password_file is not None:
            named["password"] = read_password(self._password_file)


class PostgresDriver:
    """Open PostgreSQL through psycopg."""

    isolation_level: Isolation | None = "READ COMMITTED"
    is_remote = True

    def __init__(self, password_file: Path | None, timeout_seconds: float) -> None:
        self._password_file = password_file
        self._timeout_seconds = timeout_seconds

    def make_url(self, url: URL) -> URL:
        """Return the address with the name of the Python driver in it."""
        return url.set(drivername="postgresql+psycopg")

    def connect_arguments(self) -> Mapping[str, Any]:
        """Limit the time on both sides: the server ends the statement, and if it cannot, we leave."""
        milliseconds = _whole(self._timeout_seconds * 1000)
        limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return MappingProxyType(
            {
                # libpq takes 1 for 2.
                "connect_timeout": max(2, round(self._timeout_seconds)),
                "options": " ".join(f"-c {name}={milliseconds}" for name in limits),
                "client_encoding": "utf8",
            }
        )

    def lock_connect_arguments(self) -> Mapping[str, Any]:
        """Let the kernels of both sides test the connection every few seconds."""
        usual = self.connect_arguments()
        server = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 4}
        client = {name.removeprefix("tcp_"): value for name, value in server.items()}
        options = [usual["options"], *(f"-c {name}={value}" for name, value in server.items())]
        user_timeout = {"tcp_user_timeout": 30_000}
        return MappingProxyType(
            {**usual, **client, **user_timeout, "options": " ".join([*options, "-c tcp_user_timeout=30000"])}
        )

    def make_room(self) -> None:
        """Do nothing: the database is made by its administrator."""

    def attach(self, engine: Engine) -> None:
        """Make every connection ourselves: with the password, and with a time limit."""
        event.listen(engine, "do_connect", self._connect)

    def _connect(self, dialect: Any, record: Any, arguments: Any, named: dict[str, Any]) -> Any:
        from slurmscope.archive.bounded_psycopg import bounded_connection

        if self._password_file is not None:
            named["password"] = read_password(self._password_file)
        return bounded_connection(self._timeout_seconds + 1).connect(*arguments, **named)


def read_password(path: Path) -> str:
    """Return the first line of the file; raise ArchiveError without any of it."""
    try:
        with path.open("rb") as stream:
            data = stream.read(PASSWORD_LIMIT_BYTES + 1)
        line = data.decode().partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise ArchiveError(f"cannot read the password file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ArchiveError(f"the password file {path} is not UTF-8") from None
    if not line or len(data) > PASSWORD_LIMIT_BYTES:
        raise ArchiveError(f"the password file {path} is empty or longer than {PASSWORD_LIMIT_BYTES} bytes")
    return line


def require_package(package: str, feature: str, extra: str) -> None:
    """Raise MissingExtraError unless a package is installed; it is not imported yet."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(feature, extra)


def _whole(number: float) -> int:
    return max(1, round(number))
