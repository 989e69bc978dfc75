# SPDX-License-Identifier: Apache-2.0
"""Query the server of Slurm's accounting database, MariaDB or MySQL, with limits.

A connection is opened for one task and closed after it, so a restart of the server needs no recovery.
"""

from __future__ import annotations

import importlib
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmscope.errors import (
    ConfigError,
    MalformedAnswer,
    MissingExtraError,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SourceError,
)
from slurmscope.log import escape
from slurmscope.sources.accounting.settings import AccountingSettings

ResultRow = tuple[Any, ...]
SqlValue = int | str

_PASSWORD_LIMIT_BYTES = 4096
_MESSAGE_LIMIT = 300

# Error numbers of the server.
_DENIED = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1698})
_UNREACHABLE = frozenset({1040, 1129, 1130, 1203, 2002, 2003, 2005})
_TOO_SLOW = frozenset({1205, 1317, 1969, 3024})
_NOT_GRANTED = frozenset({1049, 1146, 1356})


class Denied(ServerRefused):
    """The server accepts our login but denies the operation."""


@dataclass(frozen=True, slots=True)
class Session:
    """Run queries on one connection; ``name`` is the name of the server in messages."""

    connection: Any
    name: str

    def query(self, statement: str, values: Sequence[SqlValue] = ()) -> tuple[ResultRow, ...]:
        """Return all rows of one statement; values replace its ``%s`` placeholders."""
        with _translated(self.name), self.connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            return tuple(cursor.fetchall())


def read_password(path: Path) -> str:
    """Read the first line of a file with a password."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_PASSWORD_LIMIT_BYTES + 1)
        lines = content.decode("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read the password file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"password file {path} is not UTF-8 text") from error
    if len(content) > _PASSWORD_LIMIT_BYTES or not lines or not lines[0]:
        raise ConfigError(f"password file {path} is empty or longer than {_PASSWORD_LIMIT_BYTES} bytes")
    return lines[0]


@contextmanager
def open_session(settings: AccountingSettings) -> Iterator[Session]:
    """Connect as the configured user; the connection is closed at the end.

    Raises ServerRefused, ServerTimedOut or ServerError, each with one sentence and without the password.
    """
    name = server_name(settings)
    password = read_password(settings.password_file) if settings.password_file else ""
    connection = _import_pymysql().connect(
        **_address(settings),
        user=settings.user,
        password=password.encode(),  # as text, it could not be any but latin-1
        database=settings.database,
        charset="utf8mb4",
        connect_timeout=max(1, round(settings.timeout)),
        read_timeout=settings.timeout,
        write_timeout=settings.timeout,
        autocommit=True,
        local_infile=False,
        defer_connect=True,
    )
    with _translated(name):
        _connect(connection, settings)
    try:
        session = Session(connection, name)
        _limit_time(session, settings.timeout)
        yield session
    finally:
        connection.close()


def _connect(connection: Any, settings: AccountingSettings) -> None:
    """Connect; a unix socket is opened here, because PyMySQL does not close one without a listener."""
    if not settings.socket:
        connection.connect()
        return
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(settings.timeout)
        link.connect(str(settings.socket))
        connection._secure = True  # a local socket is private: MySQL accepts the password in clear text
        connection.connect(link)
    except BaseException:
        link.close()
        raise


def server_name(settings: AccountingSettings) -> str:
    """Return the name of the server in messages."""
    place = str(settings.socket) if settings.socket else f"{settings.host}:{settings.port}"
    return f"database {settings.database} at {escape(place, _MESSAGE_LIMIT)}"


def _import_pymysql() -> Any:
    """Import PyMySQL, which has no types and is optional."""
    try:
        return importlib.import_module("pymysql")
    except ImportError as error:
        raise MissingExtraError("Slurm's accounting database", "mariadb") from error


def _address(settings: AccountingSettings) -> dict[str, object]:
    if settings.socket:
        return {"unix_socket": str(settings.socket), "ssl_disabled": True}
    address: dict[str, object] = {"host": settings.host, "port": settings.port}
    if settings.tls_ca_file:
        return {**address, "ssl_ca": str(settings.tls_ca_file), "ssl_verify_cert": True, "ssl_verify_identity": True}
    # Otherwise PyMySQL would read all certificates of the system for each connection, and then trust any server.
    return {**address, "ssl_disabled": True}


def _limit_time(session: Session, seconds: float) -> None:
    """Set a time limit on the server too, so that it aborts queries that we no longer wait for."""
    is_mariadb = "MariaDB" in session.connection.get_server_info()
    limit = f"max_statement_time = {seconds:.3f}" if is_mariadb else f"max_execution_time = {round(1000 * seconds)}"
    session.query(f"SET SESSION {limit}")


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Convert exceptions of PyMySQL into our own."""
    try:
        yield
    except _import_pymysql().Error as error:
        raise _failure(name, error) from error
    except TimeoutError as error:
        raise ServerTimedOut(f"{name} timed out before its answer was complete") from error
    except OSError as error:
        raise ServerRefused(f"{name} is unreachable: {escape(error.strerror or str(error), _MESSAGE_LIMIT)}") from error
    except (struct.error, LookupError, ValueError, AssertionError) as error:
        raise MalformedAnswer(f"{name} does not answer like a database: {escape(repr(error), 100)}") from error


def _failure(name: str, error: Exception) -> SourceError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = escape(str(error.args[-1]) if error.args else repr(error), _MESSAGE_LIMIT)
    if code in _DENIED:
        return Denied(f"{name} denies access: {said}")
    if code in _TOO_SLOW or "timed out" in said:
        return ServerTimedOut(f"{name} timed out before its answer was complete")
    if code in _UNREACHABLE:
        return ServerRefused(f"{name} is unreachable: {said}")
    if code in _NOT_GRANTED:
        return ServerError(f"{name} has no views yet; run slurmscope database grant: {said}")
    return ServerError(f"{name} failed ({code}): {said}")
