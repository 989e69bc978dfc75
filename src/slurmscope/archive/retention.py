# SPDX-License-Identifier: Apache-2.0
"""Delete what is older than its retention: whole days of jobs, and rows, a bounded number at a time.

The age of a job counts from its end: one that was pending or ran for long is not deleted on the next day. A running
job is never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, FromClause, Table, and_, delete, exists, func, not_, select, update

from slurmscope.archive.daily_sums import BLOCK, DAY, DIMENSIONS, RULE, change_daily_sums
from slurmscope.archive.engine import ArchiveConflict
from slurmscope.archive.partitions import PARTITIONED, RUNS_A_WEEK, ended_before, find_dropped_weeks, of_week
from slurmscope.archive.sum_tables import DAILY, NO_RULE, TOTALS, WAITS
from slurmscope.archive.tables import AUDIT, CURVES, JOBS, REPORTS, RUN_TABLES
from slurmscope.archive.wait_times import change_waits
from slurmscope.core.units import DAY_SECONDS

RUNS_AT_ONCE = 200
"""MariaDB reads the whole table when there are more."""


def delete_oldest_jobs(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete jobs that ended earlier, with all that belongs to them; return their number."""
    oldest = select(JOBS).where(ended_before(before_seconds)).order_by(JOBS.c.submit_seconds).limit(limit)
    # Locked, so that a job that is saved again at this moment is not subtracted from the sums twice.
    rows = [row._asdict() for row in connection.execute(oldest.with_for_update())]
    if rows:
        delete_runs(connection, [row["run_id"] for row in rows], before_seconds)
        change_daily_sums(connection, rows)
        change_waits(connection, rows)
    return len(rows)


def delete_runs(connection: Connection, run_ids: Sequence[int], before_seconds: int) -> None:
    """Delete all rows of runs, but for reports and curves whose whole partition will be dropped."""
    dropped = find_dropped_weeks(connection, REPORTS, before_seconds)
    kept = [run_id for run_id in run_ids if run_id // RUNS_A_WEEK not in dropped]
    for table in RUN_TABLES:
        deleted = kept if table in PARTITIONED else run_ids
        for first in range(0, len(deleted), RUNS_AT_ONCE):
            some = deleted[first : first + RUNS_AT_ONCE]
            connection.execute(delete(table).where(table.c.run_id.in_(some)))


def delete_oldest_curves(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete curves of jobs that ended earlier; return the number of jobs."""
    # Begun at the curves, of which few are old; where jobs are kept for ever, nearly all of those are.
    has_ended = exists().where(JOBS.c.run_id == CURVES.c.run_id, ended_before(before_seconds))
    oldest = select(CURVES.c.run_id).where(CURVES.c.submit_seconds < before_seconds, has_ended).limit(limit)
    for week in find_dropped_weeks(connection, CURVES, before_seconds):
        oldest = oldest.where(not_(of_week(CURVES, week)))
    run_ids = connection.scalars(oldest).all()
    if run_ids:
        connection.execute(delete(CURVES).where(CURVES.c.run_id.in_(run_ids)))
    return len(run_ids)


def delete_oldest_audit_rows(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete audit rows that are older; return their number."""
    oldest = select(AUDIT.c.audit_id).where(AUDIT.c.at_seconds < before_seconds).order_by(AUDIT.c.audit_id).limit(limit)
    audit_ids = connection.scalars(oldest).all()
    if audit_ids:
        connection.execute(delete(AUDIT).where(AUDIT.c.audit_id.in_(audit_ids)))
    return len(audit_ids)


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
    """The sums of a day in one table, under one first part of the key; ``jobs`` has one number for each row."""

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
        values = {column.name: column - of_day.c[column.name] for column in table.c if not column.primary_key}
        connection.execute(update(table).values(values).where(*block, *locked.of_day(day, of_day), *same_names))
        connection.execute(delete(table).where(*block, table.c.jobs == 0))
    deleted = connection.execute(delete(table).where(*locked.of_day(day, table))).rowcount
    if deleted != len(jobs):
        # Sums that were not locked: of a job that was saved at this moment, and stays.
        raise ArchiveConflict("a job was saved while its day was deleted")
