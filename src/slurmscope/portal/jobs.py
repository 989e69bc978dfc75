# SPDX-License-Identifier: Apache-2.0
"""Show lists of jobs: the job list with its filters, job arrays, and search results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from slurmscope.archive.interface import JobCount, JobFilter, JobPage, ListOrder, SortColumn
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.queries import count_sorted
from slurmscope.core.errors import AmbiguousName
from slurmscope.core.units import DAY_SECONDS, format_count, format_some
from slurmscope.jobs.runs import of_newest_array
from slurmscope.portal.array import keep_newest_runs, make_array_view
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.nodes import has_node
from slurmscope.portal.pending import explain_pending, show_pending
from slurmscope.portal.queries import (
    NUMBER,
    PAGE_ROWS,
    SHOWN_ID,
    label_range,
    last_day,
    make_range_fields,
    parse_filter,
    parse_format,
    parse_order,
    parse_position,
    render_day,
    render_order,
    render_position,
    render_query,
)
from slurmscope.portal.web.tables import make_job_file
from slurmscope.portal.web.templates import name_rule
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.page_paths import array_path, job_path, node_path, parse_job

MAX_FILE_ROWS = 10_000
"""Rows in the file of a list: a few megabytes, and a few seconds of database time."""
MAX_TASKS = 5_000
_ROWS_PER_QUERY = 500
_ARRAY_ROWS = 50
_RANGE_DAYS = 30

_WHOLE_ARRAY = re.compile(r"([0-9]{1,10})_\[[^\]]{0,100}\]?\Z", re.ASCII)

router = APIRouter(include_in_schema=False)

ListJobs = Callable[..., JobPage]
"""Return one page of a list: takes the filter, ``limit`` and the position ``after`` which to continue."""


@router.get("/jobs")
def show_jobs(context: Context) -> Response:
    """Show one page of the list, or send the whole list as a file."""
    given, table_format = parse_filter(context.query), parse_format(context.query)
    wanted = bound_ranges(context, given)
    context.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'all users'}", owner=wanted.user)
    if table_format != "html":
        list_jobs = partial(context.list_jobs, order=parse_order(context.query))
        return make_job_file(_iterate(list_jobs, wanted), table_format, "jobs", limit=MAX_FILE_ROWS)
    return context.page(
        "jobs.html",
        wanted=wanted,
        list=read_list_page(context, given, wanted),
        shows_users=context.viewer.is_staff or bool(context.viewer.coordinates),
        since_day=render_day(wanted.since_seconds) or "",
        until_day=last_day(wanted) or "",
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
    """Redirect to the job, array, user, account or node, else to the list of jobs whose names contain the text.

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


_LABELS = {
    "cluster": "Cluster",
    "user": "User",
    "account": "Account",
    "partition": "Partition",
    "state": "State",
    "reason": "Reason",
    "name": "Name starts with",
    "name_part": "Name contains",
    "rule": "Finding",
    "worst": "Worst finding",
    "array_job_id": "Array",
    "het_job_id": "Heterogeneous job",
    "node": "Node",
    "shown_ids": "Job IDs",
    "since_seconds": "Submitted from",
    "until_seconds": "Submitted until",
    "is_running": "Running",
}


_EVERYTHING = JobFilter()


class Chip(NamedTuple):
    """One condition of a filter, and the query without it."""

    label: str
    text: str
    query: str


@dataclass(frozen=True, slots=True)
class Sorting:
    """Link the headings of a list to its orders."""

    order: ListOrder
    wanted: JobFilter

    def query(self, key: str) -> str:
        """Return the query that sorts by a column, or turns its direction."""
        column = SortColumn[key.upper()]
        is_current = column is self.order.column
        order = self.order.reversed if is_current else ListOrder(column, column.is_text)
        return render_query(self.wanted, **render_order(order))

    def state(self, key: str) -> str:
        """Return the direction in which a column is sorted; empty for the others."""
        if SortColumn[key.upper()] is not self.order.column:
            return ""
        return "ascending" if self.order.is_ascending else "descending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """One page of a list, with the queries of the pages before and after it."""

    rows: tuple[JobRow, ...]
    previous: str | None
    following: str | None
    first: str | None
    sorting: Sorting
    total: str
    note: str
    chips: tuple[Chip, ...]


def read_list_page(context: RequestContext, given: JobFilter, wanted: JobFilter) -> ListPage:
    """Read the page that the query names; a page before the first one is the first one.

    ``given`` is the filter of the query, ``wanted`` the one with its bounds.
    """
    order = parse_order(context.query)
    before = parse_position(context.query.get("before", ""), order)
    after = parse_position(context.query.get("after", ""), order)
    back = context.list_jobs(wanted, after=before, limit=PAGE_ROWS, order=order.reversed) if before else None
    if back is not None and back.next_key is not None:
        page, has_previous = JobPage(rows=back.rows[::-1], next_key=order.place(back.rows[0])), True
    else:
        after = None if before else after
        page, has_previous = context.list_jobs(wanted, after=after, limit=PAGE_ROWS, order=order), after is not None
    count = (
        context.share(("count", wanted), lambda: context.count_jobs(wanted)).value
        if has_previous or page.next_key
        else JobCount(len(page.rows))
    )
    orders = render_order(order)

    def link(**place: str | None) -> str:
        return render_query(wanted, **orders, **place)

    return ListPage(
        rows=page.rows,
        previous=link(before=_place(order, page.rows[0])) if has_previous and page.rows else None,
        following=link(after=render_position(page.next_key)) if page.next_key else None,
        first=link() if has_previous else None,
        sorting=Sorting(order, wanted),
        total=("more than " if count.is_more else "") + format_some(count.jobs, "job"),
        note=_describe_order(context, wanted, order, count),
        chips=tuple(make_chips(given)),
    )


def _count(context: RequestContext, wanted: JobFilter) -> JobCount:
    return context.share(("count", wanted), lambda: context.count_jobs(wanted)).value


def make_chips(wanted: JobFilter) -> Iterator[Chip]:
    """Yield the conditions of a filter."""
    for name, label in _LABELS.items():
        value = getattr(wanted, name)
        if value not in {None, "", ()}:
            rest: dict[str, Any] = {name: getattr(_EVERYTHING, name)}
            yield Chip(label, _show(wanted, name), render_query(replace(wanted, **rest)))
    for each in wanted.ranges:
        others = tuple(other for other in wanted.ranges if other != each)
        yield Chip(each.metric.label, label_range(each), render_query(replace(wanted, ranges=others)))


def _show(wanted: JobFilter, name: str) -> str:
    value = getattr(wanted, name)
    if name == "since_seconds":
        return render_day(value) or ""
    if name == "until_seconds":
        return last_day(wanted) or ""
    if name == "rule":
        return name_rule(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value[:3]) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    return str(value).replace("_", " ").lower() if name == "state" else str(value)


def _place(order: ListOrder, row: JobRow) -> str | None:
    return render_position(order.place(row))


def _describe_order(context: RequestContext, wanted: JobFilter, order: ListOrder, count: JobCount) -> str:
    """Say which jobs a sorted list leaves out."""
    if order.column is SortColumn.SUBMIT:
        return ""
    notes = ["jobs for which this is not known are left out"] if order.column in _MEASURED else []
    is_whole = context.viewer.is_staff and wanted == JobFilter()
    sorted_jobs = count_sorted(wanted)
    if not is_whole and (count.is_more or count.jobs > sorted_jobs):
        notes.append(f"the newest {format_count(sorted_jobs)} jobs are sorted; choose a period to see others")
    return "; ".join(notes)


_MEASURED = frozenset({SortColumn.RUN, SortColumn.CPU, SortColumn.MEMORY, SortColumn.GPU, SortColumn.TIME})
