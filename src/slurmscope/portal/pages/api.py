# SPDX-License-Identifier: Apache-2.0
"""Answer programs: jobs, reports, curves, sums and the cluster as JSON.

Whoever asks sees what the same person sees on the pages. ``/api/openapi.json`` describes it all.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from slurmscope.model.archive import GroupBy, JobFilter
from slurmscope.model.finding import Severity
from slurmscope.portal.pages.api_schemas import ERRORS, ChartsAnswer, JobsAnswer, TotalsAnswer
from slurmscope.portal.pages.visit import Visiting
from slurmscope.portal.views.chart_data import encode_charts
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queries import MAX_DAYS, parse_filter, parse_key, render_key
from slurmscope.reports.json import render_json

MOST_JOBS = 500

router = APIRouter(prefix="/api/v2", responses=ERRORS, tags=["version 2"])

ShownId = Annotated[
    str, Path(pattern=r"^[0-9]{1,10}([_+][0-9]{1,10})?$", description="A job's number: 12, 12_3, 12+1.")
]
Text = Annotated[str, Query(max_length=200)]
Day = Annotated[str, Query(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", description="A day of submission, in UTC.")]


@router.get("/jobs")
def list_jobs(  # noqa: PLR0913 - the filters of the list
    visit: Visiting,
    *,
    user: Text = "",
    account: Text = "",
    partition: Text = "",
    state: Text = "",
    name: Annotated[str, Query(max_length=200, description="What the job's name begins with.")] = "",
    rule: Text = "",
    worst: Severity | None = None,
    since: Day = "",
    until: Day = "",
    after: Annotated[str, Query(pattern=r"^([0-9]{1,10}-[0-9]{1,10})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 50,
) -> JobsAnswer:
    """List jobs, newest submission first, a page at a time."""
    given = {"user": user, "account": account, "partition": partition, "state": state, "name": name, "rule": rule}
    wanted = parse_filter({**given, "worst": worst.value if worst else "", "since": since, "until": until})
    visit.audit(f"jobs of {f'user {user}' if user else 'everybody'}", owner=user)
    page = visit.archive.list_jobs(visit.viewer, wanted, after=parse_key(after), limit=limit)
    return JobsAnswer(jobs=page.rows, next=render_key(page.next_key))


@router.get("/jobs/{shown_id}", response_model=dict[str, object])
def read_job(visit: Visiting, shown_id: ShownId) -> Response:
    """Tell everything about one job, its findings and curves included."""
    return Response(render_json(visit.find_report(shown_id)), media_type="application/json")


@router.get("/jobs/{shown_id}/charts", response_model=ChartsAnswer)
def read_charts(visit: Visiting, shown_id: ShownId) -> Response:
    """Give the curves of one job; of many lines the highest, the median and the lowest."""
    charts = [chart for chart in visit.find_report(shown_id).charts if chart.times]
    return Response(encode_charts(charts), media_type="application/json")


@router.get("/totals")
def read_totals(
    visit: Visiting,
    by: GroupBy = GroupBy.DAY,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 30,
    user: Text = "",
    account: Text = "",
) -> TotalsAnswer:
    """Sum up the jobs of the last days that the viewer may see."""
    since = visit.since(days)
    named = parse_filter({"user": user, "account": account})
    wanted = JobFilter(user=named.user, account=named.account, since_seconds=since)
    visit.audit(f"sums of {f'user {user}' if user else 'everybody'}", owner=user)
    totals = visit.archive.total(visit.viewer, wanted, by, limit=400)
    return TotalsAnswer(by=by, since_seconds=since, totals=totals)


@router.get("/cluster")
def read_cluster(visit: Visiting) -> ClusterNow:
    """Tell the state of queue and nodes, without anybody's name; why nodes are away is for staff."""
    return visit.now()
