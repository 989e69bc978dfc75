# SPDX-License-Identifier: Apache-2.0
"""Write the SQL that grants one user a few columns of Slurm's accounting database, and nothing else.

The views run with the rights of their creator (``SQL SECURITY DEFINER``): their user needs none on the tables. They
leave out everything that reports do not need: scripts, environments, comments, associations, privileges.

Names cannot be parameters of such statements. They all go through :func:`quote_name`, which rejects odd characters.

A connection is opened for one task and closed after it, so a restart of the server needs no recovery.
"""

from __future__ import annotations

import importlib
import re
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slurmscope.accounting.fields import JOB_FIELDS, STEP_FIELDS, columns_of_view
from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.config import read_password
from slurmscope.core.errors import (
    MalformedAnswer,
    MissingExtraError,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SourceError,
)
from slurmscope.core.log import escape

ResultRow = tuple[Any, ...]
SqlValue = int | str

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
    if not settings.host.socket:
        connection.connect()
        return
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(settings.timeout)
        link.connect(settings.host.socket)
        connection._secure = True  # a local socket is private: MySQL accepts the password in clear text
        connection.connect(link)
    except BaseException:
        link.close()
        raise


def server_name(settings: AccountingSettings) -> str:
    place = settings.host.socket or f"{settings.host.host}:{settings.host.port}"
    return f"database {settings.database} at {escape(place, _MESSAGE_LIMIT)}"


def _import_pymysql() -> Any:
    """Import PyMySQL, which has no types and is optional."""
    try:
        return importlib.import_module("pymysql")
    except ImportError as error:
        raise MissingExtraError("Slurm's accounting database", "mariadb") from error


def _address(settings: AccountingSettings) -> dict[str, object]:
    if settings.host.socket:
        return {"unix_socket": settings.host.socket, "ssl_disabled": True}
    address: dict[str, object] = {"host": settings.host.host, "port": settings.host.port}
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


SEED_VIEW = "user_job_view"
TRES_VIEW = "slurmscope_tres_view"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_HOST = re.compile(r"[A-Za-z0-9_.%:/-]{1,255}\Z")
_JOB_VIEW = re.compile(r"slurmscope_(.+)_job_view\Z")

JOB_COLUMNS: Mapping[str, str] = {
    "job_db_inx": "j.job_db_inx", "rpc_version": "c.rpc_version", **columns_of_view(JOB_FIELDS),
}  # fmt: skip
"""Columns of the job view with their SQL expressions; ``rpc_version`` is the protocol of the cluster's release."""
STEP_COLUMNS: Mapping[str, str] = {
    "job_db_inx": "s.job_db_inx", "step_het_comp": "s.step_het_comp", **columns_of_view(STEP_FIELDS),
}  # fmt: skip
"""Columns of the step view with their SQL expressions."""
TRES_COLUMNS = ("id", "type", "name")
_SEED_COLUMNS = ("id_user", "id_job", "job_name")
_OPTIONAL = columns_of_view(each for each in JOB_FIELDS if each.is_optional).keys()

_WORD = re.compile(r"\b([jsaqc])\.`?([a-z_]+)")
Schema = Mapping[str, Collection[str]]
"""Columns of every table of the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUser:
    """Name the database user that slurmscope reads as, and the host it may connect from."""

    database: str
    user: str
    host: str

    @property
    def account(self) -> str:
        """Return the account as SQL writes it."""
        if not _NAME.match(self.user) or not _HOST.match(self.host):
            raise ServerError(f"{self.user!r}@{self.host!r} is not a user name that slurmscope creates in a database")
        return f"'{self.user}'@'{self.host}'"


def quote_name(name: str) -> str:
    """Quote the name of a database, table, view or column; reject odd characters."""
    if not _NAME.match(name):
        raise ServerError(f"{name!r} is not a name of letters, digits, _ and -; slurmscope creates no views for it")
    return f"`{name}`"


def render_select(columns: Sequence[str], table: str) -> str:
    """Begin a SELECT; columns are constants, and the table went through :func:`quote_name`."""
    return f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - no part comes from outside


def job_view(cluster: str) -> str:
    return f"slurmscope_{cluster}_job_view"


def step_view(cluster: str) -> str:
    return f"slurmscope_{cluster}_step_view"


def clusters_of(tables: Sequence[str]) -> tuple[str, ...]:
    return tuple(found[1] for found in map(_JOB_VIEW.match, sorted(tables)) if found)


def view_names(clusters: Sequence[str]) -> tuple[str, ...]:
    return tuple(view_columns(clusters))


def view_columns(clusters: Sequence[str]) -> dict[str, tuple[str, ...]]:
    columns: dict[str, tuple[str, ...]] = {SEED_VIEW: _SEED_COLUMNS, TRES_VIEW: TRES_COLUMNS}
    for cluster in clusters:
        columns |= {job_view(cluster): tuple(JOB_COLUMNS), step_view(cluster): tuple(STEP_COLUMNS)}
    return columns


def render_views(database: str, clusters: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """Return the statements that create or replace the views; raise ServerError when a column is missing."""
    create = f"CREATE OR REPLACE SQL SECURITY DEFINER VIEW {quote_name(database)}."
    selects = {
        SEED_VIEW: " UNION ALL ".join(
            render_select(_SEED_COLUMNS, _table(database, f"{cluster}_job_table")) for cluster in clusters
        ),
        TRES_VIEW: f"{render_select(TRES_COLUMNS, _table(database, 'tres_table'))} WHERE deleted = 0",
    }
    for cluster in clusters:
        selects[job_view(cluster)] = _select_jobs(database, cluster, schema)
        selects[step_view(cluster)] = _select_steps(database, cluster, schema)
    return tuple(f"{create}{quote_name(name)} AS {select}" for name, select in selects.items())


def render_grants(reader: DatabaseUser, views: Sequence[str], roles: Sequence[str]) -> tuple[str, ...]:
    """Return the statements that grant a user, whose password is the parameter, these views and nothing else."""
    return (
        # A % in the host would be a parameter.
        f"CREATE USER IF NOT EXISTS {reader.account.replace('%', '%%')} IDENTIFIED BY %s",
        f"ALTER USER {reader.account.replace('%', '%%')} IDENTIFIED BY %s",
        *(f"REVOKE {quote_name(role)} FROM {reader.account}" for role in roles),
        f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {reader.account}",
        *(f"GRANT SELECT ON {quote_name(reader.database)}.{quote_name(view)} TO {reader.account}" for view in views),
    )


def _select_jobs(database: str, cluster: str, schema: Schema) -> str:
    tables = {"j": f"{cluster}_job_table", "a": f"{cluster}_assoc_table", "q": "qos_table", "c": "cluster_table"}
    return (
        f"{render_select(_columns(JOB_COLUMNS, tables, schema), _table(database, tables['j']))} j "
        f"LEFT JOIN {_table(database, tables['a'])} a ON a.id_assoc = j.id_assoc "
        f"LEFT JOIN {_table(database, tables['q'])} q ON q.id = j.id_qos "
        f"LEFT JOIN {_table(database, tables['c'])} c ON c.name = '{cluster}' WHERE j.deleted = 0"
    )


def _select_steps(database: str, cluster: str, schema: Schema) -> str:
    tables = {"s": f"{cluster}_step_table"}
    columns = _columns(STEP_COLUMNS, tables, schema)
    return f"{render_select(columns, _table(database, tables['s']))} s WHERE s.deleted = 0"


def _columns(columns: Mapping[str, str], tables: Mapping[str, str], schema: Schema) -> list[str]:
    """Return the columns of a view; those that this Slurm release lacks are NULL if optional, otherwise an error."""
    missing: list[str] = []
    written = []
    for name, source in columns.items():
        absent = [
            f"{tables[short]}.{column}"
            for short, column in _WORD.findall(source)
            if column not in schema.get(tables[short], ())
        ]
        if absent and name not in _OPTIONAL:
            missing += absent
        written.append(f"{'NULL' if absent else source} AS {quote_name(name)}")
    if missing:
        raise ServerError(f"the accounting database is not one of Slurm 22.05 or later: it lacks {', '.join(missing)}")
    return written


def _table(database: str, name: str) -> str:
    return f"{quote_name(database)}.{quote_name(name)}"
