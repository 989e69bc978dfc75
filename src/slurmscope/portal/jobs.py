# SPDX-License-Identifier: Apache-2.0
"""Show lists of jobs: the first page, the job list with its filters, job arrays, and search results."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from slurmscope.archive.interface import GroupBy, JobFilter, JobPage, UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import AmbiguousName
from slurmscope.core.units import DAY_SECONDS, format_count, format_some
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.pending.reasons import explain_reason
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.runs import of_newest_array
from slurmscope.portal.array import keep_newest_runs, make_array_view
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.nodes import has_node
from slurmscope.portal.pending import explain_pending, show_pending
from slurmscope.portal.queries import (
    NUMBER,
    PAGE_ROWS,
    SHOWN_ID,
    last_day,
    make_range_fields,
    parse_filter,
    parse_format,
    parse_position,
    render_day,
    render_position,
    render_query,
)
from slurmscope.portal.web.tables import make_job_file
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.page_paths import array_path, job_path, node_path, parse_job
from slurmscope.slurm.states import ENDED_STATES

MAX_FIXES = 3
MAX_RULES = 10
"""Rules among which the fixes are chosen."""
GPU_CORES = 10.0
"""An hour of a GPU counts as this many core-hours."""

_LOST_STATES = ENDED_STATES - {"COMPLETED", "CANCELLED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFinding:
    """One finding that several jobs have in common, and the newest of these jobs."""

    rule: str
    jobs: int
    newest: JobRow
    sentence: str


def choose_fixes(totals: Sequence[UseTotal], newest: Mapping[str, JobRow], *, days: int) -> tuple[SharedFinding, ...]:
    """Choose the rules whose jobs lost most; all time of jobs that did not complete counts as lost.

    ``newest`` is the newest job of each rule, and shows how such jobs end.
    """
    known = [(total, newest[total.key]) for total in totals if total.key in newest]
    known.sort(key=lambda pair: _lost_seconds(*pair), reverse=True)
    return tuple(
        SharedFinding(rule=total.key, jobs=total.jobs, newest=row, sentence=_describe(total, row, days))
        for total, row in known[:MAX_FIXES]
    )


def _lost_seconds(total: UseTotal, row: JobRow) -> float:
    if row.state in _LOST_STATES:
        return total.core_seconds + GPU_CORES * total.gpu_seconds
    return (total.idle_core_seconds or 0.0) + GPU_CORES * _idle_gpu_seconds(total)


def _idle_gpu_seconds(total: UseTotal) -> float:
    return max(0.0, total.measured_gpu_seconds - total.used_gpu_seconds)


def _describe(total: UseTotal, row: JobRow, days: int) -> str:
    jobs = f"{format_some(total.jobs, 'job')} in {days} days"
    if row.state in _LOST_STATES:
        return f"{jobs}; they held {_hours(total.core_seconds, 'core')}, and the newest did not complete."
    idle = [
        _hours(seconds, unit)
        for seconds, unit in ((total.idle_core_seconds, "core"), (_idle_gpu_seconds(total), "GPU"))
        if seconds
    ]
    return f"{jobs}; {' and '.join(idle)} idle." if idle else f"{jobs}."


def _hours(seconds: float, unit: str) -> str:
    return f"{format_count(round(seconds / 3600, 1))} {unit}-hours"


MAX_FILE_ROWS = 10_000
"""Rows in the file of a list: a few megabytes, and a few seconds of database time."""
MAX_TASKS = 5_000
_ROWS_PER_QUERY = 500
_FIRST_PAGE_ROWS = 12
_FIRST_PAGE_DAYS = 30
_CRITICAL_ROWS = 8
_FAILED_ROWS = 5
_FAILED_DAYS = 7
_FAILED_STATES = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL")
_ARRAY_ROWS = 50
_RANGE_DAYS = 30

_WHOLE_ARRAY = re.compile(r"([0-9]{1,10})_\[[^\]]{0,100}\]?\Z", re.ASCII)

MAX_OWN = 5


class OwnJob(NamedTuple):
    """One pending job with its reason in words and its cluster."""

    job: PendingJob
    meaning: str
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPending:
    """The pending jobs of one user that start first, and the number of all of them, each task counted."""

    jobs: tuple[OwnJob, ...]
    count: int


def summarize_own(queues: Sequence[PendingQueue], user: str) -> OwnPending:
    """Return the pending jobs of a user in all clusters, those with the earliest expected start first."""
    own = [(job, queue.cluster) for queue in queues for job in queue.of_user(user)]
    ordered = sorted(own, key=lambda one: _start_order(one[0]))
    return OwnPending(
        jobs=tuple(OwnJob(job, explain_reason(job.reason).meaning, cluster) for job, cluster in ordered[:MAX_OWN]),
        count=sum(job.task_count for job, _ in own),
    )


def _start_order(job: PendingJob) -> tuple[bool, int, int]:
    return job.start_seconds is None, job.start_seconds or 0, -job.submit_seconds


router = APIRouter(include_in_schema=False)

ListJobs = Callable[..., JobPage]
"""Return one page of a list: takes the filter, ``limit`` and the position ``after`` which to continue."""


@router.get("/")
def show_first_page(context: Context) -> Response:
    """Show the viewer's own jobs, suggestions, and an overview of the cluster."""
    viewer, archive = context.viewer, context.archive
    own = JobFilter(user=viewer.name)
    own_recent = JobFilter(user=viewer.name, since_seconds=context.since(_FIRST_PAGE_DAYS))
    all_recent = JobFilter(since_seconds=context.since(7))
    if viewer.is_staff:
        context.audit("waste of all users")
    failed = _find_failed(context)
    newest = archive.list_jobs(viewer, own, limit=_FIRST_PAGE_ROWS + len(failed)).rows
    rows = [row for row in newest if row not in failed][:_FIRST_PAGE_ROWS]
    return context.page(
        "index.html",
        rows=rows,
        failed=failed,
        failed_days=_FAILED_DAYS,
        days=_FIRST_PAGE_DAYS,
        total=next(iter(archive.total(viewer, own_recent, GroupBy.USER, limit=1)), None),
        fixes=_find_fixes(context, own_recent),
        wasters=archive.total(viewer, all_recent, GroupBy.USER, limit=8) if viewer.is_staff else (),
        critical=_find_critical(context, shown=(*failed, *rows)) if viewer.is_staff else (),
        own=own,
        waiting=summarize_own(context.list_queues(), viewer.name),
        rule_link=context.make_rule_link(own_recent),
        now=context.now(),
        own_cluster=context.own_cluster,
    )


@router.get("/jobs")
def show_jobs(context: Context) -> Response:
    """Show one page of the list, or send the whole list as a file."""
    wanted, table_format = bound_ranges(context, parse_filter(context.query)), parse_format(context.query)
    context.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'all users'}", owner=wanted.user)
    if table_format != "html":
        return make_job_file(_iterate(context.list_jobs, wanted), table_format, "jobs", limit=MAX_FILE_ROWS)
    after = parse_position(context.query.get("after", ""))
    page = context.list_jobs(wanted, after=after, limit=PAGE_ROWS)
    return context.page(
        "jobs.html",
        wanted=wanted,
        since_day=render_day(wanted.since_seconds) or "",
        until_day=last_day(wanted) or "",
        rows=page.rows,
        next_position=render_position(page.next_key),
        is_first=after is None,
        range_fields=make_range_fields(wanted.ranges),
        views=context.services.views.list_views(context.viewer),
        view_token=context.services.csrf.issue(context.viewer),
    )


def bound_ranges(context: RequestContext, wanted: JobFilter) -> JobFilter:
    """Search 30 days only for a range without a first day: no index is by these numbers."""
    if not wanted.ranges or wanted.since_seconds is not None:
        return wanted
    since = context.since(_RANGE_DAYS)
    if wanted.until_seconds is not None:
        since = max(0, min(since, wanted.until_seconds - _RANGE_DAYS * DAY_SECONDS))
    return replace(wanted, since_seconds=since)


@router.get("/arrays/{array_id}")
def show_array(context: Context, array_id: str) -> Response:
    """Show the distribution of the tasks, outliers, and one recommendation for all tasks."""
    if not NUMBER.match(array_id):
        raise not_found()
    table_format, wanted = parse_format(context.query), JobFilter(cluster=context.cluster, array_job_id=int(array_id))
    rows, is_cut = read_rows(context.list_jobs, wanted, MAX_TASKS)
    clusters = {row.cluster for row in rows if row.cluster}
    if is_cut and not context.cluster:
        # The rows may all be of one cluster, and older ones of another.
        known = context.services.clusters()
        clusters.update(name for name in known if context.has_jobs(replace(wanted, cluster=name)))
    require_unambiguous("array", array_id, clusters)
    rows = of_newest_array(rows)
    if not rows:
        raise not_found()
    context.audit(f"array {context.name_job(array_id, rows[0].cluster)}", owner=rows[0].user)
    if table_format != "html":
        runs = _iterate(context.list_jobs, wanted)
        return make_job_file(runs, table_format, f"array-{array_id}", limit=MAX_TASKS)
    waiting = context.find_pending_array(int(array_id), rows[0].cluster)
    tasks = keep_newest_runs(rows, [found.job for found in waiting])
    started = [row for row in tasks if not row.is_pending]
    first = context.archive.find(context.viewer, started[0].job_id, cluster=started[0].cluster) if started else ()
    if not first:
        return show_pending(context, array_id, waiting[0]) if waiting else _list_tasks(context, wanted)
    view = make_array_view(tasks, first[0].summary)
    shown = {row.shown_id for row in view.incomplete}
    return context.page(
        "array.html",
        array_id=int(array_id),
        view=view,
        first=started[0],
        rows=[row for row in tasks if row.shown_id not in shown][:_ARRAY_ROWS],
        count=sum(row.array_tasks for row in tasks),
        earlier_runs=len(rows) - len(tasks),
        is_cut=is_cut,
        wanted=wanted,
        pending=[explain_pending(context, one) for one in waiting[:1]],
        now=context.services.clock(),
    )


@router.get("/search")
def search(context: Context, q: str = "") -> Response:
    """Redirect to the job, array, user, account or node, else to the list of jobs whose names begin with the text.

    Only what the viewer has access to is searched: what is not accessible and what is absent lead to the same page.
    """
    text = q.strip()[:200]
    return RedirectResponse(context.base_path + _find_page(context, text), 303)


def _list_tasks(context: RequestContext, wanted: JobFilter) -> Response:
    return RedirectResponse(f"{context.base_path}/jobs{render_query(wanted)}", 303)


def read_rows(list_jobs: ListJobs, wanted: JobFilter, limit: int) -> tuple[list[JobRow], bool]:
    """Read a list page by page up to the limit; also return whether there are more rows."""
    rows: list[JobRow] = []
    for row in _iterate(list_jobs, wanted):
        if len(rows) >= limit:
            return rows, True
        rows.append(row)
    return rows, False


def _iterate(list_jobs: ListJobs, wanted: JobFilter) -> Iterator[JobRow]:
    page = list_jobs(wanted, limit=_ROWS_PER_QUERY)
    yield from page.rows
    while page.next_key is not None:
        page = list_jobs(wanted, after=page.next_key, limit=_ROWS_PER_QUERY)
        yield from page.rows


def _find_fixes(context: RequestContext, wanted: JobFilter) -> tuple[SharedFinding, ...]:
    totals = context.archive.total(context.viewer, wanted, GroupBy.RULE, limit=MAX_RULES)
    newest = {
        total.key: row
        for total in totals
        for row in context.archive.list_jobs(context.viewer, replace(wanted, rule=total.key), limit=1).rows
    }
    return choose_fixes(totals, newest, days=_FIRST_PAGE_DAYS)


def _find_failed(context: RequestContext) -> list[JobRow]:
    """Return the viewer's newest jobs that failed."""
    recent = JobFilter(user=context.viewer.name, since_seconds=context.since(_FAILED_DAYS))
    found = [
        row
        for state in _FAILED_STATES
        for row in context.archive.list_jobs(context.viewer, replace(recent, state=state), limit=_FAILED_ROWS).rows
    ]
    return sorted(found, key=lambda row: (row.submit_seconds, row.job_id), reverse=True)[:_FAILED_ROWS]


def _find_critical(context: RequestContext, *, shown: Collection[JobRow]) -> list[JobRow]:
    """Return the newest jobs with critical findings, without those that are shown above."""
    wanted = JobFilter(worst=Severity.CRITICAL, since_seconds=context.since(7))
    rows = context.archive.list_jobs(context.viewer, wanted, limit=_CRITICAL_ROWS + len(shown)).rows
    return [row for row in rows if row not in shown][:_CRITICAL_ROWS]


def _find_page(context: RequestContext, text: str) -> str:
    if not text or not text.isprintable():
        return "/jobs"
    cluster, job = parse_job(text)
    if match := _WHOLE_ARRAY.match(job):
        return array_path(match[1], cluster)
    if SHOWN_ID.match(job) and (page := _find_job_page(context, job, cluster)):
        return page
    for kind, wanted in (("users", JobFilter(user=text)), ("accounts", JobFilter(account=text))):
        if context.has_jobs(wanted):
            return f"/{kind}/{quote(text, safe='')}"
    if has_node(context, text):
        return node_path(text)
    return "/jobs?" + urlencode({"name": text})


def _find_job_page(context: RequestContext, shown_id: str, cluster: str) -> str:
    """Return the page of the job or array with this id, or nothing; the page offers a choice if there are several."""
    try:
        if context.find_pending(shown_id, cluster) or context.read_report_of(cluster, shown_id) is not None:
            return job_path(shown_id, cluster)
    except AmbiguousName:
        return job_path(shown_id)
    wanted = JobFilter(cluster=cluster, array_job_id=int(shown_id)) if shown_id.isdecimal() else None
    return array_path(shown_id, cluster) if wanted and context.has_jobs(wanted) else ""
