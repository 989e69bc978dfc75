# SPDX-License-Identifier: Apache-2.0
"""Keep reports of jobs in a database: SQLite, MariaDB or PostgreSQL."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, func, select

from slurmscope.archive.daily_sums import read_waiting_times
from slurmscope.archive.engine import Database
from slurmscope.archive.interface import (
    NEWEST_FIRST,
    GroupBy,
    JobCount,
    JobFilter,
    JobPage,
    ListOrder,
    PagePosition,
    TotalOrder,
    UseTotal,
)
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.job_rows import as_job_row
from slurmscope.archive.list_pages import find_names, read_page
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric
from slurmscope.archive.partitions import PARTITIONED, drop_week, prepare_weeks
from slurmscope.archive.queries import LIST_COLUMNS, MAX_ROWS, count_named, named, pages, visible_at_all
from slurmscope.archive.retention import (
    delete_day,
    delete_oldest_audit_rows,
    delete_oldest_curves,
    delete_oldest_jobs,
    find_old_days,
    thin_old_curves,
)
from slurmscope.archive.stored_reports import decode_report, prepare_reports, write_reports
from slurmscope.archive.tables import CURVES, INCOMPLETE, JOBS, REPORTS
from slurmscope.archive.texts import cluster_name, valid_text
from slurmscope.archive.totals import (
    add_up,
    count_gpu_faults,
    count_jobs,
    count_running,
    count_runs,
    is_summed,
    total_statements,
)
from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import fields
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId
from slurmscope.jobs.suspect_nodes import JudgedNode, rank_nodes
from slurmscope.jobs.viewer import Viewer
from slurmscope.jobs.wait_times import WaitingTime

logger = logging.getLogger(__name__)


MAX_RUNS = 100
MAX_CLUSTERS = 1000
FEW_TIES = 8
"""More clusters seldom have a job with the same number that was submitted in the same second."""
NUMBERS_AT_ONCE = 100
"""MariaDB reads the whole table when there are more than 200."""
DELETE_ROWS = 500
"""Rows deleted in one transaction."""
DELETE_BATCHES = 20
"""Transactions of one call: after years without any, the rest waits for the next."""
DELETE_SECONDS = 5.0
"""No further transaction is begun after this time: the reporter has other work."""
DROP_AGAIN_SECONDS = 3600.0
"""Pause after a partition could not be dropped: readers had to wait during the attempt."""
SAVES_BETWEEN_LOOKS = 100
"""After so many saves SQLite runs ANALYZE again, to choose the right index."""
MANY_ROWS = 10_000
MAX_INCOMPLETE = 100_000
_RUN_COLUMNS = (JOBS.c.cluster, JOBS.c.job_id, JOBS.c.submit_seconds)


class SqlArchive:
    """Implement ``interface.Archive`` for any thread, and delete what is old."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._saves = 0
        self._counting = threading.Lock()
        self._drop_at = 0.0

    def save(self, reports: Sequence[JobReport]) -> None:
        prepared = prepare_reports(reports)
        if not prepared:
            return
        self.database.write(lambda connection: write_reports(connection, prepared))
        with self._counting:
            self._saves += 1
            is_due = self._saves % SAVES_BETWEEN_LOOKS == 0
        if is_due:
            self._refresh_statistics()

    def find(self, viewer: Viewer, job_id: int, *, cluster: str = "") -> tuple[JobReport, ...]:
        if not 0 <= job_id < 2**63:
            return ()
        source = JOBS.join(REPORTS, REPORTS.c.run_id == JOBS.c.run_id)
        source = source.outerjoin(CURVES, CURVES.c.run_id == JOBS.c.run_id)
        statement = select(REPORTS.c.body, CURVES.c.body.label("curves")).select_from(source)
        statement = statement.where(JOBS.c.job_id == job_id)
        rows = self._query(_newest(statement, viewer, cluster))
        return tuple(decode_report(row.body, row.curves) for row in rows)

    def find_shown(self, viewer: Viewer, shown_id: str, *, cluster: str = "") -> tuple[JobRow, ...]:
        statement = select(*LIST_COLUMNS).where(JOBS.c.shown_id == valid_text(shown_id))
        return tuple(as_job_row(row) for row in self._query(_newest(statement, viewer, cluster)))

    def list_jobs(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        *,
        after: PagePosition | None = None,
        limit: int = 50,
        order: ListOrder = NEWEST_FIRST,
    ) -> JobPage:
        """Return one page of jobs, of at most 1000.

        Jobs of several clusters may have the same key. A page does not end between them, and may then be longer.
        """
        limit = max(1, min(limit, MAX_ROWS))
        with self.database.reading() as connection:
            rows = order.sort(read_page(connection, viewer, wanted, after, limit + FEW_TIES, order))
            if _count_ties(rows, limit, order) > FEW_TIES:
                rows = order.sort(read_page(connection, viewer, wanted, after, limit + MAX_CLUSTERS, order))
        end = limit
        while end < len(rows) and order.place(rows[end]) == order.place(rows[end - 1]):
            end += 1
        next_key = order.place(rows[end - 1]) if end < len(rows) else None
        return JobPage(rows=tuple(as_job_row(row) for row in rows[:end]), next_key=next_key)

    def count(self, viewer: Viewer, wanted: JobFilter) -> JobCount:
        """Count jobs: all of them where sums know the filter, else 1000 at most."""
        if is_summed(wanted):
            return JobCount(sum(total.jobs for total in self.total(viewer, wanted, GroupBy.CLUSTER, limit=MAX_ROWS)))
        with self.database.reading() as connection:
            if viewer.is_staff and wanted.name_part and wanted == JobFilter(name_part=wanted.name_part):
                return JobCount(int(connection.scalar(count_named(wanted.name_part)) or 0))
            named_jobs = find_names(connection, viewer, wanted)
            if named_jobs is not None and not named_jobs.names:
                return JobCount(0)
            wanted = named_jobs or wanted
            named_runs = named(viewer, wanted, None, JOBS.c.run_id, by_name=True)
            by_filter = pages(viewer, wanted, None, MAX_ROWS + 1, columns=(JOBS.c.run_id,))
            statements = by_filter if named_runs is None else (named_runs.order_by(None).limit(MAX_ROWS + 1),)
            found = sum(len(connection.execute(statement).all()) for statement in statements)
        return JobCount(min(found, MAX_ROWS), is_more=found > MAX_ROWS)

    def total(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        by: GroupBy,
        *,
        limit: int = 100,
        order: TotalOrder = TotalOrder.IDLE,
    ) -> tuple[UseTotal, ...]:
        """Sum up, largest first; of days, the latest ones in order.

        By rule, a job counts for each rule that found something in it; where one rule is wanted, for that one only.
        """
        rows: list[Any] = []
        with self.database.reading() as connection:
            for statement in total_statements(viewer, wanted, by):
                rows += connection.execute(statement).all()
        return add_up(rows, by, max(1, min(limit, MAX_ROWS)), order)

    def histogram(self, viewer: Viewer, wanted: JobFilter, metric: JobMetric) -> JobHistogram:
        """Count the newest matching jobs, 100,000 at most, in classes of a metric."""
        with self.database.reading() as connection:
            return count_jobs(connection, viewer, wanted, metric)

    def judge_nodes(self, since_seconds: int) -> tuple[JudgedNode, ...]:
        """Return how the jobs of each node ended, compared with the same jobs elsewhere, worst nodes first."""
        with self.database.reading() as connection:
            return rank_nodes(count_runs(connection, since_seconds), count_gpu_faults(connection, since_seconds))

    def count_running(self, viewer: Viewer, cluster: str = "") -> dict[str, int]:
        """Return how many running jobs the viewer sees on each node of a cluster."""
        with self.database.reading() as connection:
            return count_running(connection, viewer, cluster)

    def waiting_times(self, since_seconds: int, *, cluster: str = "", partition: str = "") -> tuple[WaitingTime, ...]:
        with self.database.reading() as connection:
            return read_waiting_times(connection, since_seconds, cluster=cluster, partition=partition)

    def unfinished_runs(self, *, cluster: str = "") -> frozenset[RunId]:
        """Return every run that had started and not ended when it was last saved, however many there are."""
        statement = select(*_RUN_COLUMNS).where(JOBS.c.is_unfinished.is_(True))
        if cluster:
            statement = statement.where(JOBS.c.cluster == cluster_name(cluster))
        return frozenset(map(RunId._make, self._query(statement)))

    def ended_runs(self, job_ids: Sequence[int]) -> frozenset[RunId]:
        """Return which runs of these jobs are kept and had ended."""
        known: set[RunId] = set()
        for begin in range(0, len(job_ids), NUMBERS_AT_ONCE):
            some = job_ids[begin : begin + NUMBERS_AT_ONCE]
            ended = select(*_RUN_COLUMNS).where(JOBS.c.job_id.in_(some), JOBS.c.is_unfinished.is_(False))
            known.update(map(RunId._make, self._query(ended)))
        return frozenset(known)

    def incomplete_runs(self, *, cluster: str) -> dict[RunId, int]:
        """Return ended runs of a cluster that are marked as incomplete, and when they ended; the oldest 100,000."""
        source = INCOMPLETE.join(JOBS, JOBS.c.run_id == INCOMPLETE.c.run_id)
        statement = select(*_RUN_COLUMNS, INCOMPLETE.c.end_seconds.label("end")).select_from(source)
        statement = statement.where(JOBS.c.cluster == cluster_name(cluster))
        rows = self._query(statement.order_by(INCOMPLETE.c.end_seconds).limit(MAX_INCOMPLETE))
        return {RunId(row.cluster, row.job_id, row.submit_seconds): row.end for row in rows}

    def clusters(self) -> tuple[str, ...]:
        names: list[str] = []
        with self.database.reading() as connection:
            # One lookup in an index for each name, instead of a list of all jobs.
            while (name := connection.scalar(_next_cluster(names))) is not None and len(names) < MAX_CLUSTERS:
                names.append(name)
        return tuple(names)

    def newest_submit_seconds(self) -> int | None:
        """Return when the newest job was submitted; None for an empty archive."""
        with self.database.reading() as connection:
            newest: int | None = connection.scalar(select(func.max(JOBS.c.submit_seconds)))
        return newest

    def prepare_weeks(self) -> None:
        """Make partitions ahead; without them, rows are in the one for the rest, and are deleted one by one."""
        newest = self.newest_submit_seconds()
        if newest is not None:
            self.database.write(partial(prepare_weeks, now_seconds=min(newest, int(time.time()))))

    def delete_curves(self, before_seconds: int) -> int:
        """Delete curves of jobs that ended before this time, 10,000 at most; return the number of jobs."""
        return self._drop_weeks(CURVES, before_seconds) or self._delete(
            lambda connection: delete_oldest_curves(connection, before_seconds, DELETE_ROWS)
        )

    def thin_curves(self, before_seconds: int, points: int) -> int:
        """Thin curves of jobs that ended before this time, some of them; return the number of jobs that were read."""
        return thin_old_curves(self.database, before_seconds, points)

    def delete_jobs(self, before_seconds: int) -> int:
        """Delete jobs that ended before this time, and update the sums; return their number.

        Whole days come first, then single jobs of days of which others are kept: for some seconds, the rest is left.
        """
        deleted = self._delete_days(before_seconds) or self._delete(
            lambda connection: delete_oldest_jobs(connection, before_seconds, DELETE_ROWS)
        )
        for table in PARTITIONED:
            self._drop_weeks(table, before_seconds)
        return deleted

    def _drop_weeks(self, table: Table, before_seconds: int) -> int:
        """Drop partitions; give up soon if a long query reads the table, since others would wait behind the drop."""
        dropped, now = 0, time.monotonic()
        if now < self._drop_at:
            return 0
        try:
            while (
                jobs := self.database.write(partial(drop_week, table=table, before_seconds=before_seconds))
            ) is not None:
                dropped += jobs
                if time.monotonic() > now + DELETE_SECONDS:
                    break
        except ArchiveError as error:
            self._drop_at = time.monotonic() + DROP_AGAIN_SECONDS
            logger.info("an old partition was not dropped; retrying later", extra=fields(reason=str(error)))
        return dropped

    def _delete_days(self, before_seconds: int) -> int:
        with self.database.reading() as connection:
            days = find_old_days(connection, before_seconds)
        deleted, until = 0, time.monotonic() + DELETE_SECONDS
        for day in days:
            deleted += self.database.write(partial(delete_day, day=day, before_seconds=before_seconds))
            if time.monotonic() > until:
                break
        return deleted

    def delete_audit_entries(self, before_seconds: int) -> int:
        """Delete audit rows from before this time, 10,000 at most; return their number."""
        return self._delete(lambda connection: delete_oldest_audit_rows(connection, before_seconds, DELETE_ROWS))

    def flush(self) -> None:
        """Move what was written into the file itself; servers do so by themselves."""
        self.database.flush()

    def close(self) -> None:
        self.database.close()

    def _query(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        with self.database.reading() as connection:
            return connection.execute(statement).all()

    def _refresh_statistics(self) -> None:
        """Run ANALYZE on SQLite; statistics of small tables would be wrong as soon as they grow."""
        with self.database.reading() as connection:
            newest = connection.scalar(select(func.max(JOBS.c.run_id)))
        if newest is not None and newest >= MANY_ROWS:
            self.database.refresh_statistics()

    def _delete(self, delete: Callable[[Connection], int]) -> int:
        """Delete little by little: a long transaction would keep other writers waiting."""
        deleted, until = 0, time.monotonic() + DELETE_SECONDS
        for _ in range(DELETE_BATCHES):
            count = self.database.write(delete)
            deleted += count
            if count < DELETE_ROWS or time.monotonic() > until:
                break
        return deleted


def _newest(statement: Select[Any], viewer: Viewer, cluster: str) -> Select[Any]:
    if cluster:
        statement = statement.where(JOBS.c.cluster == cluster_name(cluster))
    statement = statement.where(visible_at_all(viewer, JOBS))
    return statement.order_by(JOBS.c.submit_seconds.desc(), JOBS.c.cluster).limit(MAX_RUNS)


def _next_cluster(names: Sequence[str]) -> Select[Any]:
    statement = select(func.min(JOBS.c.cluster))
    return statement.where(JOBS.c.cluster > names[-1]) if names else statement


def _count_ties(rows: Sequence[Row[Any]], limit: int, order: ListOrder) -> int:
    """Return how many rows have the key of the last one of a page; where they are few, all of them were read."""
    keys = list(map(order.place, rows))
    return keys.count(keys[limit - 1]) if len(keys) >= limit else 0
