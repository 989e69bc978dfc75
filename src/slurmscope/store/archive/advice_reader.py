# SPDX-License-Identifier: Apache-2.0
"""Read what became of advice, as far as a viewer may see it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, and_, func, select

from slurmscope.model.advice import AdviceGroup, AdviceOutcome, AdviceReader, AdviceTotal, Savings
from slurmscope.model.viewer import Viewer
from slurmscope.store.archive.database.engine import Database
from slurmscope.store.archive.job_rows import cluster_name, person_name
from slurmscope.store.archive.queries import MAX_ROWS, visible_at_all
from slurmscope.store.archive.sums.advice import as_compared_run, month_of
from slurmscope.store.archive.tables.schema import ADVICE, JOBS
from slurmscope.store.archive.tables.sum_tables import ADVICE_SUMS

MAX_OUTCOMES = 100
MAX_GROUPS = 100_000

_GIB = 1 << 30
_SUMS = tuple(column for column in ADVICE_SUMS.c if not column.primary_key)


class SqlAdviceReader(AdviceReader):
    """Read outcomes from the archive, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database) -> None:
        """Set the database, which its owner closes."""
        self._database = database

    def find_outcomes(
        self, viewer: Viewer, cluster: str, job_id: int, submit_seconds: int
    ) -> tuple[AdviceOutcome, ...]:
        """Return the outcomes in which this run is the earlier or the later one."""
        later = select(JOBS, ADVICE).join(ADVICE, ADVICE.c.run_id == JOBS.c.run_id)
        is_later = and_(JOBS.c.job_id == job_id, JOBS.c.submit_seconds == submit_seconds)
        is_earlier = and_(ADVICE.c.advised_job_id == job_id, ADVICE.c.advised_submit_seconds == submit_seconds)
        rows: list[Any] = []
        with self._database.reading() as connection:
            for condition in (is_later, and_(is_earlier, ADVICE.c.is_first.is_(True))):
                statement = later.where(condition, ADVICE.c.cluster == cluster_name(cluster))
                statement = statement.where(visible_at_all(viewer, JOBS)).order_by(JOBS.c.submit_seconds, ADVICE.c.rule)
                rows += connection.execute(statement.limit(MAX_OUTCOMES)).mappings()
        return tuple(
            _as_outcome(row)
            for row in rows
            if viewer.sees(row[JOBS.c.user], row[ADVICE.c.advised_account], row[ADVICE.c.cluster])
        )

    def total_outcomes(
        self,
        viewer: Viewer,
        by: AdviceGroup,
        *,
        since_seconds: int,
        user: str = "",
        cluster: str = "",
        limit: int = 100,
    ) -> tuple[AdviceTotal, ...]:
        """Return totals, largest saving of core time first; months in order."""
        group = ADVICE_SUMS.c[by.value]
        statement = select(group, *(func.sum(column) for column in _SUMS)).group_by(group).limit(MAX_GROUPS)
        seen = visible_at_all(viewer, ADVICE_SUMS)
        statement = statement.where(ADVICE_SUMS.c.month >= month_of(max(0, since_seconds)), seen)
        if user:
            statement = statement.where(ADVICE_SUMS.c.user == person_name(user))
        if cluster:
            statement = statement.where(ADVICE_SUMS.c.cluster == cluster_name(cluster))
        with self._database.reading() as connection:
            totals = [_as_total(row, by) for row in connection.execute(statement)]
        limit = max(1, min(limit, MAX_ROWS))
        if by is AdviceGroup.MONTH:
            return tuple(sorted(totals, key=attrgetter("key"))[-limit:])
        return tuple(sorted(totals, key=lambda total: (-total.saved_core_seconds, -total.advised, total.key))[:limit])


def _as_outcome(row: Any) -> AdviceOutcome:
    values = {column.name: row[column] for column in JOBS.c}
    advice = {column.name: row[column] for column in ADVICE.c}
    return AdviceOutcome(
        rule=advice["rule"],
        suggestion=advice["suggestion"],
        earlier=as_compared_run(advice, "advised_"),
        later=as_compared_run(values),
        is_followed=advice["is_followed"],
        is_gone=advice["is_gone"],
        is_first=advice["is_first"],
        savings=Savings(
            core_seconds=advice["saved_core_seconds"],
            gpu_seconds=advice["saved_gpu_seconds"],
            memory_byte_seconds=advice["saved_memory_byte_seconds"],
        ),
    )


def _as_total(row: Row[Any] | Sequence[Any], by: AdviceGroup) -> AdviceTotal:
    key, *sums = row
    # PostgreSQL and MariaDB add whole numbers up as decimals.
    advised, followed, ignored, gone, completed, saving_runs, cores, gpus, memory = map(int, sums)
    return AdviceTotal(
        key=f"{key // 12:04}-{key % 12 + 1:02}" if by is AdviceGroup.MONTH else str(key),
        advised=advised,
        followed=followed,
        ignored=ignored,
        gone=gone,
        completed=completed,
        saving_runs=saving_runs,
        saved_core_seconds=cores / 1000,
        saved_gpu_seconds=gpus / 1000,
        saved_memory_byte_seconds=memory / 1000 * _GIB,
    )
