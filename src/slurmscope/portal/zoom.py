# SPDX-License-Identifier: Apache-2.0
"""Show a part of a job's run, with finer data where there are any; works without scripts."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render.svg.charts import fold
from slurmscope.jobs.report import MAX_CHART_POINTS, JobReport
from slurmscope.portal.charts import make_data_table, make_zoom_view, parse_part, show_heat_map, whole_run
from slurmscope.portal.context import Context, RequestContext
from slurmscope.reports.zoom import ZoomedReport

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/zoom")
def show_zoom(context: Context, shown_id: str) -> Response:
    """Show the charts and heat maps of a part of the run; without a choice, of all of it."""
    report = context.find_report(shown_id)
    run = whole_run(report)
    part = parse_part(context.query, report, context.zone) or run
    zoomed = context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)
    charts = [fold(chart) for chart in zoomed.report.charts]
    return context.page(
        "zoom.html",
        report=zoomed.report,
        part=part,
        zoom=make_zoom_view(zoomed, run, context.zone, context.zone_name),
        charts=[(chart, make_data_table(chart)) for chart in charts],
        heat_maps=[show_heat_map(heat_map) for heat_map in find_heat_maps(zoomed.report)],
    )


def find_zoomed(context: RequestContext, shown_id: str) -> ZoomedReport | JobReport:
    """Return the report of a job, or the part of it that the query chooses."""
    report = context.find_report(shown_id)
    part = parse_part(context.query, report, context.zone)
    if part is None:
        return report
    return context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)


def find_charted(context: RequestContext, shown_id: str) -> JobReport:
    """Return the report whose charts are to be drawn."""
    found = find_zoomed(context, shown_id)
    return found.report if isinstance(found, ZoomedReport) else found
