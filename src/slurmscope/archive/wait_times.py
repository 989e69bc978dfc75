# SPDX-License-Identifier: Apache-2.0
"""Keep how many jobs of each shape waited how long, by day, so that weeks are summed up without looking at jobs.

A row of the job table was counted if it has cores and a waiting time: those of version 1 have none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from slurmscope.archive.sum_tables import WAITS, change_sums
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

Rows = Iterable[Mapping[str, Any]]


def change_waits(connection: Connection, taken: Rows, added: Rows = ()) -> None:
    """Count jobs out and in; always in the same order, so that two writers cannot wait for each other."""
    jobs = Counter(_wait_keys(added))
    jobs.subtract(_wait_keys(taken))
    changed = ((*key, count) for key, count in sorted(jobs.items()) if count)
    change_sums(connection, WAITS, [dict(zip(WAITS.c.keys(), values, strict=True)) for values in changed])


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


def _wait_keys(rows: Rows) -> Iterable[tuple[int | str, ...]]:
    """Yield the name of one counter for each job, in the order of the key columns."""
    for row in rows:
        if row["wait_seconds"] is not None and row["cpus"]:
            yield (
                row["submit_seconds"] // DAY_SECONDS,
                row["cluster"],
                row["partition"],
                find_cores_class(row["cpus"]),
                find_limit_class(row["time_limit_seconds"]),
                find_wait_class(row["wait_seconds"]),
            )
