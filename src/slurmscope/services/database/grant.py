# SPDX-License-Identifier: Apache-2.0
"""Create views of Slurm's accounting database and a user that may read them, and remove both again."""

from __future__ import annotations

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.errors import ConfigError, OutputError, ServerError
from slurmscope.settings import Section, setting
from slurmscope.sources.accounting.server import Session, open_session, read_password
from slurmscope.sources.accounting.settings import AccountingSettings, parse_host, parse_name
from slurmscope.sources.accounting.views import DatabaseUser, quote_name, render_grants, render_views, view_names

# Replacing a view waits for running queries on it.
_TIMEOUT_SECONDS = 60.0
_HIDDEN = "'********'"
_ROLE = re.compile(r"GRANT [`']?([^`' ]+)[`']? TO ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """The database administrator, and the host of the reading user."""

    admin_user: str = setting(
        "root", help="Database user that may create views and users.", parse=parse_name, metavar="NAME"
    )
    admin_password_file: Path | None = setting(
        None,
        help="File with the administrator's password; without it, log in through the Unix socket.",
        parse=parse_path,
        metavar="FILE",
    )
    user_host: str = setting(
        "localhost",
        help="Host that slurmscope connects from, as the database server sees it; 10.1.% matches a network.",
        parse=parse_host,
        metavar="HOST",
    )


def database_sections() -> Iterator[Section]:
    """Yield the settings of slurmscope database."""
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
