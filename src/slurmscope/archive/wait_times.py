# SPDX-License-Identifier: Apache-2.0
"""Keep how many jobs of each shape waited how long, by day, so that weeks are summed up without looking at jobs.

A row of the job table was counted if it has cores and a waiting time: those of version 1 have none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select

from slurmscope.archive.sum_tables import WAITS, add_to_sums
from slurmscope.archive.texts import cluster_name, person_name
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.wait_times import (
    WaitingTime,
    find_cores_class,
    find_limit_class,
    find_wait_class,
    make_waiting_time,
)

MAX_GROUPS = 100_000

_KEYS = tuple(column.name for column in WAITS.primary_key)


class WaitKey(NamedTuple):
    """Name one counter, in the order of the key columns."""

    day: int
    cluster: str
    partition: str
    cores_class: int
    limit_class: int
    wait_class: int


class WaitChanges:
    """Collect the changes of the counters."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._jobs = Counter[WaitKey]()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._jobs.update(_wait_keys(rows))

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count jobs out."""
        self._jobs.subtract(_wait_keys(rows))

    def write(self, connection: Connection) -> None:
        """Change the counters; always in the same order, so that two writers cannot wait for each other."""
        changed = [(key, jobs) for key, jobs in sorted(self._jobs.items()) if jobs]
        if changed:
            connection.execute(
                add_to_sums(connection.dialect.name, WAITS), [{**key._asdict(), "jobs": jobs} for key, jobs in changed]
            )
        for key, jobs in changed:
            if jobs < 0:
                connection.execute(delete(WAITS).filter_by(**key._asdict()).where(WAITS.c.jobs <= 0))


def read_waiting_times(
    connection: Connection, since_seconds: int, *, cluster: str = "", partition: str = ""
) -> tuple[WaitingTime, ...]:
    """Return the waiting times of jobs that were submitted since this day, by partition and shape."""
    shape = (WAITS.c.partition, WAITS.c.cores_class, WAITS.c.limit_class)
    statement = select(*shape, WAITS.c.wait_class, func.sum(WAITS.c.jobs)).group_by(*shape, WAITS.c.wait_class)
    statement = statement.where(WAITS.c.day >= since_seconds // DAY_SECONDS).limit(MAX_GROUPS)
    if cluster:
        statement = statement.where(WAITS.c.cluster == cluster_name(cluster))
    if partition:
        statement = statement.where(WAITS.c.partition == person_name(partition))
    shapes: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    for name, cores_class, limit_class, wait_class, jobs in connection.execute(statement):
        shapes[name, cores_class, limit_class][wait_class] = int(jobs)
    return tuple(make_waiting_time(*key, jobs_by_class) for key, jobs_by_class in sorted(shapes.items()))


def _wait_keys(rows: Iterable[Mapping[str, Any]]) -> Iterable[WaitKey]:
    for row in rows:
        if row["wait_seconds"] is not None and row["cpus"]:
            yield WaitKey(
                row["submit_seconds"] // DAY_SECONDS,
                row["cluster"],
                row["partition"],
                find_cores_class(row["cpus"]),
                find_limit_class(row["time_limit_seconds"]),
                find_wait_class(row["wait_seconds"]),
            )
