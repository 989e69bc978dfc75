# SPDX-License-Identifier: Apache-2.0
"""Read jobs from Slurm's accounting database, through views that show nothing else.

First the numbers of the rows are found, by an index, then the rows are read in pieces of bounded size. Every piece has
a connection of its own, so that neither a slow consumer nor a restart of the server matters.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from slurmscope.accounting.records import ENDINGS, decode_record
from slurmscope.accounting.rows import NOW, name_tres
from slurmscope.accounting.server import (
    JOB_COLUMNS,
    STEP_COLUMNS,
    TRES_COLUMNS,
    TRES_VIEW,
    Session,
    clusters_of,
    job_view,
    open_session,
    quote_name,
    render_select,
    step_view,
)
from slurmscope.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.core.errors import ServerError
from slurmscope.core.log import fields
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.runs import join_resized, whole_runs

logger = logging.getLogger(__name__)


_PIECE = 500
# Above 200 values MariaDB does not use the index to estimate how few rows they have, and may scan the whole
# table: 500 jobs out of 2,000,000 took 10 s.
_NUMBERS_AT_ONCE = 100
_WINDOW_SECONDS = 6 * 3600
_MAX_JOB_ID = 2**32 - 1

RowCounts = list[tuple[str, int]]
"""Clusters and row numbers."""


class DatabaseAccounting:
    """Read the job records of some clusters, or of all in the database; safe to use from several threads.

    Of several clusters, those without views are skipped; reads raise ServerError if none has any.
    """

    def __init__(self, settings: AccountingSettings) -> None:
        """Set the connection, which is opened for each query, and the clusters."""
        self._settings = settings
        self._chosen = () if settings.clusters == (ALL_CLUSTERS,) else settings.clusters

    def clusters(self) -> tuple[str, ...]:
        if self._chosen:
            return self._chosen
        with open_session(self._settings) as session:
            return self._clusters(session)

    def of(self, cluster: str) -> DatabaseAccounting:
        return DatabaseAccounting(replace(self._settings, clusters=(cluster,)))

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """Return every run of these jobs; the ID of an array or heterogeneous job selects all its parts."""
        possible = sorted({job_id for job_id in job_ids if 0 < job_id < _MAX_JOB_ID})
        rows: dict[tuple[str, int], None] = {}
        for some in _pieces(possible, _NUMBERS_AT_ONCE):
            # Three queries with an index each, instead of one with OR that may scan the whole table.
            conditions = (f"{column} IN ({_places(some)})" for column in ("id_job", "id_array_job", "het_job_id"))
            rows |= dict.fromkeys(self._find(conditions, some))
        records = sorted(self._read(list(rows)), key=lambda record: (record.job_id, record.submit_seconds))
        return tuple(join_resized(records))

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield runs that ended in this time, both edges included, window by window."""
        for start in range(since_seconds, until_seconds + 1, _WINDOW_SECONDS):
            end = min(start + _WINDOW_SECONDS - 1, until_seconds)
            rows = self._find(["time_end BETWEEN %s AND %s ORDER BY time_end"], (start, end))
            ended = (record for record in self._read(rows) if record.state in ENDINGS)
            yield from whole_runs(ended, self.read_jobs)

    def read_current(self) -> Iterator[JobRecord]:
        """Yield running and pending jobs, held ones included."""
        for record in whole_runs(self._read(self._find(["time_end = 0 AND state < 3"])), self.read_jobs):
            if record.state not in ENDINGS:
                yield record

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        condition = "user_name = %s AND time_submit <= %s AND (time_end = 0 OR time_end >= %s)"
        found = self._read(self._find([condition], (user, until_seconds, since_seconds)))
        yield from whole_runs(found, self.read_jobs)

    def _find(self, conditions: Iterable[str], values: Sequence[int | str] = ()) -> RowCounts:
        """Return the rows that meet one of the conditions; rows that meet two are returned twice."""
        with open_session(self._settings) as session:
            selects = [
                (cluster, render_select(("job_db_inx",), quote_name(job_view(cluster))))
                for cluster in self._clusters(session)
            ]
            return [
                (cluster, number)
                for condition in conditions
                for cluster, select in selects
                for (number,) in session.query(f"{select} WHERE {condition}", values)
            ]

    def _clusters(self, session: Session) -> tuple[str, ...]:
        names = session.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [self._settings.database]
        )
        readable = clusters_of([str(name) for (name,) in names])
        if not readable:
            raise ServerError(f"{session.name} has no job views that we may read; run slurmscope database grant")
        if missing := [name for name in self._chosen if name not in readable]:
            problem = (
                f"{session.name} has no job views of {', '.join(missing)} that we may read; run slurmscope database "
                "grant, and check accounting.clusters"
            )
            if len(missing) == len(self._chosen):
                raise ServerError(problem)
            # A new cluster may not have views yet; jobs of the others are shown meanwhile.
            logger.warning("jobs of a cluster cannot be read", extra=fields("views", error=problem))
        return tuple(name for name in self._chosen if name in readable) or readable

    def _read(self, rows: RowCounts) -> Iterator[JobRecord]:
        by_cluster: defaultdict[str, list[int]] = defaultdict(list)
        for cluster, number in rows:
            by_cluster[cluster].append(number)
        for cluster, numbers in by_cluster.items():
            for some in _pieces(numbers, _PIECE):
                yield from self._read_piece(cluster, some)

    def _read_piece(self, cluster: str, numbers: Sequence[int]) -> list[JobRecord]:
        with open_session(self._settings) as session:
            tres_rows = session.query(render_select(TRES_COLUMNS, quote_name(TRES_VIEW)))
            jobs = _select(session, job_view(cluster), (*JOB_COLUMNS, NOW), numbers)
            steps = _select(session, step_view(cluster), tuple(STEP_COLUMNS), numbers)
        names = name_tres(tres_rows)
        steps_of: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for step in steps:
            steps_of[step["job_db_inx"]].append(step)
        by_number = {job["job_db_inx"]: job for job in jobs}
        return [
            decode_record(cluster, by_number[number], steps_of[number], names)
            for number in numbers
            if number in by_number  # not purged since it was found
        ]


def _select(session: Session, view: str, columns: Sequence[str], numbers: Sequence[int]) -> list[dict[str, Any]]:
    statement = f"{render_select(columns, quote_name(view))} WHERE job_db_inx IN ({_places(numbers)})"
    return [dict(zip(columns, row, strict=True)) for row in session.query(statement, numbers)]


def _pieces(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _places(values: Sequence[int]) -> str:
    return ", ".join(["%s"] * len(values))
