# SPDX-License-Identifier: Apache-2.0
"""Create views of Slurm's accounting database and a user that may read them, check both, and remove them again."""

from __future__ import annotations

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.accounting.server import (
    SEED_VIEW,
    DatabaseUser,
    Denied,
    Session,
    clusters_of,
    open_session,
    quote_name,
    render_grants,
    render_select,
    render_views,
    server_name,
    view_columns,
    view_names,
)
from slurmscope.accounting.settings import AccountingSettings, parse_host, parse_name
from slurmscope.core.check import Check
from slurmscope.core.config import file_path, read_password
from slurmscope.core.errors import (
    ConfigError,
    MissingExtraError,
    OutputError,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SlurmscopeError,
    SourceError,
)
from slurmscope.core.settings import Section, setting

_UNREACHABLE_ADVICE = "check that the server is running, and accounting.host"
_ADVICE = "run slurmscope database grant as administrator of the database"
_CLUSTER_TABLES = ("job_table", "step_table", "job_script_table", "job_env_table", "assoc_table", "event_table")
_TABLES = ("user_table", "acct_table", "acct_coord_table", "qos_table", "txn_table", "cluster_table", "tres_table")
# Visible to every user, whatever has been granted.
_PUBLIC_SCHEMAS = frozenset({"information_schema", "performance_schema"})
_GRANT = re.compile(r"GRANT (?P<rights>.+?) ON (?P<what>.+?) TO ")
_PUBLIC_GRANT = re.compile(r" TO `?PUBLIC`?(?: |\Z)")
# MariaDB creates these for every user, unless it is installed without them.
_TEST_SCHEMA = re.compile(r"test(_.*)?\Z", re.IGNORECASE)
_TEST_GRANT = re.compile(r"GRANT .+? ON `test(?:\\\\?_%)?`\.\* TO ")
_TEST_NOTE = "; MariaDB's test databases are open to every user: mariadb-secure-installation removes them"
_PUBLIC_ADVICE = "every database user has these: REVOKE them FROM PUBLIC"


def check(settings: AccountingSettings) -> Iterator[Check]:
    """Yield one check after the other, made as the database user that slurmscope reads with."""
    yield from _check_file(settings)
    try:
        with open_session(settings) as session:
            yield Check(
                name="connection", is_good=True, message=f"{settings.user} can log in to {server_name(settings)}"
            )
            seen = _seen_tables(session)
            clusters = clusters_of([table for schema, table in seen if schema == settings.database])
            columns = view_columns(clusters)
            views = tuple(columns)
            yield _check_clusters(clusters)
            yield from (_check_view(session, view, columns[view]) for view in views)
            yield from _check_tables(session, clusters)
            yield from _check_writing(session, clusters)
            yield _check_sight(seen, settings.database, views)
            yield _check_rights(session, settings.database, views)
    except MissingExtraError as error:
        yield Check(name="connection", is_good=False, message=str(error))
    except SlurmscopeError as error:
        is_unreachable = isinstance(error, ServerRefused | ServerTimedOut) and not isinstance(error, Denied)
        advice = _UNREACHABLE_ADVICE if is_unreachable else _ADVICE
        yield Check(name="connection", is_good=False, message=str(error), advice=advice)


def _check_file(settings: AccountingSettings) -> Iterator[Check]:
    path = settings.password_file
    if path is None:
        return
    try:
        is_open = bool(path.stat().st_mode & 0o007)
    except OSError:  # the connection check reports why it cannot be read
        return
    yield Check(
        name=f"file {path}",
        is_good=not is_open,
        message="is readable by all users" if is_open else "is not readable by other users",
        advice=f"chmod o= {path}" if is_open else "",
    )


def _check_clusters(clusters: Sequence[str]) -> Check:
    message = f"views of {', '.join(clusters)} exist" if clusters else "no view of any cluster is visible"
    return Check(name="clusters", is_good=bool(clusters), message=message, advice="" if clusters else _ADVICE)


def _check_view(session: Session, view: str, columns: Sequence[str]) -> Check:
    """Select every column: a view may lack some."""
    try:
        session.query(f"{render_select(columns, quote_name(view))} LIMIT 1")
    except SourceError as error:
        return Check(name=f"view {view}", is_good=False, message=str(error), advice=_ADVICE)
    return Check(name=f"view {view}", is_good=True, message="can be read")


def _check_tables(session: Session, clusters: Sequence[str]) -> Iterator[Check]:
    for table in (*(f"{cluster}_{name}" for cluster in clusters for name in _CLUSTER_TABLES), *_TABLES):
        yield _check_denied(
            session, f"table {table}", f"{render_select(('1',), quote_name(table))} LIMIT 1", "can be read"
        )


def _check_writing(session: Session, clusters: Sequence[str]) -> Iterator[Check]:
    """Try statements that match no row: they change nothing even if they are allowed."""
    for name in (SEED_VIEW, *(f"{cluster}_job_table" for cluster in clusters)):
        quoted = quote_name(name)
        none = "WHERE 1 = 0"
        for verb, statement in (
            ("inserted into", f"INSERT INTO {quoted} (id_job) {render_select(('1',), 'DUAL')} {none}"),
            ("updated", " ".join(("UPDATE", quoted, "SET id_job = 1", none))),
            ("deleted from", " ".join(("DELETE FROM", quoted, none))),
        ):
            yield _check_denied(session, f"writing {name}", statement, f"can be {verb}", f"cannot be {verb}")


def _check_denied(session: Session, name: str, statement: str, bad: str, good: str = "cannot be read") -> Check:
    try:
        session.query(statement)
    except Denied:
        return Check(name=name, is_good=True, message=good)
    except SourceError as error:
        return Check(name=name, is_good=False, message=f"could not check whether it {bad}: {error}", advice=_ADVICE)
    return Check(name=name, is_good=False, message=bad, advice=_ADVICE)


def _seen_tables(session: Session) -> list[tuple[str, str]]:
    rows = session.query("SELECT table_schema, table_name FROM information_schema.tables")
    return [(str(schema), str(table)) for schema, table in rows if str(schema).lower() not in _PUBLIC_SCHEMAS]


def _check_sight(seen: Sequence[tuple[str, str]], database: str, views: Sequence[str]) -> Check:
    more = sorted(f"{schema}.{table}" for schema, table in seen if schema != database or table not in views)
    tests = [name for name in more if _TEST_SCHEMA.match(name.partition(".")[0])]
    others = [name for name in more if name not in tests]
    message = f"{', '.join(others[:5])} are visible as well" if others else "only these views are visible"
    return Check(
        name="everything else",
        is_good=not others,
        message=message + (_TEST_NOTE if tests else ""),
        advice=_ADVICE if others else "",
    )


def _check_rights(session: Session, database: str, views: Sequence[str]) -> Check:
    """Compare granted with needed privileges; the text after TO holds the password hash and is not shown."""
    needed = {f"SELECT ON `{database}`.`{view}`" for view in views} | {"USAGE ON *.*"}
    lines = [str(line) for (line,) in session.query("SHOW GRANTS")]
    public = {_right(line) for line in lines if _PUBLIC_GRANT.search(line) and not _TEST_GRANT.match(line)} - needed
    own = {_right(line) for line in lines if not _PUBLIC_GRANT.search(line)} - needed
    more = sorted(own | public)
    message = f"more privileges than needed: {'; '.join(more[:5])}" if more else "no other privileges are granted"
    advice = _ADVICE if own else _PUBLIC_ADVICE if public else ""
    return Check(name="rights", is_good=not more, message=message, advice=advice)


def _right(line: str) -> str:
    """Return the privileges, or the role, that a line of SHOW GRANTS names."""
    return line.removeprefix("GRANT ").partition(" TO ")[0] if _GRANT.match(line) else line.partition(" TO ")[0]


# Replacing a view waits for running queries on it.
_TIMEOUT_SECONDS = 60.0
_HIDDEN = "'********'"
_ROLE = re.compile(r"GRANT [`']?([^`' ]+)[`']? TO ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """The database administrator, and the host of the reading user."""

    admin_user: str = setting(
        "root", "Database user that may create views and users.", parse=parse_name, metavar="NAME"
    )
    admin_password_file: Path | None = file_path(
        None, "File with the administrator's password; without it, log in through the Unix socket."
    )
    user_host: str = setting(
        "localhost",
        "Host that slurmscope connects from, as the database server sees it; 10.1.% matches a network.",
        parse=parse_host,
        metavar="HOST",
    )


def database_sections() -> Iterator[Section]:
    yield Section(name="accounting", type=AccountingSettings)
    yield Section(name="database", type=GrantSettings)


def grant(settings: AccountingSettings, how: GrantSettings, *, is_dry_run: bool) -> tuple[str, ...]:
    """Create the views and the user that reads them; return the statements, without the password.

    May be repeated at any time: after adding a cluster, upgrading Slurm, or changing the password. All other privileges
    of the user are revoked.
    """
    if settings.password_file is None:
        raise ConfigError(
            "set --accounting.password-file: the password is read from that file, or generated and written to it"
        )
    reader = _reader(settings, how)
    with open_session(_as_admin(settings, how)) as session:
        schema = _read_schema(session, settings.database)
        clusters = _read_clusters(session, schema)
        plan = (
            *render_views(settings.database, clusters, schema),
            *render_grants(reader, view_names(clusters), _read_roles(session, reader)),
        )
        if not is_dry_run:
            password = _provide_password(settings.password_file)
            for statement in plan:
                _execute(session, statement, password)
    return tuple(statement % _HIDDEN if _has_password(statement) else statement for statement in plan)


def revoke(settings: AccountingSettings, how: GrantSettings, *, is_dry_run: bool) -> tuple[str, ...]:
    """Drop the user, and the views that no other user was granted; return the statements."""
    reader = _reader(settings, how)
    with open_session(_as_admin(settings, how)) as session:
        drop_user = f"DROP USER IF EXISTS {reader.account}"
        drop_views = tuple(
            f"DROP VIEW IF EXISTS {quote_name(settings.database)}.{quote_name(view)}"
            for view in _unshared_views(session, reader)
        )
        if not is_dry_run:
            for statement in (drop_user, *drop_views):
                session.query(statement)
    return (drop_user, *drop_views)


def _reader(settings: AccountingSettings, how: GrantSettings) -> DatabaseUser:
    if settings.user == how.admin_user:
        raise ConfigError(f"--accounting.user and --database.admin-user are both {settings.user}: they must differ")
    return DatabaseUser(database=settings.database, user=settings.user, host=how.user_host)


def _as_admin(settings: AccountingSettings, how: GrantSettings) -> AccountingSettings:
    return replace(
        settings,
        user=how.admin_user,
        password_file=how.admin_password_file,
        timeout=max(settings.timeout, _TIMEOUT_SECONDS),
    )


def _read_schema(session: Session, database: str) -> dict[str, set[str]]:
    schema: defaultdict[str, set[str]] = defaultdict(set)
    for table, column in session.query(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", [database]
    ):
        schema[str(table)].add(str(column))
    return dict(schema)


def _read_clusters(session: Session, schema: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the clusters that have tables; one that was never registered has none."""
    names = (str(name) for (name,) in session.query("SELECT name FROM cluster_table WHERE deleted = 0 ORDER BY name"))
    clusters = tuple(name for name in names if f"{name}_job_table" in schema)
    if not clusters:
        raise ServerError(f"{session.name} has no cluster: slurmctld has never registered with slurmdbd")
    return clusters


def _read_roles(session: Session, reader: DatabaseUser) -> tuple[str, ...]:
    """Return the roles granted to the user, if it exists already."""
    known = session.query("SELECT 1 FROM mysql.user WHERE User = %s AND Host = %s", [reader.user, reader.host])
    lines = session.query(f"SHOW GRANTS FOR {reader.account}") if known else ()
    return tuple(found[1] for (line,) in lines if (found := _ROLE.match(str(line))))


def _unshared_views(session: Session, reader: DatabaseUser) -> tuple[str, ...]:
    tables = session.query("SELECT table_name FROM information_schema.views WHERE table_schema = %s", [reader.database])
    ours = [str(name) for (name,) in tables if str(name) == "user_job_view" or str(name).startswith("slurmscope_")]
    others = session.query(
        "SELECT Table_name FROM mysql.tables_priv WHERE Db = %s AND NOT (User = %s AND Host = %s)",
        [reader.database, reader.user, reader.host],
    )
    return tuple(sorted(set(ours) - {str(name) for (name,) in others}))


def _has_password(statement: str) -> bool:
    return statement.endswith(" %s")


def _execute(session: Session, statement: str, password: str) -> None:
    session.query(statement, [password] if _has_password(statement) else ())


def _provide_password(path: Path) -> str:
    """Read the password file, or generate a password and write it readable by its owner only."""
    password = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:  # noqa: PTH123 - it is open already
            stream.write(password + "\n")
    except FileExistsError:
        return read_password(path)
    except OSError as error:
        raise OutputError(f"password file {path} cannot be written: {error.strerror}") from error
    return password
