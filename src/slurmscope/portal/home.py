# SPDX-License-Identifier: Apache-2.0
"""Show the first page: to users their own jobs, to staff first the state of the cluster and who needs help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.archive.interface import GroupBy, JobFilter, TotalOrder, UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.waste import GPU_CORES
from slurmscope.core.units import format_hours, format_some
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.pending.reasons import explain_reason
from slurmscope.jobs.rule import Severity
from slurmscope.portal.cluster_now import NodeProblem
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.waste import Waster, find_wasters
from slurmscope.reports.page_paths import job_path, user_path

MAX_FIXES = 3
MAX_RULES = 10
"""Rules among which the fixes are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFinding:
    """One finding that several jobs have in common, and the newest of these jobs."""

    rule: str
    jobs: int
    newest: JobRow
    sentence: str


def choose_fixes(totals: Sequence[UseTotal], newest: Mapping[str, JobRow], *, days: int) -> tuple[SharedFinding, ...]:
    """Choose the rules whose jobs lost or blocked most; ``newest`` is the newest job of each rule."""
    known = sorted((total for total in totals if total.key in newest), key=_weigh, reverse=True)
    return tuple(
        SharedFinding(rule=total.key, jobs=total.jobs, newest=newest[total.key], sentence=_describe(total, days))
        for total in known[:MAX_FIXES]
    )


def _weigh(total: UseTotal) -> float:
    return total.lost_core_seconds + total.blocked_core_seconds + GPU_CORES * total.lost_gpu_seconds


def _describe(total: UseTotal, days: int) -> str:
    amounts = (
        (total.lost_core_seconds, "core-hours lost"),
        (total.lost_gpu_seconds, "GPU-hours lost"),
        (total.blocked_core_seconds, "core-hours blocked for others"),
    )
    lost = ", ".join(f"{format_hours(seconds)} {what}" for seconds, what in amounts if seconds)
    jobs = f"{format_some(total.jobs, 'job')} in {days} days"
    return f"{jobs}; {lost}." if lost else f"{jobs}."


_ROWS = 12
_STAFF_ROWS = 3
"""Of their own jobs, which come last, staff see a few of each kind."""
_DAYS = 30
_CRITICAL_ROWS = 5
_WASTE_ROWS = 5
_DOWN_NODES = 5
_FAILED_ROWS = 5
_FAILED_DAYS = 7
_FAILED_STATES = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL")
_SHOWN_JOBS = 3


class ReasonGroup(NamedTuple):
    """The pending jobs of a user with one reason, those that start first before the others."""

    reason: str
    meaning: str
    action: str
    jobs: tuple[tuple[PendingJob, str], ...]
    """Some of them, each with its cluster."""
    job_count: int
    start_seconds: int | None


class OwnPending(NamedTuple):
    """The pending jobs of one user by reason, and the number of all of them, each task counted."""

    groups: tuple[ReasonGroup, ...]
    job_count: int


def group_own(queues: Sequence[PendingQueue], user: str, *, limit: int = _ROWS) -> OwnPending:
    """Group the pending jobs of a user in all clusters by their reason, those with most jobs."""
    groups: dict[str, list[tuple[PendingJob, str]]] = {}
    for queue in queues:
        for job in queue.of_user(user):
            groups.setdefault(job.word, []).append((job, queue.cluster))
    found = sorted((_make_group(word, jobs) for word, jobs in groups.items()), key=lambda group: -group.job_count)
    return OwnPending(tuple(found[:limit]), sum(group.job_count for group in found))


def _make_group(word: str, jobs: Iterable[tuple[PendingJob, str]]) -> ReasonGroup:
    ordered = sorted(jobs, key=lambda one: _start_order(one[0]))
    known = explain_reason(word)
    return ReasonGroup(
        reason=word,
        meaning=known.meaning,
        action=known.action.replace("JOBID", str(ordered[0][0].job_id)) if len(ordered) == 1 else "",
        jobs=tuple(ordered[:_SHOWN_JOBS]),
        job_count=sum(job.task_count for job, _ in ordered),
        start_seconds=ordered[0][0].start_seconds,
    )


def _start_order(job: PendingJob) -> tuple[bool, int, int]:
    return job.start_seconds is None, job.start_seconds or 0, -(job.priority or 0)


router = APIRouter(include_in_schema=False)


@router.get("/")
def show_first_page(context: Context) -> Response:
    """Show the viewer's own jobs, suggestions, and an overview of the cluster."""
    viewer, archive = context.viewer, context.archive
    own = JobFilter(user=viewer.name)
    own_recent = replace(own, since_seconds=context.since(_DAYS))
    if viewer.is_staff:
        context.audit("waste of all users")
    rows = _STAFF_ROWS if viewer.is_staff else _ROWS
    failed = _find_failed(context)[:rows]
    newest = archive.list_jobs(viewer, replace(own, is_running=False), limit=rows + len(failed)).rows
    total = next(iter(archive.total(viewer, own_recent, GroupBy.USER, limit=1)), None)
    return context.page(
        "index.html",
        rows=[row for row in newest if row not in failed][:rows],
        running=archive.list_jobs(viewer, replace(own, is_running=True), limit=rows).rows,
        failed=failed,
        failed_count=_count_failed(context),
        failed_days=_FAILED_DAYS,
        days=_DAYS,
        total=total,
        fixes=() if viewer.is_staff else _find_fixes(context, own_recent),
        own=own,
        own_recent=own_recent,
        waiting=group_own(context.list_queues(), viewer.name, limit=rows),
        rule_link=context.make_rule_link(own_recent),
        now=context.now(),
        own_cluster=context.own_cluster,
        views=context.services.views.list_views(viewer),
        staff=_make_staff_view(context) if viewer.is_staff else None,
        tour=tuple(_make_tour(context)) if context.services.view_as else (),
    )


class Stop(NamedTuple):
    """One link of the guided path through a demo."""

    label: str
    path: str


_TOUR_JOBS = (
    ("A job that ran out of memory, and what to type next", JobFilter(state="OUT_OF_MEMORY")),
    ("A job whose GPUs were stuck", JobFilter(rule="gpu_stuck")),
)
_TOUR_REASONS = ("Licenses", "Resources", "Priority")


def _make_tour(context: RequestContext) -> Iterator[Stop]:
    """Yield the pages to look at first; of jobs, those that the viewer has access to."""
    for label, wanted in _TOUR_JOBS:
        for row in context.archive.list_jobs(context.viewer, wanted, limit=1).rows:
            yield Stop(label, job_path(row.shown_id, context.link_cluster(row.cluster)))
    own = [(job, queue.cluster) for queue in context.list_queues() for job in queue.of_user(context.viewer.name)]
    for reason in _TOUR_REASONS:
        found = next(((job, cluster) for job, cluster in own if job.word == reason), None)
        if found is not None:
            yield Stop("Why a job is pending", job_path(found[0].shown_id, context.link_cluster(found[1])))
            break
    if context.viewer.is_staff:
        yield Stop("Who lost how many hours, and why", "/waste")
    else:
        yield Stop("How many hours were idle", user_path(context.viewer.name))
    yield Stop("All nodes by state and use", "/nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaffView:
    """What staff look at first: critical running jobs, who wastes most, and nodes that are down."""

    critical: tuple[JobRow, ...]
    wasters: tuple[Waster, ...]
    lost_core_seconds: float
    recent: JobFilter
    down: tuple[NodeProblem, ...]


def _make_staff_view(context: RequestContext) -> StaffView:
    recent = JobFilter(since_seconds=context.since(_FAILED_DAYS))
    running = JobFilter(worst=Severity.CRITICAL, is_running=True)
    totals = context.archive.total(context.viewer, recent, GroupBy.USER, limit=1000, order=TotalOrder.LOST)
    return StaffView(
        critical=context.archive.list_jobs(context.viewer, running, limit=_CRITICAL_ROWS).rows,
        wasters=find_wasters(context, totals[:_WASTE_ROWS], recent),
        lost_core_seconds=sum(total.lost_core_seconds for total in totals),
        recent=recent,
        down=context.now().troubles[:_DOWN_NODES],
    )


def _count_failed(context: RequestContext) -> int:
    recent = JobFilter(user=context.viewer.name, since_seconds=context.since(_FAILED_DAYS))
    states = Counter({each.key: each.jobs for each in context.archive.total(context.viewer, recent, GroupBy.STATE)})
    return sum(states[state] for state in _FAILED_STATES)


def _find_fixes(context: RequestContext, wanted: JobFilter) -> tuple[SharedFinding, ...]:
    totals = context.archive.total(context.viewer, wanted, GroupBy.RULE, limit=MAX_RULES)
    newest = {
        total.key: row
        for total in totals
        for row in context.archive.list_jobs(context.viewer, replace(wanted, rule=total.key), limit=1).rows
    }
    return choose_fixes(totals, newest, days=_DAYS)


def _find_failed(context: RequestContext) -> list[JobRow]:
    """Return the viewer's newest jobs that failed."""
    recent = JobFilter(user=context.viewer.name, since_seconds=context.since(_FAILED_DAYS))
    found = [
        row
        for state in _FAILED_STATES
        for row in context.archive.list_jobs(context.viewer, replace(recent, state=state), limit=_FAILED_ROWS).rows
    ]
    return sorted(found, key=lambda row: (row.submit_seconds, row.job_id), reverse=True)[:_FAILED_ROWS]
