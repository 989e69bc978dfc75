# SPDX-License-Identifier: Apache-2.0
"""Delete whole days of jobs: their sums are those of the day, and need not be computed from every job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, FromClause, Table, and_, delete, func, not_, select, update

from slurmscope.store.archive.database.engine import ArchiveConflict
from slurmscope.store.archive.ending import ended_before
from slurmscope.store.archive.retention.row_retention import delete_runs
from slurmscope.store.archive.sums.daily_sums import BLOCK, DAY
from slurmscope.store.archive.sums.dimension_sums import DIMENSIONS, RULE
from slurmscope.store.archive.tables.schema import JOBS
from slurmscope.store.archive.tables.sum_tables import DAILY, NO_RULE, TOTALS, WAITS
from slurmscope.units import DAY_SECONDS

MAX_DAYS = 400
MAX_DAY_JOBS = {"sqlite": 5_000, "postgresql": 50_000, "mariadb": 50_000}
"""Larger days are deleted in parts: all else that writes an SQLite file waits."""


def find_old_days(connection: Connection, before_seconds: int) -> Sequence[int]:
    """Return days that ended before a time and have jobs, by number from 1970 and oldest first; some of them."""
    state = (TOTALS.c.dimension == "state", TOTALS.c.span == DAY, TOTALS.c.day < before_seconds // DAY_SECONDS)
    statement = select(TOTALS.c.day).where(*state).group_by(TOTALS.c.day).order_by(TOTALS.c.day).limit(MAX_DAYS)
    return connection.scalars(statement).all()


def delete_day(connection: Connection, day: int, before_seconds: int) -> int:
    """Delete the jobs that were submitted on a day, with all that belongs to them; return their number.

    It is 0, and nothing is deleted, where one of them is to be kept, or where there are too many.
    """
    begin = day * DAY_SECONDS
    of_day = and_(JOBS.c.submit_seconds >= begin, JOBS.c.submit_seconds < begin + DAY_SECONDS)
    # First the sums: a report that is saved at this moment has changed them before, or waits until all is done.
    sums = _lock_sums(connection, day)
    counted = sum(sums[0].jobs)
    if counted > MAX_DAY_JOBS[connection.dialect.name]:
        return 0
    if connection.scalar(select(func.count()).select_from(JOBS).where(of_day, not_(ended_before(before_seconds)))):
        return 0
    run_ids = connection.scalars(select(JOBS.c.run_id).where(of_day).with_for_update()).all()
    if counted != len(run_ids):
        return 0
    delete_runs(connection, run_ids, before_seconds)
    for locked in sums:
        _subtract_day(connection, locked, day)
    return len(run_ids)


class _LockedSums(NamedTuple):
    """Hold the sums of a day in one table, under one first part of the key; ``jobs`` has one number for each row."""

    table: Table
    first_key: str | None
    jobs: Sequence[int]

    def of_day(self, day: int, table: FromClause) -> tuple[Any, ...]:
        if self.first_key is None:
            return (table.c.day == day,)
        first = next(iter(self.table.primary_key)).name
        return (table.c[first] == self.first_key, table.c.span == DAY, table.c.day == day)


def _lock_sums(connection: Connection, day: int) -> list[_LockedSums]:
    """Lock all sums of a day, in the order in which they are written; first those of all jobs."""
    found = (TOTALS.c.dimension == RULE, TOTALS.c.span == DAY, TOTALS.c.day == day)
    rules = connection.scalars(select(TOTALS.c.name).where(*found).distinct().order_by(TOTALS.c.name)).all()
    keys: list[tuple[Table, str | None]] = [(DAILY, rule) for rule in (NO_RULE, *rules)]
    keys += [(TOTALS, dimension) for dimension in sorted((*DIMENSIONS, RULE))]
    locked = []
    for table, first_key in (*keys, (WAITS, None)):
        some = _LockedSums(table, first_key, ())
        statement = select(table.c.jobs).where(*some.of_day(day, table)).with_for_update()
        locked.append(some._replace(jobs=connection.scalars(statement).all()))
    return locked


def _subtract_day(connection: Connection, locked: _LockedSums, day: int) -> None:
    """Delete the sums of a day, and subtract them from those of the block that it is in, if there is one."""
    table, first_key, jobs = locked
    if first_key is not None:
        first, _, _, *names = table.primary_key
        of_day = table.alias("sums_of_day")
        same_names = (name == of_day.c[name.name] for name in names)
        block = (first == first_key, table.c.span == BLOCK, table.c.day == day - day % BLOCK)
        values = {
            column.name: _known(column) - _known(of_day.c[column.name]) for column in table.c if not column.primary_key
        }
        connection.execute(update(table).values(values).where(*block, *locked.of_day(day, of_day), *same_names))
        connection.execute(delete(table).where(*block, table.c.jobs == 0))
    deleted = connection.execute(delete(table).where(*locked.of_day(day, table))).rowcount
    if deleted != len(jobs):
        # Sums that were not locked: of a job that was saved at this moment, and stays.
        raise ArchiveConflict("a job was saved while its day was deleted")


def _known(column: Any) -> Any:
    return func.coalesce(column, 0) if column.nullable else column
