# SPDX-License-Identifier: Apache-2.0
"""Read a page of a list by the way that reads the fewest rows, where the planner of a database cannot know it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from slurmscope.archive.daily_sums import BLOCK, TOTALS
from slurmscope.archive.interface import NEWEST_FIRST, GroupBy, JobFilter, ListOrder, PagePosition, SortColumn
from slurmscope.archive.queries import (
    IDS_AT_ONCE,
    LIST_COLUMNS,
    conditions,
    named,
    names_with_part,
    newest_named,
    pages,
    sorted_runs,
)
from slurmscope.archive.tables import JOBS
from slurmscope.archive.texts import cluster_name, rule_name
from slurmscope.jobs.viewer import Viewer

NEWEST_JOBS = (1_000, 10_000)
"""In how many jobs SQLite searches a name, one after the other, before it uses the index of names."""
MANY_JOBS = 2_000
"""With fewer jobs of a name, SQLite reads and sorts all their rows in a few milliseconds."""
MANY_INDEXED = 50_000
"""With fewer jobs of a name, it sorts their entries in an index in a few milliseconds."""

FEW_NAMES = {"sqlite": 2_000, "postgresql": 2_000, "mariadb": 100}
"""Up to so many names with a part are looked up; with more than 200, MariaDB reads the whole table."""
FEW_JOBS = 10_000
"""With more jobs of these names, a page is found among the newest jobs."""


def read_page(
    connection: Connection,
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    order: ListOrder = NEWEST_FIRST,
) -> list[Row[Any]]:
    """Return rows that contain the page, in no order."""
    named_jobs = find_names(connection, viewer, wanted)
    if named_jobs is not None:
        return _read_jobs_of_names(connection, viewer, named_jobs, after, limit, order) if named_jobs.names else []
    if order.column is not SortColumn.SUBMIT:
        return _read_runs(connection, sorted_runs(viewer, wanted, after, limit, order))
    if wanted.name_part or order.is_ascending:
        return _read_part(connection, viewer, wanted, after, limit, is_ascending=order.is_ascending)
    if wanted.name and connection.dialect.name == "sqlite":
        found = _read_named(connection, viewer, wanted, after, limit)
        if found is not None:
            return found
    last = named(viewer, wanted, after, JOBS.c.submit_seconds)
    since = connection.scalar(last.offset(limit - 1).limit(1)) if last is not None else None
    if since is not None:
        wanted = replace(wanted, since_seconds=since)
    is_by_job = viewer.is_staff and _has_few_jobs(connection, wanted)
    statements = pages(viewer, wanted, after, limit, is_by_job=is_by_job)
    return [row for statement in statements for row in connection.execute(statement)]


def _read_runs(connection: Connection, runs: Select[Any]) -> list[Row[Any]]:
    """Return the rows of runs that an index has chosen and put in order, so that no other row is read."""
    found = connection.scalars(runs).all()
    parts = (found[begin : begin + IDS_AT_ONCE] for begin in range(0, len(found), IDS_AT_ONCE))
    statement = select(*LIST_COLUMNS)
    return [row for part in parts for row in connection.execute(statement.where(JOBS.c.run_id.in_(part)))]


def _read_part(
    connection: Connection,
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    *,
    is_ascending: bool,
) -> list[Row[Any]]:
    """Return rows that contain the page of a part of a name, from the nearest jobs or else from an index of names."""
    if wanted.name_part:
        nearest = _read_newest(connection, viewer, wanted, after, limit, is_ascending=is_ascending)
        if nearest:
            return nearest
    runs = named(viewer, wanted, after, JOBS.c.run_id, by_name=True, is_ascending=is_ascending)
    if runs is not None:
        return _read_runs(connection, runs.limit(limit))
    statements = pages(viewer, wanted, after, limit, is_ascending=is_ascending)
    return [row for statement in statements for row in connection.execute(statement)]


def find_names(connection: Connection, viewer: Viewer, wanted: JobFilter) -> JobFilter | None:
    """Return the filter with the names that have its part; None where other ways find the jobs faster.

    Without any such name the filter has none. Jobs of one user are few enough to be searched themselves.
    """
    if not wanted.name_part or wanted.user or not viewer.is_staff:
        return None
    few = _most_names(connection)
    found = connection.execute(names_with_part(wanted.name_part, few + 1)).all()
    if len(found) > few or sum(jobs for _, jobs in found) > FEW_JOBS:
        return None
    return replace(wanted, name_part="", names=tuple(name for name, _ in found))


def _most_names(connection: Connection) -> int:
    """Return how many names are looked up at most; one statement of SQLite before 3.32 takes 999 parameters."""
    most = FEW_NAMES[connection.dialect.name]
    if connection.dialect.name != "sqlite":
        return most
    driver: Any = connection.connection.driver_connection
    parameters: int = driver.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    return min(most, parameters // 2)


def _read_jobs_of_names(
    connection: Connection,
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    order: ListOrder,
) -> list[Row[Any]]:
    if order.column is not SortColumn.SUBMIT:
        return _read_runs(connection, sorted_runs(viewer, wanted, after, limit, order))
    columns = (JOBS.c.run_id,)
    (runs,) = pages(viewer, wanted, after, limit, is_by_job=True, is_ascending=order.is_ascending, columns=columns)
    return _read_runs(connection, runs)


def _read_named(
    connection: Connection, viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int
) -> list[Row[Any]] | None:
    """Return rows of SQLite that contain the page of a name; None if nothing is quicker than to sort all its jobs.

    Every index of SQLite has the number of the run, so that only rows of the page are read. With the time of the last
    one, as for other databases, it would read all jobs since then.
    """
    runs = named(viewer, wanted, after, JOBS.c.run_id, by_name=True)
    if _has_more_jobs(connection, viewer, wanted, MANY_JOBS if runs is None else MANY_INDEXED):
        newest = _read_newest(connection, viewer, wanted, after, limit)
        if newest:
            return newest
    if runs is None:
        return None
    return _read_runs(connection, runs.limit(limit))


def _read_newest(
    connection: Connection,
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    *,
    is_ascending: bool = False,
) -> list[Row[Any]]:
    """Return rows that contain the page if all of them are among the newest jobs, or the oldest, else none."""
    for newest_jobs in NEWEST_JOBS:
        statements = newest_named(viewer, wanted, after, limit, newest_jobs=newest_jobs, is_ascending=is_ascending)
        found = [connection.execute(statement).all() for statement in statements]
        if all(len(rows) >= limit for rows in found):
            return [row for rows in found for row in rows]
    return []


def _has_more_jobs(connection: Connection, viewer: Viewer, wanted: JobFilter, jobs: int) -> bool:
    """Return whether a name has more jobs, so that those of a page are probably among the newest of all.

    Other filters are not considered: the index of names does not have their columns.
    """
    user = wanted.user or ("" if viewer.is_staff or viewer.coordinates else viewer.name)
    named = select(JOBS.c.run_id).where(*conditions(JobFilter(name=wanted.name, user=user), JOBS))
    return connection.scalar(named.offset(jobs).limit(1)) is not None


def _has_few_jobs(connection: Connection, wanted: JobFilter) -> bool:
    """Return whether a cluster has fewer jobs than a rule found something in, in all clusters.

    Findings have no cluster: those of a small one would be searched among those of the others.
    """
    if not wanted.rule or not wanted.cluster:
        return False
    jobs = select(func.coalesce(func.sum(TOTALS.c.jobs), 0)).where(TOTALS.c.span == BLOCK)
    of_cluster = jobs.where(TOTALS.c.dimension == GroupBy.STATE.value, TOTALS.c.cluster == cluster_name(wanted.cluster))
    of_rule = jobs.where(TOTALS.c.dimension == GroupBy.RULE.value, TOTALS.c.name == rule_name(wanted.rule))
    return bool(connection.scalar(select(of_cluster.scalar_subquery() < of_rule.scalar_subquery())))
