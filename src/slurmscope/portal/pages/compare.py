# SPDX-License-Identifier: Apache-2.0
"""Show several jobs beside each other, their curves on one axis of run time."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.report import JobReport
from slurmscope.portal.pages.visit import Visit, Visiting, absent
from slurmscope.portal.views.chart_data import encode_charts, make_data_table, overlay_charts
from slurmscope.portal.views.compare import compare_reports
from slurmscope.portal.views.queries import BadQuery, parse_format
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.reports.charts_svg import render_chart_svg

MOST_JOBS = 6

router = APIRouter(include_in_schema=False)

_BETWEEN = re.compile(r"[\s,;]+")


@router.get("/compare")
def show_comparison(visit: Visiting) -> Response:
    """Show a table of the jobs and their overlaid charts; without jobs, the form to name them."""
    form, reports = parse_format(visit.query), _read_reports(visit)
    rows = compare_reports(reports)
    if form != "html":
        columns = ("what", *(f"job {report.record.shown_id}" for report in reports))
        return make_table_response(Table(columns=columns, rows=[(row.label, *row.texts) for row in rows]), form, "jobs")
    charts = [(chart, make_data_table(chart, is_run_time=True)) for chart in overlay_charts(reports)]
    job_query = urlencode([("job", report.record.shown_id) for report in reports])
    return visit.page("compare.html", reports=reports, rows=rows, charts=charts, job_query=job_query)


@router.get("/compare/charts.json")
def send_compared_charts(visit: Visiting) -> Response:
    """Send the overlaid curves to the script on the page."""
    return Response(encode_charts(overlay_charts(_read_reports(visit))), media_type="application/json")


@router.get("/compare/charts/{name}.svg")
def send_compared_picture(visit: Visiting, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one overlaid chart for a browser without scripts."""
    for chart in overlay_charts(_read_reports(visit)):
        if chart.name == name:
            return Response(render_chart_svg(chart, width=720, height=260, dark=dark), media_type="image/svg+xml")
    raise absent()


def _read_reports(visit: Visit) -> list[JobReport]:
    """Read the jobs that are named, each once, in the order in which they are named."""
    named = " ".join(visit.request.query_params.getlist("job"))[:500]
    ids = list(dict.fromkeys(part for part in _BETWEEN.split(named) if part))
    if len(ids) > MOST_JOBS:
        raise BadQuery(f"At most {MOST_JOBS} jobs can be compared at once.")
    return [visit.find_report(shown_id) for shown_id in ids]
