# SPDX-License-Identifier: Apache-2.0
"""Show one job: its page, the part of it that is renewed while it runs, its charts and its files."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from slurmscope.errors import ArchiveError
from slurmscope.model.archive import JobFilter
from slurmscope.model.report import Chart, JobReport
from slurmscope.portal.pages.visit import Visit, Visiting, absent
from slurmscope.portal.views.chart_data import encode_charts, make_data_table
from slurmscope.portal.views.job import make_job_view
from slurmscope.portal.views.queries import NUMBER
from slurmscope.portal.web.tables import make_chart_table, make_node_table, make_table_response
from slurmscope.reports.charts_svg import fold, render_chart_svg
from slurmscope.reports.html import render_html
from slurmscope.reports.json import render_json
from slurmscope.reports.pdf import render_pdf
from slurmscope.reports.text import render_text

router = APIRouter(include_in_schema=False)

_SVG_WIDTH, _SVG_HEIGHT = 720, 260


@router.get("/jobs/{shown_id}")
def show_job(visit: Visiting, shown_id: str) -> Response:
    """Show all that is known of a job; the number of an array leads to the array."""
    report = visit.read_report(shown_id)
    if report is None and _is_array(visit, shown_id):
        return RedirectResponse(f"{visit.desk.settings.base_path}/arrays/{shown_id}", 303)
    report = visit.check_report(shown_id, report)
    body = _render_once(visit, report, "body", _render_body)
    return visit.page("job.html", report=report, body=Markup(body))  # noqa: S704 - made by our own template


@router.get("/jobs/{shown_id}/live")
def show_live_part(visit: Visiting, shown_id: str) -> Response:
    """Show the part of the page that changes while the job runs."""
    report = visit.find_report(shown_id)
    return HTMLResponse(_render_once(visit, report, "renewal", _render_renewal))


@router.get("/jobs/{shown_id}/charts.json")
def send_charts(visit: Visiting, shown_id: str) -> Response:
    """Send the curves to the script on the page."""
    report = visit.find_report(shown_id)
    charts = [chart for chart in report.charts if chart.times]
    text = visit.renderings.get(report, "charts", lambda: encode_charts(charts).decode())
    return Response(text, media_type="application/json")


@router.get("/jobs/{shown_id}/charts/{name}.svg")
def send_chart_picture(visit: Visiting, shown_id: str, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for a browser without scripts."""
    chart = _find_chart(visit.find_report(shown_id), name)
    picture = render_chart_svg(chart, width=_SVG_WIDTH, height=_SVG_HEIGHT, dark=dark)
    return Response(picture, media_type="image/svg+xml")


@router.get("/jobs/{shown_id}/charts/{name}.{format}")
def send_chart_table(visit: Visiting, shown_id: str, name: str, format: str) -> Response:
    """Send every point of a chart."""
    chart = _find_chart(visit.find_report(shown_id), name)
    return make_table_response(make_chart_table(chart), _table_format(format), f"job-{shown_id}-{name}")


@router.get("/jobs/{shown_id}/nodes.{format}")
def send_node_table(visit: Visiting, shown_id: str, format: str) -> Response:
    """Send what each node did."""
    report = visit.find_report(shown_id)
    return make_table_response(make_node_table(report.summary.nodes), _table_format(format), f"job-{shown_id}-nodes")


@router.get("/jobs/{shown_id}/report.{format}")
def send_report(visit: Visiting, shown_id: str, format: str) -> Response:
    """Send the whole report as text, JSON, HTML or PDF."""
    report = visit.find_report(shown_id)
    if format not in _RENDERINGS:
        raise absent()
    media_type, render = _RENDERINGS[format]
    # Text and JSON open in the browser. HTML does not: as a file, it has none of this portal's rights.
    way = "attachment" if format in {"html", "pdf"} else "inline"
    headers = {"Content-Disposition": f'{way}; filename="job-{shown_id}.{format}"'}
    return Response(render(report), media_type=media_type, headers=headers)


_RENDERINGS: dict[str, tuple[str, Callable[[JobReport], str | bytes]]] = {
    "txt": ("text/plain; charset=utf-8", render_text),
    "json": ("application/json", render_json),
    "html": ("text/html; charset=utf-8", render_html),
    "pdf": ("application/pdf", render_pdf),
}


def _is_array(visit: Visit, shown_id: str) -> bool:
    """Tell whether this is the number of an array with tasks that the viewer may see."""
    return bool(NUMBER.match(shown_id)) and visit.has_jobs(JobFilter(array_job_id=int(shown_id)))


_Render = Callable[[Visit, JobReport, tuple[JobReport, ...]], str]


def _render_once(visit: Visit, report: JobReport, name: str, render: _Render) -> str:
    """Render what all viewers of a job see alike; which earlier runs are shown depends on who looks."""
    runs = _find_runs(visit, report)
    return (
        render(visit, report, runs) if runs else visit.renderings.get(report, name, lambda: render(visit, report, ()))
    )


def _render_body(visit: Visit, report: JobReport, runs: tuple[JobReport, ...]) -> str:
    folded = [fold(chart) for chart in report.charts if chart.times]
    charts = [(chart, make_data_table(chart)) for chart in folded]
    return visit.part("job_body.html", **_make_context(report, runs), charts=charts)


def _render_renewal(visit: Visit, report: JobReport, runs: tuple[JobReport, ...]) -> str:
    return visit.part("job_renewal.html", **_make_context(report, runs))


def _make_context(report: JobReport, runs: tuple[JobReport, ...]) -> dict[str, object]:
    record = report.record
    same_name = JobFilter(user=record.user, name=record.name[:200])
    return {"job": make_job_view(report, runs), "report": report, "same_name": same_name}


def _find_runs(visit: Visit, report: JobReport) -> tuple[JobReport, ...]:
    """Find all runs of a job that had several; where accounting does not count restarts, the archive's rows do."""
    record = report.record
    if record.restarts == 0:
        return ()
    try:
        if record.restarts is None:
            rows = visit.archive.find_shown(visit.viewer, record.shown_id, cluster=record.cluster)
            if not any(row.submit_seconds != record.submit_seconds for row in rows):
                return ()
        return visit.archive.find(visit.viewer, record.job_id, cluster=record.cluster)
    except ArchiveError:
        # The live job is worth more than the list of its earlier runs.
        return ()


def _find_chart(report: JobReport, name: str) -> Chart:
    for chart in report.charts:
        if chart.name == name and chart.times:
            return chart
    raise absent()


def _table_format(format: str) -> str:
    if format not in {"csv", "json"}:
        raise absent()
    return format
