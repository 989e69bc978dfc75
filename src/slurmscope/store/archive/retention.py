# SPDX-License-Identifier: Apache-2.0
"""Delete rows beyond the retention, a bounded number at a time.

The age of a job counts from its end: one that was pending or ran for long is not deleted on the next day. A running
job is never deleted.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, select

from slurmscope.store.archive.daily_sums import SumChanges
from slurmscope.store.archive.schema import AUDIT, CURVES, JOBS, RUN_TABLES
from slurmscope.store.archive.waiting_times import WaitChanges


def delete_oldest_jobs(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete jobs that ended earlier, with all that belongs to them; return their number."""
    oldest = select(JOBS).where(ended_before(before_seconds)).order_by(JOBS.c.submit_seconds).limit(limit)
    # Locked, so that a job that is saved again at this moment is not subtracted from the sums twice.
    rows = [row._asdict() for row in connection.execute(oldest.with_for_update())]
    if rows:
        run_ids = [row["run_id"] for row in rows]
        for table in RUN_TABLES:
            connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
        for changes in (SumChanges(), WaitChanges()):
            changes.take(rows)
            changes.write(connection)
    return len(rows)


def delete_oldest_curves(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete curves of jobs that ended earlier; return the number of jobs."""
    # Begun at the curves, of which few are old; where jobs are kept for ever, nearly all of those are.
    has_ended = exists().where(JOBS.c.run_id == CURVES.c.run_id, ended_before(before_seconds))
    oldest = select(CURVES.c.run_id).where(CURVES.c.submit_seconds < before_seconds, has_ended).limit(limit)
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


def ended_before(before_seconds: int) -> ColumnElement[bool]:
    """Choose jobs that ended earlier; that they were submitted earlier, too, is what the index is by."""
    end_seconds = func.coalesce(JOBS.c.end_seconds, JOBS.c.submit_seconds)
    return and_(JOBS.c.submit_seconds < before_seconds, end_seconds < before_seconds, JOBS.c.is_unfinished.is_(False))
