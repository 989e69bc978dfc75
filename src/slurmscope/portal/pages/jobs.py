# SPDX-License-Identifier: Apache-2.0
"""Show lists of jobs: the first page, the list with its filters, and what was searched for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from slurmscope.model.archive import GroupBy, JobFilter, JobRow
from slurmscope.model.finding import Severity
from slurmscope.portal.pages.visit import Visit, Visiting
from slurmscope.portal.views.queries import PAGE_ROWS, SHOWN_ID, parse_filter, parse_format, parse_key, render_key
from slurmscope.portal.web.tables import Table, make_job_table, make_table_response

MOST_FILE_ROWS = 10_000
"""Rows in a file of a list: some megabytes, and a few seconds of the database's time."""
_FILE_STEP = 500
_FIRST_PAGE_ROWS = 12
_FIRST_PAGE_DAYS = 30

_WHOLE_ARRAY = re.compile(r"([0-9]{1,10})_\[[^\]]{0,100}\]?\Z", re.ASCII)

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_first_page(visit: Visiting) -> Response:
    """Show the viewer's own jobs, what could be better, and the cluster at a glance."""
    viewer, archive = visit.viewer, visit.archive
    mine = JobFilter(user=viewer.name)
    lately = JobFilter(user=viewer.name, since_seconds=visit.since(_FIRST_PAGE_DAYS))
    everybody = JobFilter(since_seconds=visit.since(7))
    if viewer.is_staff:
        visit.audit("waste of everybody")
    return visit.page(
        "index.html",
        rows=archive.list_jobs(viewer, mine, limit=_FIRST_PAGE_ROWS).rows,
        days=_FIRST_PAGE_DAYS,
        total=next(iter(archive.total(viewer, lately, GroupBy.USER, limit=1)), None),
        rules=archive.total(viewer, lately, GroupBy.RULE, limit=5),
        wasters=archive.total(viewer, everybody, GroupBy.USER, limit=8) if viewer.is_staff else (),
        critical=_find_critical(visit) if viewer.is_staff else (),
        mine=mine,
        rule_link=visit.make_rule_link(lately),
        now=visit.now(),
    )


@router.get("/jobs")
def show_jobs(visit: Visiting) -> Response:
    """Show one page of the list, or send all of it as a file."""
    wanted, form = parse_filter(visit.query), parse_format(visit.query)
    visit.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'everybody'}", owner=wanted.user)
    if form != "html":
        return make_table_response(_read_file_rows(visit, wanted), form, "jobs")
    after = parse_key(visit.query.get("after", ""))
    page = visit.archive.list_jobs(visit.viewer, wanted, after=after, limit=PAGE_ROWS)
    return visit.page(
        "jobs.html", wanted=wanted, rows=page.rows, next_key=render_key(page.next_key), is_first=after is None
    )


@router.get("/search")
def search(visit: Visiting, q: str = "") -> Response:
    """Go to the job, array, user or account of that name, else to the list of jobs whose names begin so.

    Only what the viewer may see is looked at, so what is foreign and what is absent lead to the same place.
    """
    text = q.strip()[:200]
    return RedirectResponse(visit.desk.settings.base_path + _find_place(visit, text), 303)


def read_all_rows(visit: Visit, wanted: JobFilter, most: int) -> tuple[list[JobRow], bool]:
    """Read a list page by page, up to so many rows; tell whether there were more."""
    rows: list[JobRow] = []
    for row in _iterate(visit, wanted):
        if len(rows) >= most:
            return rows, True
        rows.append(row)
    return rows, False


def _find_critical(visit: Visit) -> tuple[JobRow, ...]:
    wanted = JobFilter(worst=Severity.CRITICAL, since_seconds=visit.since(7))
    return visit.archive.list_jobs(visit.viewer, wanted, limit=8).rows


def _read_file_rows(visit: Visit, wanted: JobFilter) -> Table:
    rows, is_cut = read_all_rows(visit, wanted, MOST_FILE_ROWS)
    return make_job_table(rows, is_cut=is_cut)


def _iterate(visit: Visit, wanted: JobFilter) -> Iterator[JobRow]:
    page = visit.archive.list_jobs(visit.viewer, wanted, limit=_FILE_STEP)
    yield from page.rows
    while page.next_key is not None:
        page = visit.archive.list_jobs(visit.viewer, wanted, after=page.next_key, limit=_FILE_STEP)
        yield from page.rows


def _find_place(visit: Visit, text: str) -> str:
    if not text or not text.isprintable():
        return "/jobs"
    if match := _WHOLE_ARRAY.match(text):
        return f"/arrays/{match[1]}"
    if SHOWN_ID.match(text) and (place := _find_job(visit, text)):
        return place
    for kind, wanted in (("users", JobFilter(user=text)), ("accounts", JobFilter(account=text))):
        if visit.has_jobs(wanted):
            return f"/{kind}/{quote(text, safe='')}"
    return "/jobs?" + urlencode({"name": text})


def _find_job(visit: Visit, shown_id: str) -> str:
    """Return where a job or array of this number is shown, or nothing."""
    if visit.read_report(shown_id) is not None:
        return f"/jobs/{quote(shown_id, safe='+')}"
    is_array = shown_id.isdigit() and visit.has_jobs(JobFilter(array_job_id=int(shown_id)))
    return f"/arrays/{shown_id}" if is_array else ""
