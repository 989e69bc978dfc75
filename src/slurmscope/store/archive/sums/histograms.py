# SPDX-License-Identifier: Apache-2.0
"""Count jobs in classes of a metric: the newest ones, so that the count is quick however many match."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, FromClause, Select, case, func, select

from slurmscope.model.archive import JobFilter
from slurmscope.model.metric_ranges import JobHistogram, JobMetric
from slurmscope.model.viewer import Viewer
from slurmscope.store.archive.job_rows import rule_name
from slurmscope.store.archive.queries import conditions, page_key, visible_at_all
from slurmscope.store.archive.tables.schema import FINDINGS, JOBS

MAX_JOBS = 100_000


def count_jobs(connection: Connection, viewer: Viewer, wanted: JobFilter, metric: JobMetric) -> JobHistogram:
    """Count the newest matching jobs that the viewer may see."""
    newest = _newest(viewer, wanted, metric).subquery()
    number, edges = newest.c.number, metric.edges
    bounds = list(zip((None, *edges), (*edges, None), strict=True))
    classes = [func.sum(case((_is_between(number, *pair), 1), else_=0)) for pair in bounds]
    oldest = func.min(newest.c.submit_seconds)
    since, *row = connection.execute(select(oldest, func.count(), func.count(number), *classes)).one()
    jobs, known, *counts = (int(count or 0) for count in row)
    return JobHistogram(
        metric=metric,
        counts=tuple(counts),
        unknown=jobs - known,
        is_cut=jobs >= MAX_JOBS,
        since_seconds=since,
    )


def _newest(viewer: Viewer, wanted: JobFilter, metric: JobMetric) -> Select[Any]:
    source: FromClause = JOBS
    narrowed = [*conditions(wanted, JOBS), visible_at_all(viewer, JOBS)]
    if wanted.rule:
        source = JOBS.join(FINDINGS, FINDINGS.c.run_id == JOBS.c.run_id)
        narrowed.append(FINDINGS.c.rule == rule_name(wanted.rule))
    statement = select(JOBS.c[metric.value].label("number"), JOBS.c.submit_seconds)
    statement = statement.select_from(source).where(*narrowed)
    return statement.order_by(*(column.desc() for column in page_key(wanted, JOBS))).limit(MAX_JOBS)


def _is_between(number: Any, low: float | None, high: float | None) -> Any:
    if low is None:
        return number < high
    return number >= low if high is None else (number >= low) & (number < high)
