# SPDX-License-Identifier: Apache-2.0
"""Serve the addresses by which other programs request pages of a job: those of the older portal, and of Open OnDemand.

Open OnDemand shows charts beside a job, as panels of Grafana::

    /d-solo/slurmscope/job?panelId=1&var-cluster=alpha&var-host=n1&var-jobid=4711    one chart, in a frame
    /d/slurmscope/job?var-cluster=alpha&var-host=n1&var-jobid=4711                   the job page, in the window
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from slurmscope.archive.interface import JobFilter
from slurmscope.jobs.render.compat import render_seed_text, render_seed_usage
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.portal.api import ERRORS
from slurmscope.portal.charts import find_chart
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.web.middleware import FRAMED
from slurmscope.reports.page_paths import add_cluster, job_path

MAX_JOBS = 1000

_CHARTS = {
    "jobs_rss": "memory",
    "jobs_cpu_percent": "cpu",
    "jobs_read_mb": "read",
    "jobs_write_mb": "write",
    "jobs_user_time": "cpu_split",
    "jobs_system_time": "cpu_split",
    "jobs_cpu_time_core": "cpu_core",
}
"""Our charts by the names of the older portal's metrics."""

_MODES = {"jobs_user_time": "user", "jobs_system_time": "system"}
"""The line of the chart that such a metric was."""

router = APIRouter()

PANELS: Mapping[str, tuple[str, ...]] = {
    "1": ("cpu",),
    "2": ("memory",),
    "3": ("gpu_busy", "gpu"),
    "4": ("gpu_held_memory", "gpu_memory"),
}
"""Our charts by the panel numbers of deploy/ondemand/cluster.yml: cpu, memory, gpu-util and gpu-memory."""

_WIDTH, _HEIGHT = 640, 240
_JOB = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedUser:
    """The uid of a user, and job IDs."""

    user: str
    uid: int | None
    jobs: tuple[int, ...]


@router.get("/mail/{job_id}", include_in_schema=False)
def send_mail_text(context: Context, job_id: str) -> Response:
    """Send the mail text; its last line is WARNING=true or WARNING=false."""
    report = context.find_report(job_id)
    short = f"/pdf/{job_id}"
    path = add_cluster(short, context.link_cluster(report.record.cluster)) or short
    return PlainTextResponse(render_seed_text(report, pdf_url=f"{context.public_url}{path}"))


@router.get("/plot/{job_id}/{metric}", include_in_schema=False)
async def send_plot(context: Context, job_id: str, metric: str) -> Response:
    """Send the chart of one metric as PNG."""
    report = await run_in_threadpool(context.find_report, job_id)
    chart = find_chart(report.charts, _CHARTS.get(metric, ""))
    if mode := _MODES.get(metric):
        lines = tuple(line for line in chart.lines if line.label == mode)
        chart = replace(chart, title=f"{mode.capitalize()} time", lines=lines)
    return Response(await context.documents.chart(chart), media_type="image/png")


@router.get("/pie/{job_id}", include_in_schema=False)
@router.get("/pie/{job_id}/", include_in_schema=False)
async def send_pie(context: Context, job_id: str) -> Response:
    """Send a pie chart of system and user time as PNG."""
    report = await run_in_threadpool(context.find_report, job_id)
    if report.summary.cpu.user_seconds is None or report.summary.cpu.system_seconds is None:
        raise not_found()
    return Response(await context.documents.pie(report), media_type="image/png")


@router.get("/pdf/{job_id}", include_in_schema=False)
async def send_pdf(context: Context, job_id: str) -> Response:
    """Send the report as PDF."""
    report = await run_in_threadpool(context.find_report, job_id)
    headers = {"Content-Disposition": f'inline; filename="{job_id}_summary.pdf"'}
    return Response(await context.documents.pdf(report), media_type="application/pdf", headers=headers)


@router.get("/api/v1/jobs/{job_id}/usage", response_model=dict[str, object], responses=ERRORS, tags=["version 1"])
def send_usage(context: Context, job_id: Annotated[str, Path(max_length=100)]) -> Response:
    """Return what a finished job requested and used, in the format of the older portal."""
    report = _find_for_api(context, job_id)
    if not report.record.has_ended:
        raise HTTPException(404, f"Job {job_id} is not finished")
    return JSONResponse(render_seed_usage(report))


@router.get("/api/v1/users/{name}", response_model=SeedUser, responses=ERRORS, tags=["version 1"])
def send_user(context: Context, name: Annotated[str, Path(max_length=200)]) -> SeedUser:
    """Return the uid and the newest jobs of a user, as far as the viewer has access."""
    wanted = JobFilter(user=name)
    is_self = name == context.viewer.name
    if not name.isprintable() or not (is_self or context.viewer.is_staff or context.has_jobs(wanted)):
        raise HTTPException(404, f"User {name} does not exist")
    uid = context.services.find_uid(name)
    rows = context.archive.list_jobs(context.viewer, wanted, limit=MAX_JOBS).rows
    if uid is None and not rows:
        raise HTTPException(404, f"User {name} does not exist")
    context.audit(f"user {name}", owner=name)
    return SeedUser(user=name, uid=uid, jobs=tuple(row.job_id for row in rows))


def _find_for_api(context: RequestContext, job_id: str) -> JobReport:
    try:
        return context.find_report(job_id)
    except HTTPException as error:
        raise HTTPException(404, f"Job {job_id} does not exist") from error


@router.get(FRAMED, include_in_schema=False)
def send_panel(context: Context) -> Response:
    """Draw one chart of a job on one node."""
    query = context.request.query_params
    report = context.audit_report(query.get("var-jobid", ""), _read_report(context))
    chart = _find_chart(report, query.get("panelId", ""))
    image = render_chart_svg(
        _of_node(chart, query.get("var-host", "")),
        width=_WIDTH,
        height=_HEIGHT,
        dark=query.get("theme") == "dark",
        zone=context.zone,
    )
    return Response(image, media_type="image/svg+xml")


@router.get("/d/slurmscope/job", include_in_schema=False)
def show_job(context: Context) -> Response:
    """Redirect to the page of the job, which audits the access."""
    report = _read_report(context)
    if report is None:
        raise not_found()
    path = job_path(report.record.shown_id, context.link_cluster(report.record.cluster))
    return RedirectResponse(f"{context.base_path}{path}", status_code=303)


def _read_report(context: RequestContext) -> JobReport | None:
    query = context.request.query_params
    job_id = query.get("var-jobid", "")
    return context.read_report_of(query.get("var-cluster", ""), job_id) if _JOB.fullmatch(job_id) else None


def _find_chart(report: JobReport, panel: str) -> Chart:
    charts = {chart.name: chart for chart in report.charts if chart.times}
    for name in PANELS.get(panel, ()):
        if name in charts:
            return charts[name]
    raise not_found()


def _of_node(chart: Chart, node: str) -> Chart:
    """Return the chart with the lines of a node; with all where none has its name, as for a job on one node."""
    lines = tuple(line for line in chart.lines if line.label == node or line.label.startswith(f"{node} "))
    return replace(chart, lines=lines) if lines else chart
