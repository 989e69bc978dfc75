# SPDX-License-Identifier: Apache-2.0
"""Delete what is older than its retention, a bounded number of rows at a time, and thin the curves of old jobs.

The age of a job counts from its end: one that was pending or ran for long is not deleted on the next day. A running
job is never deleted.

Each pass of thinning first thins the jobs that were archived late: since the pass before, although they had ended
before its limit. Then it thins those that ended between that limit and its own, in the order of their submission. How
far it has come is kept in the archive. Bodies are read and thinned outside of transactions, a few at a time. Curves of
jobs that ended more than half a year after they were submitted stay as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    FromClause,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from slurmscope.archive.daily_sums import (
    BLOCK,
    DAILY,
    DAY,
    DIMENSIONS,
    NO_RULE,
    RULE,
    TOTALS,
    WAITS,
    change_all_sums,
    change_names,
)
from slurmscope.archive.engine import ArchiveConflict, Database
from slurmscope.archive.partitions import PARTITIONED, RUNS_A_WEEK, ended_before, find_dropped_weeks, of_week
from slurmscope.archive.stored_reports import thin_curves
from slurmscope.archive.tables import AUDIT, CHECKPOINTS, CURVES, JOBS, REPORTS, RUN_TABLES
from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import fields
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
        change_all_sums(connection, rows)
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
    runs = connection.execute(select(JOBS.c.run_id, JOBS.c.name).where(of_day).with_for_update()).all()
    if counted != len(runs):
        return 0
    delete_runs(connection, [run.run_id for run in runs], before_seconds)
    for locked in sums:
        _subtract_day(connection, locked, day)
    change_names(connection, (run.name for run in runs))
    return len(runs)


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


logger = logging.getLogger(__name__)


CHECKPOINT = "curves thinned until run"
LONGEST_JOB_SECONDS = 180 * DAY_SECONDS
"""How long before its end a job may have been submitted: a pass looks at no earlier ones."""
CURVES_AT_ONCE = 50
STEP_SECONDS = DAY_SECONDS
"""Jobs of how many seconds one query looks at: few of them may have ended lately."""
LATE_RUNS_AT_ONCE = 2_000
"""Runs that one query reads to find jobs that were archived late: nearly all were archived in time."""
MAX_SECONDS = 5.0
"""The rest waits for the next call: the reporter has other work."""


class ThinningProgress(NamedTuple):
    """Say how far thinning has come."""

    done_seconds: int = 0
    """The limit of the last whole pass."""
    limit_seconds: int = 0
    """The limit of this pass; the same if none has begun."""
    submit_seconds: int = 0
    run_id: int = 0
    late_run: int = 0
    """Up to this run those that were archived late are done."""
    newest_run: int = 0
    """Up to this one they belong to this pass."""


def thin_old_curves(database: Database, before_seconds: int, points: int) -> int:
    """Thin curves of jobs that ended before a time, for some seconds; return how many were read, 0 only at the end."""
    read, until = 0, time.monotonic() + MAX_SECONDS
    with database.reading() as connection:
        last = _read_progress(connection)
    while (progress := _continue(last, before_seconds)) is not None:
        with database.reading() as connection:
            if progress.limit_seconds != last.limit_seconds:
                progress = _begin_pass(connection, progress)
            rows, last = (_read_late if progress.late_run < progress.newest_run else _read_old)(connection, progress)
        thinned = []
        for row in rows:
            if body := _thin(row, points):
                thinned.append({"thinned_run": row.run_id, "size": len(row.body), "thinned": body})
            read += 1
            if time.monotonic() > until:
                last = _after(progress, row)
                break
        database.write(partial(_store, thinned=thinned, progress=last))
        if time.monotonic() > until:
            return max(read, 1)
    return read


def _continue(progress: ThinningProgress, before_seconds: int) -> ThinningProgress | None:
    """Return where to go on, perhaps with a new pass; None if no job is old enough."""
    if progress.done_seconds < progress.limit_seconds:
        return progress if progress.limit_seconds <= before_seconds else None
    if before_seconds <= progress.limit_seconds:
        return None
    begin = max(0, progress.done_seconds - LONGEST_JOB_SECONDS)
    return progress._replace(limit_seconds=before_seconds, submit_seconds=begin, run_id=0)


def _begin_pass(connection: Connection, progress: ThinningProgress) -> ThinningProgress:
    """Note which runs there are now; the first pass reads all of them anyway."""
    newest = connection.scalar(select(func.max(JOBS.c.run_id))) or 0
    return progress._replace(late_run=progress.late_run if progress.done_seconds else newest, newest_run=newest)


def _read_late(connection: Connection, progress: ThinningProgress) -> tuple[Sequence[Any], ThinningProgress]:
    """Return the next jobs with their curves that had ended long before they were archived, and where to go on."""
    after = JOBS.c.run_id > progress.late_run
    is_old = case((ended_before(progress.done_seconds), 1), else_=0).label("is_old")
    statement = select(JOBS.c.run_id, is_old).where(after, JOBS.c.run_id <= progress.newest_run)
    runs = connection.execute(statement.order_by(JOBS.c.run_id).limit(LATE_RUNS_AT_ONCE)).all()
    old = [run.run_id for run in runs if run.is_old]
    last = runs[-1].run_id if runs else progress.newest_run
    end = old[CURVES_AT_ONCE - 1] if len(old) > CURVES_AT_ONCE else last
    return _read_bodies(connection, old[:CURVES_AT_ONCE], CURVES.c.run_id), progress._replace(late_run=end)


def _read_old(connection: Connection, progress: ThinningProgress) -> tuple[Sequence[Any], ThinningProgress]:
    """Return the next jobs with their curves that have become old since the last pass, all submitted in one step."""
    begin, limit = progress.submit_seconds, progress.limit_seconds
    statement = select(CURVES.c.run_id).join(JOBS, JOBS.c.run_id == CURVES.c.run_id)
    statement = statement.where(
        CURVES.c.submit_seconds.between(begin, min(begin + STEP_SECONDS, limit) - 1),
        or_(CURVES.c.submit_seconds > begin, CURVES.c.run_id > progress.run_id),
        or_(JOBS.c.end_seconds >= progress.done_seconds, JOBS.c.submit_seconds >= progress.done_seconds),
        ended_before(limit),
    )
    order = (CURVES.c.submit_seconds, CURVES.c.run_id)
    # Without the bodies: a database may sort all rows that it looks at.
    runs = connection.scalars(statement.order_by(*order).limit(CURVES_AT_ONCE)).all()
    rows = _read_bodies(connection, runs, *order)
    return rows, _after(progress, rows[-1]) if rows else _skip(connection, progress)


def _read_bodies(connection: Connection, runs: Sequence[int], *order: Any) -> Sequence[Any]:
    if not runs:
        return ()
    bodies = select(CURVES.c.run_id, CURVES.c.submit_seconds, CURVES.c.body).where(CURVES.c.run_id.in_(runs))
    return connection.execute(bodies.order_by(*order)).all()


def _after(progress: ThinningProgress, row: Any) -> ThinningProgress:
    if progress.late_run < progress.newest_run:
        return progress._replace(late_run=row.run_id)
    return progress._replace(submit_seconds=row.submit_seconds, run_id=row.run_id)


def _skip(connection: Connection, progress: ThinningProgress) -> ThinningProgress:
    """Return the next step in which jobs were submitted, or the end of the pass."""
    submit_seconds = CURVES.c.submit_seconds
    later = submit_seconds.between(progress.submit_seconds + STEP_SECONDS, progress.limit_seconds - 1)
    first = connection.scalar(select(func.min(submit_seconds)).where(later))
    if first is None:
        return progress._replace(done_seconds=progress.limit_seconds, submit_seconds=0, run_id=0)
    return progress._replace(submit_seconds=first, run_id=0)


def _thin(row: Any, points: int) -> bytes | None:
    """Return thinned curves; None where there are none, or none that can be read."""
    try:
        return thin_curves(row.body, points) if row.body else None
    except (ArchiveError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        logger.debug("curves were not thinned", extra=fields(run=row.run_id, reason=str(error)))
        return None


def _store(connection: Connection, thinned: Sequence[dict[str, Any]], progress: ThinningProgress) -> None:
    if thinned:
        # A report that was archived anew in the meantime has other curves.
        same = (CURVES.c.run_id == bindparam("thinned_run"), func.length(CURVES.c.body) == bindparam("size"))
        connection.execute(update(CURVES).where(*same).values(body=bindparam("thinned")), list(thinned))
    connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.name == CHECKPOINT))
    connection.execute(insert(CHECKPOINTS).values(name=CHECKPOINT, value=" ".join(str(part) for part in progress)))


def _read_progress(connection: Connection) -> ThinningProgress:
    """Return what was stored; what cannot be read begins anew, since thinned curves are not thinned again."""
    text = connection.scalar(select(CHECKPOINTS.c.value).where(CHECKPOINTS.c.name == CHECKPOINT)) or ""
    if not all(part.isdecimal() for part in text.split()):
        return ThinningProgress()
    parts = [int(part) for part in text.split()]
    return ThinningProgress(*parts) if len(parts) == len(ThinningProgress._fields) else ThinningProgress()
