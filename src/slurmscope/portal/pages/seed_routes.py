# SPDX-License-Identifier: Apache-2.0
"""Answer on the addresses of the older job portal whose place this one takes, with its names and right status codes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from slurmscope.model.archive import JobFilter
from slurmscope.model.report import Chart, JobReport
from slurmscope.portal.pages.api_schemas import ERRORS, SeedUser
from slurmscope.portal.pages.visit import Visit, Visiting, absent
from slurmscope.reports.figures_svg import render_use_pie_svg
from slurmscope.reports.pdf import render_chart_png, render_pdf, render_svg_png
from slurmscope.reports.seed_json import render_seed_usage
from slurmscope.reports.seed_text import render_seed_text

MOST_JOBS = 1000

_CHARTS = {
    "jobs_rss": "memory",
    "jobs_cpu_percent": "cpu",
    "jobs_read_mb": "read",
    "jobs_write_mb": "write",
    "jobs_user_time": "cpu_split",
    "jobs_system_time": "cpu_split",
    "jobs_cpu_time_core": "cpu_core",
}
"""What the charts of ours are called that show the older portal's metrics."""

router = APIRouter()


@router.get("/mail/{job_id}", include_in_schema=False)
def send_mail_text(visit: Visiting, job_id: str) -> Response:
    """Send the text for a mail; its last line is WARNING=true or WARNING=false."""
    report = visit.find_report(job_id)
    return PlainTextResponse(render_seed_text(report, pdf_url=f"{visit.public_url}/pdf/{job_id}"))


@router.get("/plot/{job_id}/{metric}", include_in_schema=False)
def send_plot(visit: Visiting, job_id: str, metric: str) -> Response:
    """Send the picture of one metric."""
    chart = _find_chart(visit.find_report(job_id), metric)
    return Response(render_chart_png(chart), media_type="image/png")


@router.get("/pie/{job_id}", include_in_schema=False)
@router.get("/pie/{job_id}/", include_in_schema=False)
def send_pie(visit: Visiting, job_id: str) -> Response:
    """Send the picture of system against user time."""
    report = visit.find_report(job_id)
    if report.summary.cpu.user_seconds is None or report.summary.cpu.system_seconds is None:
        raise absent()
    return Response(render_svg_png(render_use_pie_svg(report)), media_type="image/png")


@router.get("/pdf/{job_id}", include_in_schema=False)
def send_pdf(visit: Visiting, job_id: str) -> Response:
    """Send the report as PDF."""
    report = visit.find_report(job_id)
    headers = {"Content-Disposition": f'inline; filename="{job_id}_summary.pdf"'}
    return Response(render_pdf(report), media_type="application/pdf", headers=headers)


@router.get("/api/v1/jobs/{job_id}/usage", response_model=dict[str, object], responses=ERRORS, tags=["version 1"])
def send_usage(visit: Visiting, job_id: Annotated[str, Path(max_length=100)]) -> Response:
    """Tell what a finished job asked for and used, in the older portal's words."""
    report = _find_for_api(visit, job_id)
    if not report.record.has_ended:
        raise HTTPException(404, f"Job {job_id} is not finished")
    return JSONResponse(render_seed_usage(report))


@router.get("/api/v1/users/{name}", response_model=SeedUser, responses=ERRORS, tags=["version 1"])
def send_user(visit: Visiting, name: Annotated[str, Path(max_length=200)]) -> SeedUser:
    """Tell a user's number and newest jobs, as far as the viewer may see them."""
    wanted = JobFilter(user=name)
    is_self = name == visit.viewer.name
    if not name.isprintable() or not (is_self or visit.viewer.is_staff or visit.has_jobs(wanted)):
        raise HTTPException(404, f"User {name} does not exist")
    uid = visit.desk.find_uid(name)
    rows = visit.archive.list_jobs(visit.viewer, wanted, limit=MOST_JOBS).rows
    if uid is None and not rows:
        raise HTTPException(404, f"User {name} does not exist")
    visit.audit(f"user {name}", owner=name)
    return SeedUser(user=name, uid=uid, jobs=tuple(row.job_id for row in rows))


def _find_for_api(visit: Visit, job_id: str) -> JobReport:
    try:
        return visit.find_report(job_id)
    except HTTPException as error:
        raise HTTPException(404, f"Job {job_id} does not exist") from error


def _find_chart(report: JobReport, metric: str) -> Chart:
    wanted = _CHARTS.get(metric)
    for chart in report.charts:
        if chart.name == wanted and chart.times:
            return chart
    raise absent()
