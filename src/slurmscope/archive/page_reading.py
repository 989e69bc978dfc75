# SPDX-License-Identifier: Apache-2.0
"""Read a page of a list by the way that reads the fewest rows, where the planner of a database cannot know it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, func, select

from slurmscope.archive.daily_sums import BLOCK
from slurmscope.archive.interface import GroupBy, JobFilter, PagePosition
from slurmscope.archive.queries import LIST_COLUMNS, conditions, named, newest_named, pages
from slurmscope.archive.sum_tables import TOTALS
from slurmscope.archive.tables import JOBS
from slurmscope.archive.texts import cluster_name, rule_name
from slurmscope.jobs.viewer import Viewer

NEWEST_JOBS = (1_000, 10_000)
"""In how many jobs SQLite searches a name, one after the other, before it uses the index of names."""
MANY_JOBS = 2_000
"""With fewer jobs of a name, SQLite reads and sorts all their rows in a few milliseconds."""
MANY_INDEXED = 50_000
"""With fewer jobs of a name, it sorts their entries in an index in a few milliseconds."""


def read_page(
    connection: Connection, viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int
) -> list[Row[Any]]:
    """Return rows that contain the page, in no order."""
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
    found = connection.scalars(runs.limit(limit)).all()
    return [*connection.execute(select(*LIST_COLUMNS).where(JOBS.c.run_id.in_(found)))]


def _read_newest(
    connection: Connection, viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int
) -> list[Row[Any]]:
    """Return rows that contain the page if all of them are among the newest jobs, else none."""
    for newest_jobs in NEWEST_JOBS:
        statements = newest_named(viewer, wanted, after, limit, newest_jobs=newest_jobs)
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
