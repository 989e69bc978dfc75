# SPDX-License-Identifier: Apache-2.0
"""Thin the curves of old jobs.

Each pass first thins the jobs that were archived late: since the pass before, although they had ended before its
limit. Then it thins those that ended between that limit and its own, in the order of their submission. How far it has
come is kept in the archive. Bodies are read and thinned outside of transactions, a few at a time. Curves of jobs that
ended more than half a year after they were submitted stay as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, func, insert, or_, select, update

from slurmscope.archive.engine import Database
from slurmscope.archive.partitions import ended_before
from slurmscope.archive.report_coding import thin_curves
from slurmscope.archive.tables import CHECKPOINTS, CURVES, JOBS
from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS

logger = logging.getLogger(__name__)


CHECKPOINT = "curves thinned until run"
LONGEST_JOB_SECONDS = 180 * DAY_SECONDS
"""How long before its end a job may have been submitted: a pass looks at no earlier ones."""
ROWS_AT_ONCE = 50
STEP_SECONDS = DAY_SECONDS
"""Jobs of how many seconds one query looks at: few of them may have ended lately."""
RUNS_AT_ONCE = 2_000
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
    runs = connection.execute(statement.order_by(JOBS.c.run_id).limit(RUNS_AT_ONCE)).all()
    old = [run.run_id for run in runs if run.is_old]
    last = runs[-1].run_id if runs else progress.newest_run
    end = old[ROWS_AT_ONCE - 1] if len(old) > ROWS_AT_ONCE else last
    return _read_bodies(connection, old[:ROWS_AT_ONCE], CURVES.c.run_id), progress._replace(late_run=end)


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
    runs = connection.scalars(statement.order_by(*order).limit(ROWS_AT_ONCE)).all()
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
