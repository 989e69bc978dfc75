# SPDX-License-Identifier: Apache-2.0
"""Delete rows beyond the retention, a bounded number at a time.

The age of a job counts from its end: one that was pending or ran for long is not deleted on the next day. A running
job is never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, exists, not_, select

from slurmscope.store.archive.database.partitions import PARTITIONED, RUNS_A_WEEK, find_dropped_weeks, of_week
from slurmscope.store.archive.ending import ended_before
from slurmscope.store.archive.sums.daily_sums import SumChanges
from slurmscope.store.archive.sums.waiting_times import WaitChanges
from slurmscope.store.archive.tables.schema import AUDIT, CURVES, JOBS, REPORTS, RUN_TABLES

RUNS_AT_ONCE = 200
"""MariaDB reads the whole table when there are more."""


def delete_oldest_jobs(connection: Connection, before_seconds: int, limit: int) -> int:
    """Delete jobs that ended earlier, with all that belongs to them; return their number."""
    oldest = select(JOBS).where(ended_before(before_seconds)).order_by(JOBS.c.submit_seconds).limit(limit)
    # Locked, so that a job that is saved again at this moment is not subtracted from the sums twice.
    rows = [row._asdict() for row in connection.execute(oldest.with_for_update())]
    if rows:
        delete_runs(connection, [row["run_id"] for row in rows], before_seconds)
        for changes in (SumChanges(), WaitChanges()):
            changes.take(rows)
            changes.write(connection)
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
