# SPDX-License-Identifier: Apache-2.0
"""Thin the curves of old jobs, in the order of their submission.

How far that has come is kept in the archive, in the same transaction. Curves of a job that had not ended for long
enough when it was passed stay as they are.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from slurmscope.errors import ArchiveError
from slurmscope.log import fields
from slurmscope.store.archive.ending import ended_before
from slurmscope.store.archive.report_coding import thin_curves
from slurmscope.store.archive.schema import CHECKPOINTS, CURVES, JOBS

CHECKPOINT = "curves thinned until run"

logger = logging.getLogger(__name__)


def thin_oldest_curves(connection: Connection, before_seconds: int, points: int, limit: int) -> int:
    """Thin curves of the next jobs that were submitted before a time; return how many jobs were passed."""
    submit_seconds, run_id = _read_progress(connection)
    later = or_(CURVES.c.submit_seconds > submit_seconds, CURVES.c.run_id > run_id)
    statement = select(
        CURVES.c.run_id, CURVES.c.submit_seconds, CURVES.c.body, ended_before(before_seconds).label("is_old")
    )
    statement = statement.join(JOBS, JOBS.c.run_id == CURVES.c.run_id)
    statement = statement.where(CURVES.c.submit_seconds.between(submit_seconds, before_seconds - 1), later)
    rows = connection.execute(statement.order_by(CURVES.c.submit_seconds, CURVES.c.run_id).limit(limit)).all()
    thinned = [
        {"thinned_run": row.run_id, "thinned": body} for row in rows if row.is_old and (body := _thin(row, points))
    ]
    if thinned:
        changed = update(CURVES).where(CURVES.c.run_id == bindparam("thinned_run")).values(body=bindparam("thinned"))
        connection.execute(changed, thinned)
    if rows:
        _write_progress(connection, rows[-1].submit_seconds, rows[-1].run_id)
    return len(rows)


def _thin(row: Any, points: int) -> bytes | None:
    """Return thinned curves; None where there are none, or none that can be read."""
    try:
        return thin_curves(row.body, points) if row.body else None
    except ArchiveError as error:
        logger.debug("curves were not thinned", extra=fields(run=row.run_id, reason=str(error)))
        return None


def _read_progress(connection: Connection) -> tuple[int, int]:
    text = connection.scalar(select(CHECKPOINTS.c.value).where(CHECKPOINTS.c.name == CHECKPOINT)) or ""
    submit_seconds, _, run_id = text.partition(" ")
    return (int(submit_seconds), int(run_id)) if submit_seconds.isdecimal() and run_id.isdecimal() else (0, 0)


def _write_progress(connection: Connection, submit_seconds: int, run_id: int) -> None:
    connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.name == CHECKPOINT))
    connection.execute(insert(CHECKPOINTS).values(name=CHECKPOINT, value=f"{submit_seconds} {run_id}"))
