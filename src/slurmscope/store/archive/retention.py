# SPDX-License-Identifier: Apache-2.0
"""Take out of the tables what ended long ago, a bounded number of rows at a time.

A job is as old as its end: one that waited or ran for long is not taken out on the day after. One that runs is never
taken out.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, select

from slurmscope.store.archive.daily_sums import SumChanges
from slurmscope.store.archive.schema import AUDIT, CURVES, FINDINGS, JOBS, REPORTS


def delete_oldest_jobs(connection: Connection, before_seconds: int, limit: int) -> int:
    """Take out jobs that ended earlier, with all that belongs to them; return how many."""
    oldest = select(JOBS).where(_ended_before(before_seconds)).order_by(JOBS.c.submit_seconds).limit(limit)
    # Locked, so that a job that is saved anew at this moment is not taken from the sums twice.
    rows = [row._asdict() for row in connection.execute(oldest.with_for_update())]
    if rows:
        run_ids = [row["run_id"] for row in rows]
        for table in (FINDINGS, REPORTS, CURVES, JOBS):
            connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
        changes = SumChanges()
        changes.take(rows)
        changes.write(connection)
    return len(rows)


def delete_oldest_curves(connection: Connection, before_seconds: int, limit: int) -> int:
    """Take out curves of jobs that ended earlier; return of how many."""
    # Begun at the curves, of which few are old; where jobs are kept for ever, nearly all of those are.
    has_ended = exists().where(JOBS.c.run_id == CURVES.c.run_id, _ended_before(before_seconds))
    oldest = select(CURVES.c.run_id).where(CURVES.c.submit_seconds < before_seconds, has_ended).limit(limit)
    run_ids = connection.scalars(oldest).all()
    if run_ids:
        connection.execute(delete(CURVES).where(CURVES.c.run_id.in_(run_ids)))
    return len(run_ids)


def delete_oldest_looks(connection: Connection, before_seconds: int, limit: int) -> int:
    """Take out what staff looked at earlier; return how many looks."""
    oldest = select(AUDIT.c.audit_id).where(AUDIT.c.at_seconds < before_seconds).order_by(AUDIT.c.audit_id).limit(limit)
    audit_ids = connection.scalars(oldest).all()
    if audit_ids:
        connection.execute(delete(AUDIT).where(AUDIT.c.audit_id.in_(audit_ids)))
    return len(audit_ids)


def _ended_before(before_seconds: int) -> ColumnElement[bool]:
    """Choose jobs that ended earlier; that they were submitted earlier, too, is what the index is by."""
    end_seconds = func.coalesce(JOBS.c.end_seconds, JOBS.c.submit_seconds)
    return and_(JOBS.c.submit_seconds < before_seconds, end_seconds < before_seconds, JOBS.c.is_unfinished.is_(False))
