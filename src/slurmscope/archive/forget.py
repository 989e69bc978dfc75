# SPDX-License-Identifier: Apache-2.0
"""Delete what the archive has about one person: ended jobs, and what hangs on them or on the name.

Records of the audit are about what staff did, and stay as long as others. A wish for no digests stays too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, func, or_, select

from slurmscope.archive.daily_sums import ADVICE_SUMS, change_all_sums
from slurmscope.archive.engine import Database
from slurmscope.archive.interface import NotedKind
from slurmscope.archive.retention import delete_runs
from slurmscope.archive.tables import JOBS, MAILS, NOTES, TAGS, TOKENS, VIEWS
from slurmscope.archive.texts import person_name

ROWS_AT_ONCE = 1000
"""A long transaction would keep other writers waiting."""

_HAS_ENDED = JOBS.c.is_unfinished.is_(False)


class PersonalRows(NamedTuple):
    """Count what is about one person."""

    jobs: int
    running: int
    notes: int
    tags: int
    views: int
    tokens: int
    mails: int


def count_personal_rows(connection: Connection, user: str) -> PersonalRows:
    """Return what would be deleted; ``running`` are the jobs that have not ended, which stay."""
    name = person_name(user)

    def count(table: Table, *where: ColumnElement[bool]) -> int:
        return connection.scalar(select(func.count()).select_from(table).where(*where)) or 0

    own = JOBS.c.user == name
    others = (count(table, where) for table, where in _other_rows(name))
    return PersonalRows(count(JOBS, own, _HAS_ENDED), count(JOBS, own, ~_HAS_ENDED), *others)


def forget_person(database: Database, user: str) -> Iterator[int]:
    """Delete it; yield the number of jobs deleted so far, for it may take long. It can be interrupted and repeated."""
    name = person_name(user)
    deleted = 0
    # What hangs on the jobs is found by them.
    database.write(lambda connection: _delete_other_rows(connection, name))
    while some := database.write(lambda connection: _delete_some_jobs(connection, name)):
        deleted += some
        yield deleted
    # Last: a job of theirs that is saved again meanwhile is subtracted from these.
    database.write(
        lambda connection: connection.execute(delete(ADVICE_SUMS).where(ADVICE_SUMS.c.user == name)).rowcount
    )
    database.flush()


def _other_rows(name: str) -> tuple[tuple[Table, ColumnElement[bool]], ...]:
    return (
        (NOTES, _is_about(NOTES, name)),
        (TAGS, _is_about(TAGS, name)),
        (VIEWS, VIEWS.c.owner == name),
        (TOKENS, TOKENS.c.name == name),
        (MAILS, or_(MAILS.c.recipient == name, _is_address_of(name))),
    )


def _is_address_of(name: str) -> ColumnElement[bool]:
    """Return the mails to a user at any domain."""
    beginning = f"{name}@"
    found: ColumnElement[bool] = func.substr(MAILS.c.recipient, 1, len(beginning)) == beginning
    return found


def _is_about(table: Table, name: str) -> ColumnElement[bool]:
    """Tell rows about a person, and about jobs that only that person has under this ID, for IDs are reused."""
    same_job = and_(JOBS.c.shown_id == table.c.name, JOBS.c.cluster == table.c.cluster)
    is_own_job = and_(exists().where(same_job, JOBS.c.user == name), ~exists().where(same_job, JOBS.c.user != name))
    return or_(
        and_(table.c.kind == NotedKind.USER.value, table.c.name == name),
        and_(table.c.kind == NotedKind.JOB.value, is_own_job),
    )


def _delete_other_rows(connection: Connection, name: str) -> None:
    for table, where in _other_rows(name):
        connection.execute(delete(table).where(where))


def _delete_some_jobs(connection: Connection, name: str) -> int:
    own = select(JOBS).where(JOBS.c.user == name, _HAS_ENDED)
    # Locked, so that a job that is saved again at this moment is not subtracted from the sums twice.
    locked = own.order_by(JOBS.c.submit_seconds).limit(ROWS_AT_ONCE).with_for_update()
    rows: list[dict[str, Any]] = [row._asdict() for row in connection.execute(locked)]
    if rows:
        delete_runs(connection, [row["run_id"] for row in rows], before_seconds=0)
        change_all_sums(connection, rows)
    return len(rows)
