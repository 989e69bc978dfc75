# SPDX-License-Identifier: Apache-2.0
"""Add jobs up: whole days from the sums that are kept of them, the rest from the jobs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, case, func, select

from slurmscope.archive.daily_sums import BLOCK, DAILY, DAY, NO_RULE, SUMS, TOTAL_SUMS, TOTALS, loss_columns
from slurmscope.archive.interface import GroupBy, JobFilter, TotalOrder, UseTotal
from slurmscope.archive.job_columns import EDGE_SECONDS, LATEST_SECONDS
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric
from slurmscope.archive.queries import conditions, page_key, visible, visible_at_all
from slurmscope.archive.tables import FINDINGS, JOB_NODES, JOBS
from slurmscope.archive.texts import cluster_name, person_name, rule_name, state_name
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.suspect_nodes import NodeRuns
from slurmscope.jobs.viewer import Viewer

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


MAX_GROUPS = 100_000
"""How many users, accounts or days are held in memory while they are added up."""


_NAMES = {
    GroupBy.USER: person_name,
    GroupBy.ACCOUNT: person_name,
    GroupBy.PARTITION: person_name,
    GroupBy.STATE: state_name,
    GroupBy.RULE: rule_name,
}
"""The names by which sums over all jobs are kept, and how the archive writes them."""


class SummedNames(NamedTuple):
    """Select sums by one name, such as a user: those of one value, or of all values (None)."""

    dimension: GroupBy
    name: str | None


class SubmitRange(NamedTuple):
    """A time of submission, its end not included; None is without bound."""

    since: int | None
    until: int | None


def total_statements(viewer: Viewer, wanted: JobFilter, by: GroupBy) -> Iterator[Select[Any]]:
    """Yield the statements whose rows, added up by their first column, are the sums."""
    whole = SubmitRange(_within_time(wanted.since_seconds), _within_time(wanted.until_seconds))
    if not is_summed(wanted):
        yield _from_jobs(viewer, wanted, whole, by)
        return
    days, rest = split(whole, DAY_SECONDS)
    for times in rest:
        yield _from_jobs(viewer, wanted, times, by)
    for long in days:
        blocks, single = ((), days) if by is GroupBy.DAY else split(long, BLOCK * DAY_SECONDS)
        for times in blocks:
            yield from _from_days(viewer, wanted, times, by, BLOCK)
        for times in single:
            yield from _from_days(viewer, wanted, times, by, DAY)


def _from_days(viewer: Viewer, wanted: JobFilter, times: SubmitRange, by: GroupBy, span: int) -> Iterator[Select[Any]]:
    names = _find_names(viewer, wanted, by)
    if names is None:
        for seen in visible(viewer, DAILY):
            yield _from_sums(wanted, times, by, span).where(seen)
        return
    totals = _from_totals(wanted, times, by, span, names)
    clusters = _find_coordinated_clusters(viewer, wanted, names)
    if clusters is None:
        yield totals
        return
    yield totals.where(TOTALS.c.cluster.in_(clusters))
    own = (DAILY.c.user == person_name(viewer.name), DAILY.c.cluster.not_in(clusters))
    yield _from_sums(wanted, times, by, span).where(*own)


def _find_names(viewer: Viewer, wanted: JobFilter, by: GroupBy) -> SummedNames | None:
    """Return which sums by one name have all that is wanted; None where only those by all names do."""
    named = replace(wanted, cluster="", since_seconds=None, until_seconds=None)
    if not (viewer.is_staff or viewer.coordinates) and not named.user:
        named = replace(named, user=viewer.name)
    if named == JobFilter():
        # Every job has one state, and there are few.
        is_name = by in _NAMES
        return SummedNames(by if is_name else GroupBy.STATE, None) if viewer.is_staff else None
    for dimension, write_name in _NAMES.items():
        only: dict[str, Any] = {dimension.value: getattr(named, dimension.value)}
        is_fitting = by in {dimension, GroupBy.DAY, GroupBy.CLUSTER} and named == JobFilter(**only)
        if is_fitting and _sees_sums(viewer, dimension, only[dimension.value], wanted.cluster):
            return SummedNames(dimension, write_name(only[dimension.value]))
    return None


def _sees_sums(viewer: Viewer, dimension: GroupBy, name: str, cluster: str) -> bool:
    """Return whether a viewer may see the sums of a user, an account or another name, in a cluster or in some."""
    if viewer.is_staff or (dimension is GroupBy.USER and person_name(name) == person_name(viewer.name)):
        return True
    if dimension is not GroupBy.ACCOUNT:
        return False
    return viewer.coordinates_account(name, cluster) if cluster else name in viewer.coordinates


def _find_coordinated_clusters(viewer: Viewer, wanted: JobFilter, names: SummedNames) -> list[str] | None:
    """Return the clusters to which sums of an account are limited for a coordinator; None where they are not."""
    is_limited = names.dimension is GroupBy.ACCOUNT and not viewer.is_staff and not wanted.cluster
    if not is_limited or viewer.coordinated_clusters is None:
        return None
    return sorted(cluster_name(name) for name in viewer.coordinated_clusters)


def is_summed(wanted: JobFilter) -> bool:
    """Return whether the sums by day know all that is wanted."""
    numbers = (wanted.worst, wanted.array_job_id, wanted.het_job_id)
    texts = (wanted.name, wanted.name_part, wanted.names, wanted.reason, wanted.node, wanted.shown_ids, wanted.ranges)
    return not any(texts) and all(number is None for number in numbers)


def split(times: SubmitRange, unit_seconds: int) -> tuple[tuple[SubmitRange, ...], tuple[SubmitRange, ...]]:
    """Split a time span into the part that whole units cover, and the rests before and after it."""
    since, until = times
    first = None if since is None else -(-since // unit_seconds) * unit_seconds
    end = None if until is None else until // unit_seconds * unit_seconds
    if first is not None and end is not None and first >= end:
        return (), (times,)
    rest = []
    if first != since:
        rest.append(SubmitRange(since, first))
    if end != until:
        rest.append(SubmitRange(end, until))
    return (SubmitRange(first, end),), tuple(rest)


def add_up(rows: Iterable[Any], by: GroupBy, limit: int, order: TotalOrder = TotalOrder.IDLE) -> tuple[UseTotal, ...]:
    """Return the largest first; of days, the latest ones in order."""
    sums: dict[Any, list[float]] = {}
    for key, *numbers in rows:
        # PostgreSQL and MariaDB add whole numbers up as decimals.
        added = [float(number) for number in numbers]
        sums[key] = [old + new for old, new in zip(sums[key], added, strict=True)] if key in sums else added
    totals = [_as_total(_shown(key, by), numbers) for key, numbers in sums.items()]
    if by is GroupBy.DAY:
        return tuple(sorted(totals, key=attrgetter("key"))[-limit:])
    totals.sort(key=lambda total: (-order.read(total), total.key))
    return tuple(totals[:limit])


def _from_totals(wanted: JobFilter, times: SubmitRange, by: GroupBy, span: int, names: SummedNames) -> Select[Any]:
    group = TOTALS.c.name if by is names.dimension else TOTALS.c[by.value]
    statement = select(group, *_total_sums()).group_by(group).limit(MAX_GROUPS)
    statement = statement.where(TOTALS.c.dimension == names.dimension.value, TOTALS.c.span == span)
    if names.name is not None:
        statement = statement.where(TOTALS.c.name == names.name)
    if wanted.cluster:
        statement = statement.where(TOTALS.c.cluster == cluster_name(wanted.cluster))
    return _of_days(statement, TOTALS, times)


def _from_sums(wanted: JobFilter, times: SubmitRange, by: GroupBy, span: int) -> Select[Any]:
    group = DAILY.c[by.value]
    statement = select(group, *_daily_sums()).group_by(group).limit(MAX_GROUPS)
    narrowed = conditions(replace(wanted, since_seconds=None, until_seconds=None), DAILY)
    statement = statement.where(*narrowed, DAILY.c.span == span)
    if wanted.rule or by is not GroupBy.RULE:
        statement = statement.where(DAILY.c.rule == (rule_name(wanted.rule) if wanted.rule else NO_RULE))
    else:
        # By name, so that an index finds the days of each.
        known = (TOTALS.c.dimension == GroupBy.RULE.value, TOTALS.c.span == BLOCK)
        statement = statement.where(DAILY.c.rule.in_(select(TOTALS.c.name).where(*known).distinct()))
    return _of_days(statement, DAILY, times)


@cache
def _total_sums() -> tuple[ColumnElement[Any], ...]:
    return tuple(func.sum(TOTALS.c[name]) for name in TOTAL_SUMS)


@cache
def _daily_sums() -> tuple[ColumnElement[Any], ...]:
    """Return the columns of sums; to make them anew for every statement takes longer than many statements do."""
    kept = tuple(DAILY.c[name] for name in SUMS)
    return tuple(func.sum(amount) for amount in (*kept, *loss_columns(DAILY.c.state, kept)))


def _of_days(statement: Select[Any], table: Table, times: SubmitRange) -> Select[Any]:
    if times.since is not None:
        statement = statement.where(table.c.day >= times.since // DAY_SECONDS)
    if times.until is not None:
        statement = statement.where(table.c.day < times.until // DAY_SECONDS)
    return statement


def _from_jobs(viewer: Viewer, wanted: JobFilter, times: SubmitRange, by: GroupBy) -> Select[Any]:
    source: FromClause = JOBS
    wanted = replace(wanted, since_seconds=times.since, until_seconds=times.until)
    narrowed = [*conditions(wanted, JOBS), visible_at_all(viewer, JOBS)]
    if wanted.rule or by is GroupBy.RULE:
        source = JOBS.join(FINDINGS, FINDINGS.c.run_id == JOBS.c.run_id)
    if wanted.rule:
        narrowed.append(FINDINGS.c.rule == rule_name(wanted.rule))
    group = _group(by)
    return select(group, *_job_sums()).select_from(source).where(*narrowed).group_by(group).limit(MAX_GROUPS)


def _group(by: GroupBy) -> ColumnElement[Any]:
    if by is GroupBy.DAY:
        day: ColumnElement[Any] = JOBS.c.submit_seconds // DAY_SECONDS
        return day
    column: ColumnElement[Any] = FINDINGS.c.rule if by is GroupBy.RULE else JOBS.c[by.value]
    return column


@cache
def _job_sums() -> tuple[ColumnElement[Any], ...]:
    amounts = _amounts()
    return tuple(func.sum(amount) for amount in (*amounts, *loss_columns(JOBS.c.state, amounts)))


def _amounts() -> tuple[ColumnElement[Any], ...]:
    """Return what one job adds, in the order of the sums by day."""
    used_cores, used_gpus = JOBS.c.used_core_seconds, JOBS.c.used_gpu_seconds
    return (
        func.coalesce(1, 1),
        JOBS.c.core_seconds * 1000,
        case((used_cores.is_(None), 0.0), else_=JOBS.c.core_seconds) * 1000,
        func.coalesce(used_cores, 0.0) * 1000,
        JOBS.c.gpu_seconds * 1000,
        case((used_gpus.is_(None), 0.0), else_=JOBS.c.gpu_seconds) * 1000,
        func.coalesce(used_gpus, 0.0) * 1000,
        case((JOBS.c.worst.is_(None), 0), else_=1),
        func.coalesce(JOBS.c.blocked_core_seconds, 0.0) * 1000,
        case((JOBS.c.energy_joules.is_(None), 0), else_=1),
        func.coalesce(JOBS.c.energy_joules, 0.0) * 1000,
        func.coalesce(JOBS.c.carbon_grams, 0.0) * 1000,
        func.coalesce(JOBS.c.energy_cost, 0.0) * 1000,
        *(func.coalesce(JOBS.c[name], 0.0) * 1000 for name in EDGE_SECONDS),
    )


def _as_total(key: str, sums: list[float]) -> UseTotal:
    named = dict(zip(TOTAL_SUMS, sums, strict=True))
    amounts = {name.replace("milli", ""): value / 1000 for name, value in named.items() if "milli" in name}
    jobs, found, energy = (round(named[name]) for name in ("jobs", "jobs_with_findings", "energy_jobs"))
    return UseTotal(key=key, jobs=jobs, jobs_with_findings=found, energy_jobs=energy, **amounts)


def _within_time(seconds: int | None) -> int | None:
    """Bring a time into those that jobs can have."""
    return None if seconds is None else max(0, min(seconds, LATEST_SECONDS + 1))


def _shown(key: Any, by: GroupBy) -> str:
    if by is GroupBy.DAY:
        return datetime.fromtimestamp(int(key) * DAY_SECONDS, UTC).date().isoformat()
    return str(key)


MAX_ROWS = 100_000
"""Nodes times names of jobs that are held in memory, those with the most runs."""
ROWS_OF_USER = 2000
"""Of one user: one who gives each job another name must not use up the limit of others."""
NODE_FAILURES = ("BOOT_FAIL", "FAILED", "NODE_FAIL")
"""States for which a node may be to blame; others have another cause."""
_GPU_FAULT = "gpu_fault"


def count_runs(connection: Connection, since_seconds: int, *, rows_of_user: int = ROWS_OF_USER) -> tuple[NodeRuns, ...]:
    """Count jobs of one node that were submitted since then."""
    is_completed = JOBS.c.state == "COMPLETED"
    keys = (JOBS.c.cluster, JOB_NODES.c.node, JOBS.c.user, JOBS.c.name)
    runs = func.count()
    place = func.row_number().over(partition_by=(JOBS.c.cluster, JOBS.c.user), order_by=runs.desc())
    counted = (
        select(
            *keys,
            runs.label("runs"),
            func.sum(case((JOBS.c.state.in_(NODE_FAILURES), 1), else_=0)).label("failed"),
            func.sum(case((is_completed, 1), else_=0)).label("completed"),
            func.sum(case((is_completed, JOBS.c.run_seconds), else_=0.0)).label("completed_seconds"),
            func.sum(case((is_completed, 1.0 * JOBS.c.run_seconds * JOBS.c.run_seconds), else_=0.0)).label(
                "completed_squares"
            ),
            place.label("place"),
        )
        .select_from(JOB_NODES.join(JOBS, JOBS.c.run_id == JOB_NODES.c.run_id))
        .where(JOBS.c.submit_seconds >= since_seconds, JOBS.c.nodes == 1, JOBS.c.end_seconds.is_not(None))
        .group_by(*keys)
        .subquery()
    )
    statement = (
        select(*(counted.c[name] for name in NodeRuns._fields))
        .where(counted.c.place <= rows_of_user)
        .order_by(counted.c.runs.desc())
        .limit(MAX_ROWS)
    )
    return tuple(
        NodeRuns(cluster, node, user, name, int(runs), int(failed), int(completed), float(seconds), float(squares))
        for cluster, node, user, name, runs, failed, completed, seconds, squares in connection.execute(statement)
    )


def count_gpu_faults(connection: Connection, since_seconds: int) -> dict[tuple[str, str], int]:
    """Count jobs of one node that met errors of a GPU, by cluster and node; not those that the program made itself."""
    keys = (JOBS.c.cluster, JOB_NODES.c.node)
    statement = (
        select(*keys, func.count())
        .select_from(
            FINDINGS.join(JOBS, JOBS.c.run_id == FINDINGS.c.run_id).join(
                JOB_NODES, JOB_NODES.c.run_id == FINDINGS.c.run_id
            )
        )
        .where(
            FINDINGS.c.rule == _GPU_FAULT,
            FINDINGS.c.severity == Severity.CRITICAL.value,
            FINDINGS.c.submit_seconds >= since_seconds,
            JOBS.c.nodes == 1,
        )
        .group_by(*keys)
        .limit(MAX_ROWS)
    )
    return {(cluster, node): int(jobs) for cluster, node, jobs in connection.execute(statement)}


def count_running(connection: Connection, viewer: Viewer, cluster: str) -> dict[str, int]:
    """Count the running jobs on each node of a cluster that the viewer may see."""
    statement = (
        select(JOB_NODES.c.node, func.count())
        .select_from(JOB_NODES.join(JOBS, JOBS.c.run_id == JOB_NODES.c.run_id))
        .where(
            JOBS.c.is_unfinished.is_(True),
            *conditions(JobFilter(cluster=cluster, is_running=True), JOBS),
            visible_at_all(viewer, JOBS),
        )
        .group_by(JOB_NODES.c.node)
        .limit(MAX_ROWS)
    )
    return {node: int(jobs) for node, jobs in connection.execute(statement)}
