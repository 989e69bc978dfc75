# SPDX-License-Identifier: Apache-2.0
"""Serve the JSON API: jobs, reports, charts, totals and the cluster.

Access rules are those of the pages. ``/api/openapi.json`` describes the API.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from slurmscope import __version__
from slurmscope.archive.interface import GroupBy, JobFilter, UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.metric_ranges import JobMetric
from slurmscope.jobs.pending.explanation import WaitingView
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import ViewerRole
from slurmscope.jobs.what_if import WhatIfOutcome, describe_outcome, predict
from slurmscope.portal.charts import encode_charts
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.context import Context, not_found
from slurmscope.portal.job_view import MAX_TEXT, add_script_options, find_script, parse_request
from slurmscope.portal.jobs import bound_ranges
from slurmscope.portal.pending import explain_as
from slurmscope.portal.queries import (
    MAX_DAYS,
    MAX_IDS,
    BadQuery,
    describe_bound,
    parse_cluster,
    parse_filter,
    parse_order,
    parse_position,
    render_position,
)
from slurmscope.portal.web.tables import round_fields
from slurmscope.portal.zoom import count_points, encode_zoomed, parse_part
from slurmscope.reports.page_paths import JOB_PATTERN

Text = Annotated[str, Query(max_length=200)]
Day = Annotated[str, Query(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", description="Day of submission, in UTC.")]

_RANGES = {
    f"{metric.key}_{bound}": describe_bound(metric, is_low=bound == "min")
    for metric in JobMetric
    for bound in ("min", "max")
}

RANGE_PARAMETERS: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": description}
        for name, description in _RANGES.items()
    ]
}
"""The ranges of the filter for the OpenAPI document; they are too many for parameters of a function."""


def read_filter(  # noqa: PLR0913 - the filters of the list
    context: Context,
    *,
    cluster: Text = "",
    user: Text = "",
    account: Text = "",
    partition: Text = "",
    state: Text = "",
    name: Annotated[str, Query(max_length=200, description="Part of the job name.")] = "",
    rule: Text = "",
    node: Annotated[str, Query(max_length=200, description="Name of a node on which the job ran.")] = "",
    ids: Annotated[str, Query(max_length=MAX_IDS * 22, description="Job IDs, separated by commas.")] = "",
    worst: Severity | None = None,
    since: Day = "",
    until: Day = "",
) -> JobFilter:
    """Return the filter of a request."""
    given = {"user": user, "account": account, "partition": partition, "state": state, "name": name, "rule": rule}
    given |= {"cluster": cluster, "node": node, "since": since, "until": until, "ids": ids}
    ranges = {key: text for key, text in context.query.items() if key in _RANGES}
    return parse_filter({**given, **ranges, "worst": worst.value if worst else ""})


WantedJobs = Annotated[JobFilter, Depends(read_filter)]


MAX_JOBS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """An error message."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeAnswer:
    """The user whom the portal identified; ``version`` is the release of slurmscope that serves the portal."""

    name: str
    role: ViewerRole
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAnswer:
    """One page of jobs, newest submission first; pass ``next`` as ``after`` to get the following page."""

    jobs: tuple[JobRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsAnswer:
    """Totals by group, most wasted core time first; days in order."""

    by: GroupBy
    since_seconds: int
    totals: tuple[UseTotal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLineAnswer:
    """One line of a chart; null is a gap."""

    label: str
    values: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAnswer:
    """One chart; times are Unix timestamps in seconds."""

    name: str
    title: str
    unit: str
    times: list[float]
    lines: list[ChartLineAnswer]
    reference: float | None
    reference_label: str
    is_finer: bool
    """Whether it has more points than the chart of the whole run has for this period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartsAnswer:
    """The charts of one job, and for a part of its run how fine they are."""

    charts: list[ChartAnswer]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The outcome of another request, and the same in sentences."""

    outcome: WhatIfOutcome
    sentences: tuple[str, ...]


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ApiError, "description": "The request is invalid."},
    401: {"model": ApiError, "description": "Not signed in."},
    403: {"model": ApiError, "description": "Access denied: the identity is not trusted."},
    404: {"model": ApiError, "description": "It does not exist, or the viewer has no access to it."},
    414: {"content": {"text/plain": {}}, "description": "The address is longer than 8 KiB."},
    422: {"model": ApiError, "description": "A parameter is invalid."},
    429: {"model": ApiError, "description": "Too many wrong tokens from an address, or too many requests."},
    431: {"content": {"text/plain": {}}, "description": "There are more than 100 headers, or 64 KiB of them."},
    503: {"model": ApiError, "description": "The archive is unreachable, or the server is busy."},
}
"""All error responses of the API."""

router = APIRouter(prefix="/api/v2", responses=ERRORS, tags=["version 2"])

ShownId = Annotated[
    str, Path(pattern=f"^{JOB_PATTERN}$", description="Job ID: 12, 12_3, 12+1, or 12_[3-24] for pending tasks.")
]


@router.get("/me")
def read_me(context: Context) -> MeAnswer:
    """Return the user whom the portal identified, and its release."""
    return MeAnswer(name=context.viewer.name, role=context.viewer.role, version=__version__)


@router.get("/jobs", openapi_extra=RANGE_PARAMETERS)
def list_jobs(
    context: Context,
    wanted: WantedJobs,
    after: Annotated[str, Query(max_length=700, description="Position to continue at.")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 50,
    sort: Annotated[str, Query(max_length=20, description="Column to sort by, such as cores.")] = "",
    direction: Annotated[str, Query(alias="dir", pattern="^(asc|desc)?$")] = "",
) -> JobsAnswer:
    """List jobs page by page, newest submission first; without ``since``, ranges of numbers search 30 days only.

    Sorted by another column, jobs whose value is not known are left out, and of filtered jobs the newest 20,000 are
    sorted; 5,000 with a part of a name.
    """
    order = parse_order({"sort": sort, "dir": direction})
    context.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'all users'}", owner=wanted.user)
    page = context.list_jobs(
        bound_ranges(context, wanted), after=parse_position(after, order), limit=limit, order=order
    )
    return JobsAnswer(jobs=tuple(map(round_fields, page.rows)), next=render_position(page.next_key))


@router.get("/jobs/{shown_id}", response_model=dict[str, object])
def read_job(context: Context, shown_id: ShownId) -> Response:
    """Return the full report of one job, including its findings, charts and the header for its next run."""
    report = context.find_report(shown_id)
    pending = context.find_pending(shown_id) if report.record.is_pending else None
    report = (
        report.with_reason(pending.job.reason)
        if pending
        else context.add_resubmission(add_script_options(context, report))
    )
    return Response(render_json(report), media_type="application/json")


@router.get("/jobs/{shown_id}/waiting")
def read_waiting(context: Context, shown_id: ShownId) -> WaitingView:
    """Explain a pending job: reason, expected start, position, priority, blockers, smaller requests; 404 if started."""
    pending = context.find_pending(shown_id)
    if pending is None:
        raise not_found()
    return round_fields(explain_as(context, shown_id, pending))


@router.get("/jobs/{shown_id}/script")
def read_job_script(context: Context, shown_id: ShownId) -> JobScript:
    """Return the script of one of the viewer's own jobs as Slurm stored it, and what to check in it."""
    _, script = find_script(context, shown_id)
    if script is None:
        raise not_found()
    return script


@router.get("/jobs/{shown_id}/charts", response_model=ChartsAnswer)
def read_charts(
    context: Context,
    shown_id: ShownId,
    begin: Annotated[
        str, Query(alias="from", max_length=40, description="Start of a part: ISO 8601 or Unix time.")
    ] = "",
    end: Annotated[str, Query(alias="to", max_length=40, description="End of a part: ISO 8601 or Unix time.")] = "",
    step: Annotated[
        float, Query(ge=0, le=86400, description="Seconds between two points; as fine as possible if 0.")
    ] = 0,
) -> Response:
    """Return the charts of one job or of a part of its run, for which they may be finer.

    Charts with many lines are reduced to highest, median and lowest.
    """
    report = context.find_report(shown_id)
    part = parse_part({"from": begin, "to": end}, report, UTC)
    if part is None:
        charts = [chart for chart in report.charts if chart.times]
        return Response(encode_charts(charts), media_type="application/json")
    zoomed = context.services.zoomer.zoom(context.viewer.name, report, part, count_points(part, step))
    return Response(encode_zoomed(zoomed), media_type="application/json")


@router.get("/jobs/{shown_id}/what-if")
def read_what_if(
    context: Context,
    shown_id: ShownId,
    cores: Annotated[str, Query(max_length=MAX_TEXT, description="Number of cores.")] = "",
    memory: Annotated[str, Query(max_length=MAX_TEXT, description="Memory per node, as --mem takes it: 12G.")] = "",
    time: Annotated[str, Query(max_length=MAX_TEXT, description="Time limit, as --time takes it: 1-12:00:00.")] = "",
    gpus: Annotated[str, Query(max_length=MAX_TEXT, description="Number of GPUs.")] = "",
) -> WhatIfAnswer:
    """Return what an ended job would have done with another request; what is not given is as submitted."""
    report = context.find_report(shown_id)
    request = parse_request({"cores": cores, "memory": memory, "time": time, "gpus": gpus})
    record = report.record
    if request is None:
        raise BadQuery("Give at least one of cores, memory, time and gpus.")
    if not record.has_ended or record.start_seconds is None:
        raise BadQuery("The job has not run to an end.")
    outcome = predict(report, request, context.services.wait_times.find(record.cluster, record.partition))
    return WhatIfAnswer(outcome=round_fields(outcome), sentences=describe_outcome(report, outcome))


@router.get("/totals")
def read_totals(
    context: Context,
    by: GroupBy = GroupBy.DAY,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 30,
    user: Text = "",
    account: Text = "",
    cluster: Text = "",
) -> TotalsAnswer:
    """Return totals over recent jobs that the viewer has access to."""
    since = context.since(days)
    named = parse_filter({"user": user, "account": account, "cluster": cluster})
    wanted = replace(named, since_seconds=since)
    context.audit(f"totals of {f'user {user}' if user else 'all users'}", owner=user)
    totals = context.archive.total(context.viewer, wanted, by, limit=400)
    return TotalsAnswer(by=by, since_seconds=since, totals=tuple(map(round_fields, totals)))


@router.get("/cluster")
def read_cluster(
    context: Context,
    cluster: Annotated[str, Query(max_length=200, description="Default: that of the portal's host.")] = "",
) -> ClusterNow:
    """Return the state of queue and nodes, without user names; only staff get the reasons of down and drained nodes."""
    return round_fields(context.now(parse_cluster({"cluster": cluster})))
