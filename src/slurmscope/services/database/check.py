# SPDX-License-Identifier: Apache-2.0
"""Check that slurmscope's database user can read its views of the accounting database, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurmscope.errors import MissingExtraError, ServerRefused, ServerTimedOut, SlurmscopeError, SourceError
from slurmscope.model.check import Check
from slurmscope.sources.accounting.server import Denied, Session, open_session, server_name
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.accounting.views import SEED_VIEW, clusters_of, quote_name, render_select, view_columns

_UNREACHABLE_ADVICE = "check that the server is running, and accounting.host, accounting.port and accounting.socket"
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
    """Select every column: a view created by an earlier version may lack some."""
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
    return f"{found['rights']} ON {found['what']}" if (found := _GRANT.match(line)) else _role(line)


def _role(line: str) -> str:
    return line.partition(" TO ")[0]
