# SPDX-License-Identifier: Apache-2.0
"""Build SQL conditions from a filter and the permissions of a viewer.

``visible`` is the one place that decides whose jobs a viewer may see; every query of the archive goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, and_, or_, select, true, tuple_, union_all

from slurmscope.archive.interface import JobFilter, PagePosition
from slurmscope.archive.job_rows import LIST_NAMES
from slurmscope.archive.metric_ranges import MetricRange
from slurmscope.archive.tables import FINDINGS, JOB_NODES, JOBS
from slurmscope.archive.texts import RULE_SEPARATOR, cluster_name, person_name, rule_name, state_name, valid_text
from slurmscope.jobs.viewer import Viewer
from slurmscope.slurm.states import ACTIVE_STATES

MAX_ROWS = 1000
_IDS_AT_ONCE = 100  # MariaDB reads the whole table when there are more than 200.
_MAX_BRANCHES = 20
_LARGEST = 2**63 - 1
_LAST_CHARACTER = "\U0010ffff"

SqlCondition = ColumnElement[bool]

LIST_COLUMNS = tuple(JOBS.c[name] for name in LIST_NAMES)
"""What a line of a list is made from."""


def visible(viewer: Viewer, table: FromClause) -> tuple[SqlCondition, ...]:
    """Return the rows of a table with users and accounts that a viewer may see, as mutually exclusive conditions.

    They are several because a page that is read from one index for each is found at once, and one that is read for
    all of them together is sorted first.
    """
    if viewer.is_staff:
        return (true(),)
    own = table.c.user == person_name(viewer.name)
    accounts = sorted(person_name(account) for account in viewer.coordinates)
    if not accounts:
        return (own,)
    coordinated = _in_coordinated_clusters(viewer, table)
    if len(accounts) > _MAX_BRANCHES:
        return (or_(own, and_(table.c.account.in_(accounts), coordinated)),)
    others = and_(table.c.user != person_name(viewer.name), coordinated)
    return (own, *(and_(table.c.account == account, others) for account in accounts))


def _in_coordinated_clusters(viewer: Viewer, table: FromClause) -> SqlCondition:
    """Return the rows of clusters whose accounts a viewer coordinates; tables without a cluster are joined to jobs."""
    if viewer.coordinated_clusters is None:
        return true()
    column = table.c.cluster if "cluster" in table.c else JOBS.c.cluster
    return column.in_(sorted(cluster_name(name) for name in viewer.coordinated_clusters))


def visible_at_all(viewer: Viewer, table: FromClause) -> SqlCondition:
    """Return the same as one condition, for queries without an order."""
    return or_(*visible(viewer, table))


def pages(
    viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int, *, is_by_job: bool = False
) -> tuple[Select[Any], ...]:
    """Return statements that each select the first rows of a part of the result; together they contain the page.

    With ``is_by_job``, jobs are searched for a rule, instead of its findings for jobs.
    """
    narrowed = conditions(wanted, JOBS)
    source: FromClause = JOBS
    ordered: FromClause = JOBS
    if wanted.rule and is_by_job:
        narrowed = (*narrowed, has_rule(wanted.rule))
    elif wanted.rule:
        # Rule, user, account and order come from the one table, so that one of its indexes covers the page.
        source, ordered = FINDINGS.join(JOBS, FINDINGS.c.run_id == JOBS.c.run_id), FINDINGS
        narrowed = (*conditions(wanted, JOBS, FINDINGS), FINDINGS.c.rule == rule_name(wanted.rule))
    elif wanted.node:
        source, ordered = JOB_NODES.join(JOBS, JOB_NODES.c.run_id == JOBS.c.run_id), JOB_NODES
        narrowed = (
            *conditions(replace(wanted, node=""), JOBS, JOB_NODES),
            JOB_NODES.c.node == person_name(wanted.node),
        )
    key = page_key(wanted, ordered)
    if after is not None:
        narrowed = (*narrowed, tuple_(*key) < tuple_(*_bounded(after)))
    statement = select(*LIST_COLUMNS).select_from(source).where(*narrowed)
    statement = statement.order_by(*(column.desc() for column in key)).limit(limit)
    return tuple(statement.where(branch) for branch in _branches(viewer, wanted, ordered))


def page_key(wanted: JobFilter, table: FromClause) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return what a list is ordered by.

    The few jobs with given IDs are sorted: databases would search all jobs for them, in the order of an index.
    """
    submitted = table.c.submit_seconds + 0 if wanted.shown_ids else table.c.submit_seconds
    return submitted, table.c.job_id


def has_rule(rule: str) -> SqlCondition:
    """Return the jobs in which a rule found something, by their own rows."""
    between: SqlCondition = (RULE_SEPARATOR + JOBS.c.rules + RULE_SEPARATOR).contains(
        f"{RULE_SEPARATOR}{rule_name(rule)}{RULE_SEPARATOR}", autoescape=True
    )
    return between


def newest_named(
    viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int, *, newest_jobs: int
) -> tuple[Select[Any], ...]:
    """Return statements that search only so many of the newest jobs for a name.

    SQLite sorts all jobs whose names begin with a common prefix, although a page of them is among the newest.
    """
    found = []
    for statement in pages(viewer, replace(wanted, name=""), after, newest_jobs):
        newest = statement.subquery()
        columns = (newest.c[name] for name in LIST_NAMES)
        order = (newest.c.submit_seconds.desc(), newest.c.job_id.desc())
        found.append(select(*columns).where(*_narrow_name(wanted, newest)).order_by(*order).limit(limit))
    return tuple(found)


def named(
    viewer: Viewer, wanted: JobFilter, after: PagePosition | None, column: ColumnElement[Any], *, by_name: bool = False
) -> Select[Any] | None:
    """Select a column of the jobs of one name, in the order of a list; None if no index has all that it takes.

    Otherwise thousands of rows of a name are read and sorted for a page, although an index has their order. With
    ``by_name``, no index of times is used.
    """
    others = replace(wanted, name="", user="", since_seconds=None, until_seconds=None)
    if not wanted.name or others != JobFilter() or (viewer.coordinates and not viewer.is_staff):
        return None
    submitted: ColumnElement[Any] = JOBS.c.submit_seconds + 0 if by_name else JOBS.c.submit_seconds
    statement = select(column).where(*conditions(wanted, JOBS), *visible(viewer, JOBS))
    if after is not None:
        statement = statement.where(tuple_(submitted, JOBS.c.job_id) < tuple_(*_bounded(after)))
    return statement.order_by(submitted.desc(), JOBS.c.job_id.desc())


def _narrow_name(wanted: JobFilter, table: FromClause) -> tuple[SqlCondition, ...]:
    prefix = valid_text(wanted.name)
    return (table.c.name >= prefix, table.c.name < prefix + _LAST_CHARACTER) if prefix else ()


def _branches(viewer: Viewer, wanted: JobFilter, table: FromClause) -> Sequence[SqlCondition]:
    """Let a list of one user, one account or some IDs be read from one index even for those who see several."""
    if wanted.user or wanted.account or wanted.shown_ids:
        return (visible_at_all(viewer, table),)
    return visible(viewer, table)


def conditions(wanted: JobFilter, table: FromClause, shared: FromClause | None = None) -> tuple[SqlCondition, ...]:
    """Return everything but the rule; ``shared`` is a table with the same names and times, and better indexes."""
    shared = table if shared is None else shared
    found = [*_narrow_names(wanted, table, shared), *_narrow_times(wanted, shared)]
    if wanted.name:
        found += _narrow_name(wanted, table)
    if wanted.worst is not None:
        found.append(table.c.worst == wanted.worst.value)
    if wanted.array_job_id is not None:
        found.append(table.c.array_job_id == _clamp(wanted.array_job_id))
    if wanted.het_job_id is not None:
        found.append(table.c.het_job_id == _clamp(wanted.het_job_id))
    if wanted.node:
        runs = select(JOB_NODES.c.run_id).where(JOB_NODES.c.node == person_name(wanted.node))
        found.append(table.c.run_id.in_(runs))
    if wanted.shown_ids:
        found.append(table.c.run_id.in_(_find_shown(wanted.shown_ids)))
    found += [condition for each in wanted.ranges for condition in _narrow_range(each, table)]
    return tuple(found)


def _find_shown(shown_ids: Sequence[str]) -> Select[Any]:
    """Select the runs of jobs, tasks and parts, each by an index of its own: with OR, databases read all jobs."""
    shown = [valid_text(shown_id) for shown_id in shown_ids]
    whole = [_clamp(int(shown_id)) for shown_id in shown_ids if shown_id.isdecimal()]
    parts = (*_find_runs(JOBS.c.array_job_id, whole), *_find_runs(JOBS.c.het_job_id, whole))
    runs = union_all(*_find_runs(JOBS.c.shown_id, shown), *parts).subquery()
    return select(runs.c.run_id)


def _find_runs(column: ColumnElement[Any], ids: Sequence[str | int]) -> Iterator[Select[Any]]:
    for begin in range(0, len(ids), _IDS_AT_ONCE):
        yield select(JOBS.c.run_id).where(column.in_(ids[begin : begin + _IDS_AT_ONCE]))


def _narrow_range(wanted: MetricRange, table: FromClause) -> Iterator[SqlCondition]:
    column = table.c[wanted.metric.value]
    if wanted.low is not None:
        yield column >= wanted.low
    if wanted.high is not None:
        yield column < wanted.high


def _narrow_names(wanted: JobFilter, table: FromClause, shared: FromClause) -> list[SqlCondition]:
    found: list[SqlCondition] = []
    if wanted.cluster:
        found.append(table.c.cluster == cluster_name(wanted.cluster))
    if wanted.user:
        found.append(shared.c.user == person_name(wanted.user))
    if wanted.account:
        found.append(shared.c.account == person_name(wanted.account))
    if wanted.partition:
        found.append(table.c.partition == person_name(wanted.partition))
    if wanted.state:
        found.append(table.c.state == state_name(wanted.state))
    if wanted.is_running is not None:
        is_active = table.c.state.in_(ACTIVE_STATES)
        found.append(is_active if wanted.is_running else ~is_active)
    return found


def _narrow_times(wanted: JobFilter, table: FromClause) -> list[SqlCondition]:
    found: list[SqlCondition] = []
    if wanted.since_seconds is not None:
        found.append(table.c.submit_seconds >= _clamp(wanted.since_seconds))
    if wanted.until_seconds is not None:
        found.append(table.c.submit_seconds < _clamp(wanted.until_seconds))
    return found


def _bounded(after: PagePosition) -> tuple[int, int]:
    return _clamp(after.submit_seconds), _clamp(after.job_id)


def _clamp(number: int) -> int:
    """Keep a number of a stranger within what databases take."""
    return max(-_LARGEST, min(number, _LARGEST))
