# SPDX-License-Identifier: Apache-2.0
"""Build SQL conditions from a filter and the permissions of a viewer.

``visible`` is the one place that decides whose jobs a viewer may see; every query of the archive goes through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    FromClause,
    Select,
    and_,
    false,
    func,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from slurmscope.archive.daily_sums import NAMES
from slurmscope.archive.interface import JobFilter, ListOrder, PagePosition
from slurmscope.archive.job_rows import LIST_NAMES
from slurmscope.archive.metric_ranges import MetricRange
from slurmscope.archive.tables import FINDINGS, JOB_NODES, JOBS
from slurmscope.archive.texts import RULE_SEPARATOR, cluster_name, person_name, rule_name, state_name, valid_text
from slurmscope.jobs.viewer import Viewer
from slurmscope.slurm.states import ACTIVE_STATES

MAX_ROWS = 1000
SORTED_JOBS = 20_000
"""Of the jobs that a filter matches, so many of the newest are sorted by another column than the submission."""
SORTED_NAMED = 5_000
"""The same with a part of a name, which is searched in many more jobs."""
IDS_AT_ONCE = 100  # MariaDB reads the whole table when there are more than 200.
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


def pages(  # noqa: PLR0913 - what a page is chosen by
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    *,
    is_by_job: bool = False,
    is_ascending: bool = False,
    columns: Sequence[ColumnElement[Any]] = LIST_COLUMNS,
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
    statement = select(*columns).select_from(source).where(*narrowed)
    statement = _continue(statement, key, None if after is None else _bounded(after), is_ascending=is_ascending)
    return tuple(statement.limit(limit).where(branch) for branch in _branches(viewer, wanted, ordered))


def _continue(
    statement: Select[Any], key: Sequence[ColumnElement[Any]], after: Sequence[Any] | None, *, is_ascending: bool
) -> Select[Any]:
    """Order a statement by a key, all of it in one direction, and continue after a position."""
    if after is not None:
        place, end = tuple_(*key), tuple_(*after)
        statement = statement.where(place > end if is_ascending else place < end)
    return statement.order_by(*(column.asc() if is_ascending else column.desc() for column in key))


def sorted_runs(
    viewer: Viewer, wanted: JobFilter, after: PagePosition | None, limit: int, order: ListOrder
) -> Select[Any]:
    """Select the runs of a page that is not in the order of submission.

    Of all jobs, an index of the column has the order. Of filtered ones, the newest are sorted: an index for each
    column with each filter would cost more than all others together.
    """
    if viewer.is_staff and wanted == JobFilter():
        source: FromClause = JOBS
    else:
        source = _newest_keys(viewer, wanted, order)
    column = source.c[order.column.value]
    key = (column, source.c.submit_seconds, source.c.job_id)
    statement = select(source.c.run_id).where(column.is_not(None)).limit(limit)
    end = None if after is None else (_valid_value(after.value), *_bounded(after))
    return _continue(statement, key, end, is_ascending=order.is_ascending)


def count_sorted(wanted: JobFilter) -> int:
    """Return how many of the newest jobs of a filter are sorted by another column than the submission."""
    return SORTED_NAMED if wanted.name_part or wanted.names else SORTED_JOBS


def _valid_value(value: float | str | None) -> float | str | None:
    return valid_text(value) if isinstance(value, str) else value


def _newest_keys(viewer: Viewer, wanted: JobFilter, order: ListOrder) -> FromClause:
    names = dict.fromkeys(("run_id", order.column.value, "submit_seconds", "job_id"))
    columns = [JOBS.c[name] for name in names]
    parts = [each.subquery() for each in pages(viewer, wanted, None, count_sorted(wanted), columns=columns)]
    return parts[0] if len(parts) == 1 else union_all(*(select(part) for part in parts)).subquery()


class _has_part(FunctionElement[bool]):  # noqa: N801 - a function of SQL
    """Search a part of a text, in upper or lower case."""

    type = Boolean()
    inherit_cache = True


@compiles(_has_part)
def _compile_part(element: _has_part, compiler: Any, **options: Any) -> str:
    text, pattern = (compiler.process(clause, **options) for clause in element.clauses)
    return f"lower({text}) LIKE lower({pattern}) ESCAPE '/'"


@compiles(_has_part, "sqlite")
def _compile_sqlite_part(element: _has_part, compiler: Any, **options: Any) -> str:
    """Use what SQLite does in any case: lower() takes three times as long."""
    text, pattern = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{text} LIKE {pattern} ESCAPE '/'"


def page_key(wanted: JobFilter, table: FromClause) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return what a list is ordered by.

    The few jobs with given IDs or names are sorted, and the running ones of a user, an account or a severity:
    databases would search all jobs for them, in the order of an index.
    """
    is_running = wanted.is_running and (wanted.user or wanted.account or wanted.worst is not None)
    is_sorted = wanted.shown_ids or wanted.names or is_running
    submitted = table.c.submit_seconds + 0 if is_sorted else table.c.submit_seconds
    return submitted, table.c.job_id


def has_rule(rule: str) -> SqlCondition:
    """Return the jobs in which a rule found something, by their own rows."""
    between: SqlCondition = (RULE_SEPARATOR + JOBS.c.rules + RULE_SEPARATOR).contains(
        f"{RULE_SEPARATOR}{rule_name(rule)}{RULE_SEPARATOR}", autoescape=True
    )
    return between


def newest_named(
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    limit: int,
    *,
    newest_jobs: int,
    is_ascending: bool = False,
) -> tuple[Select[Any], ...]:
    """Return statements that search only so many of the newest jobs, or of the oldest, for a name.

    SQLite sorts all jobs whose names begin with a common prefix, although a page of them is among the newest.
    """
    found = []
    for statement in pages(
        viewer, replace(wanted, name="", name_part=""), after, newest_jobs, is_ascending=is_ascending
    ):
        newest = statement.subquery()
        named = select(*(newest.c[name] for name in LIST_NAMES)).where(*_narrow_name(wanted, newest)).limit(limit)
        key = (newest.c.submit_seconds, newest.c.job_id)
        found.append(_continue(named, key, None, is_ascending=is_ascending))
    return tuple(found)


def named(
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None,
    column: ColumnElement[Any],
    *,
    by_name: bool = False,
    is_ascending: bool = False,
) -> Select[Any] | None:
    """Select a column of the jobs of one name, in the order of a list; None if no index has all that it takes.

    Otherwise thousands of rows of a name are read and sorted for a page, although an index has their order. With
    ``by_name``, no index of times is used.
    """
    others = replace(wanted, name="", name_part="", user="", since_seconds=None, until_seconds=None)
    if not (wanted.name or wanted.name_part) or others != JobFilter() or (viewer.coordinates and not viewer.is_staff):
        return None
    submitted: ColumnElement[Any] = JOBS.c.submit_seconds + 0 if by_name else JOBS.c.submit_seconds
    statement = select(column).where(*conditions(wanted, JOBS), *visible(viewer, JOBS))
    if wanted.name_part:
        # True of every name: SQLite would choose an index without names, and read the rows of all jobs for them.
        statement = statement.where(JOBS.c.name >= "")
    end = None if after is None else _bounded(after)
    return _continue(statement, (submitted, JOBS.c.job_id), end, is_ascending=is_ascending)


def names_with_part(part: str, most: int) -> Select[Any]:
    """Select some of the names with a part, and how many jobs have each of them."""
    return select(NAMES.c.name, NAMES.c.jobs).where(*_narrow_name(JobFilter(name_part=part), NAMES)).limit(most)


def count_named(part: str) -> Select[Any]:
    """Select how many jobs have a part in their names."""
    return select(func.coalesce(func.sum(NAMES.c.jobs), 0)).where(*_narrow_name(JobFilter(name_part=part), NAMES))


def _narrow_name(wanted: JobFilter, table: FromClause) -> tuple[SqlCondition, ...]:
    if wanted.name_part:
        literal = re.sub("([/%_])", r"/\1", valid_text(wanted.name_part))
        return (*_narrow_name(replace(wanted, name_part=""), table), _has_part(table.c.name, f"%{literal}%"))
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
    found += _narrow_name(wanted, table)
    if wanted.names:
        found.append(_have_names(wanted, table))
    if wanted.reason:
        found.append(false())
    if wanted.worst is not None:
        found.append(table.c.worst == wanted.worst.value)
        if wanted.is_running and not (wanted.user or wanted.account):
            # By their runs, so that not all jobs of this severity are read for the few that are running.
            found.append(table.c.run_id.in_(select(JOBS.c.run_id).where(JOBS.c.state.in_(ACTIVE_STATES))))
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


def _have_names(wanted: JobFilter, table: FromClause) -> SqlCondition:
    """Return the jobs with these names; beside other conditions by their runs, so that no other index is preferred."""
    if replace(wanted, names=(), since_seconds=None, until_seconds=None) == JobFilter():
        return table.c.name.in_(wanted.names)
    return table.c.run_id.in_(select(JOBS.c.run_id).where(JOBS.c.name.in_(wanted.names)))


def _find_shown(shown_ids: Sequence[str]) -> Select[Any]:
    """Select the runs of jobs, tasks and parts, each by an index of its own: with OR, databases read all jobs."""
    shown = [valid_text(shown_id) for shown_id in shown_ids]
    whole = [_clamp(int(shown_id)) for shown_id in shown_ids if shown_id.isdecimal()]
    parts = (*_find_runs(JOBS.c.array_job_id, whole), *_find_runs(JOBS.c.het_job_id, whole))
    runs = union_all(*_find_runs(JOBS.c.shown_id, shown), *parts).subquery()
    return select(runs.c.run_id)


def _find_runs(column: ColumnElement[Any], ids: Sequence[str | int]) -> Iterator[Select[Any]]:
    for begin in range(0, len(ids), IDS_AT_ONCE):
        yield select(JOBS.c.run_id).where(column.in_(ids[begin : begin + IDS_AT_ONCE]))


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
