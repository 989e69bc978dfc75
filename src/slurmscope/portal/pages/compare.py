# SPDX-License-Identifier: Apache-2.0
"""Compare several jobs, with their charts over run time."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.report import JobReport
from slurmscope.portal.pages.context import Context, RequestContext, not_found
from slurmscope.portal.views.chart_data import encode_charts, make_data_table, overlay_charts
from slurmscope.portal.views.compare import compare_reports
from slurmscope.portal.views.page_paths import parse_job
from slurmscope.portal.views.queries import parse_format
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.reports.svg.charts import render_chart_svg

MAX_JOBS = 6

router = APIRouter(include_in_schema=False)

_SEPARATOR = re.compile(r"[\s,;]+")


@router.get("/compare")
def show_comparison(context: Context) -> Response:
    """Show a table of the jobs and their overlaid charts; without jobs, only the form."""
    table_format, reports = parse_format(context.query), _read_reports(context)
    rows = compare_reports(reports)
    if table_format != "html":
        columns = ("what", *(f"job {_name(context, report)}" for report in reports))
        return make_table_response(
            Table(columns=columns, rows=[(row.label, *row.texts) for row in rows]), table_format, "jobs"
        )
    charts = [(chart, make_data_table(chart, is_run_time=True)) for chart in overlay_charts(reports)]
    job_query = urlencode([("job", _name(context, report)) for report in reports])
    names = [_name(context, report) for report in reports]
    return context.page("compare.html", reports=reports, names=names, rows=rows, charts=charts, job_query=job_query)


@router.get("/compare/charts.json")
def send_compared_charts(context: Context) -> Response:
    """Send the overlaid charts to the script on the page."""
    return Response(encode_charts(overlay_charts(_read_reports(context))), media_type="application/json")


@router.get("/compare/charts/{name}.svg")
def send_compared_image(context: Context, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one overlaid chart for browsers without scripts."""
    for chart in overlay_charts(_read_reports(context)):
        if chart.name == name:
            return Response(render_chart_svg(chart, width=720, height=260, dark=dark), media_type="image/svg+xml")
    raise not_found()


def _read_reports(context: RequestContext) -> list[JobReport]:
    """Read the given jobs, each once, in the given order."""
    named = " ".join(context.request.query_params.getlist("job"))[:500]
    ids = list(dict.fromkeys(part for part in _SEPARATOR.split(named) if part))
    if len(ids) > MAX_JOBS:
        raise BadQuery(f"At most {MAX_JOBS} jobs can be compared at once.")
    return [_read_report(context, name) for name in ids]


def _read_report(context: RequestContext, name: str) -> JobReport:
    cluster, shown_id = parse_job(name)
    return context.audit_report(shown_id, context.read_report_of(cluster, shown_id))


def _name(context: RequestContext, report: JobReport) -> str:
    return context.name_job(report.record.shown_id, report.record.cluster)
