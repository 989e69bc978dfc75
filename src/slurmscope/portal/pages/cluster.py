# SPDX-License-Identifier: Apache-2.0
"""Show the state of the cluster."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.report import Chart
from slurmscope.portal.pages.context import Context, RequestContext, not_found
from slurmscope.portal.views.chart_data import encode_charts, make_data_table
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queries import parse_format
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.portal.web.tables import (
    Table,
    make_chart_table,
    make_partition_table,
    make_table_response,
)
from slurmscope.reports.charts_svg import render_chart_svg

router = APIRouter(include_in_schema=False)


@router.get("/cluster")
def show_cluster(context: Context) -> Response:
    """Show queue, nodes, partitions and the last 24 hours; staff also see down and drained nodes."""
    now, table_format = context.now(), parse_format(context.query)
    if table_format != "html":
        name = context.query.get("table", "partitions")
        return make_table_response(_choose_table(now, name), table_format, f"cluster-{name}")
    charts = [(chart, make_data_table(chart)) for chart in context.backend.cluster_charts()]
    return context.page("cluster.html", now=now, charts=charts)


@router.get("/cluster/charts.json")
def send_cluster_charts(context: Context) -> Response:
    """Send the charts to the script on the page."""
    return Response(encode_charts(context.backend.cluster_charts()), media_type="application/json")


@router.get("/cluster/charts/{name}.svg")
def send_cluster_image(context: Context, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for browsers without scripts."""
    image = render_chart_svg(_find_chart(context, name), width=720, height=260, dark=dark)
    return Response(image, media_type="image/svg+xml")


@router.get("/cluster/charts/{name}.{format}")
def send_cluster_chart_table(context: Context, name: str, format: str) -> Response:
    """Send all points of a chart."""
    if format not in {"csv", "json"}:
        raise not_found()
    return make_table_response(make_chart_table(_find_chart(context, name)), format, f"cluster-{name}-day")


def _find_chart(context: RequestContext, name: str) -> Chart:
    for chart in context.backend.cluster_charts():
        if chart.name == name:
            return chart
    raise not_found()


def _choose_table(now: ClusterNow, name: str) -> Table:
    if name == "partitions":
        return make_partition_table(now.partitions)
    counts = {"jobs": now.jobs_by_state, "reasons": now.pending_by_reason, "nodes": now.nodes_by_state}
    if name not in counts:
        raise BadQuery("The table must be partitions, jobs, reasons or nodes.")
    return Table(columns=("name", "count"), rows=tuple((counts[name] or {}).items()))
