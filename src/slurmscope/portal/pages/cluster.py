# SPDX-License-Identifier: Apache-2.0
"""Show the cluster: as it is now, and what was wasted on it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.model.archive import GroupBy, JobFilter
from slurmscope.model.report import Chart
from slurmscope.portal.pages.visit import Visit, Visiting, absent
from slurmscope.portal.views.chart_data import encode_charts, make_data_table
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queries import BadQuery, parse_days, parse_format
from slurmscope.portal.web.tables import (
    Table,
    make_chart_table,
    make_partition_table,
    make_table_response,
    make_total_table,
)
from slurmscope.reports.charts_svg import render_chart_svg

router = APIRouter(include_in_schema=False)

_WASTE_GROUPS = (GroupBy.USER, GroupBy.ACCOUNT, GroupBy.RULE, GroupBy.PARTITION)


@router.get("/cluster")
def show_cluster(visit: Visiting) -> Response:
    """Show queue, nodes, partitions and the last day; why nodes are away is for staff."""
    now, form = visit.now(), parse_format(visit.query)
    if form != "html":
        name = visit.query.get("table", "partitions")
        return make_table_response(_choose_table(now, name), form, f"cluster-{name}")
    charts = [(chart, make_data_table(chart)) for chart in visit.desk.cluster_charts()]
    return visit.page("cluster.html", now=now, charts=charts)


@router.get("/cluster/charts.json")
def send_cluster_charts(visit: Visiting) -> Response:
    """Send the curves to the script on the page."""
    return Response(encode_charts(visit.desk.cluster_charts()), media_type="application/json")


@router.get("/cluster/charts/{name}.svg")
def send_cluster_picture(visit: Visiting, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for a browser without scripts."""
    picture = render_chart_svg(_find_chart(visit, name), width=720, height=260, dark=dark)
    return Response(picture, media_type="image/svg+xml")


@router.get("/cluster/charts/{name}.{format}")
def send_cluster_chart_table(visit: Visiting, name: str, format: str) -> Response:
    """Send every point of a chart."""
    if format not in {"csv", "json"}:
        raise absent()
    return make_table_response(make_chart_table(_find_chart(visit, name)), format, f"cluster-{name}-day")


@router.get("/waste")
def show_waste(visit: Visiting) -> Response:
    """Show to staff whose jobs held most without using it, and what the rules found most."""
    if not visit.viewer.is_staff:
        raise HTTPException(403, "This page is for those who support the users of this cluster.")
    days, form = parse_days(visit.query), parse_format(visit.query)
    visit.audit("waste of everybody")
    lately = JobFilter(since_seconds=visit.since(days))
    if form != "html":
        by = _parse_group(visit.query.get("table", "user"))
        totals = visit.archive.total(visit.viewer, lately, by, limit=1000)
        return make_table_response(make_total_table(totals), form, f"waste-{by}")
    groups = {by: visit.archive.total(visit.viewer, lately, by, limit=20) for by in _WASTE_GROUPS}
    return visit.page("waste.html", days=days, groups=groups, rule_link=visit.make_rule_link(lately))


def _parse_group(text: str) -> GroupBy:
    if text not in set(_WASTE_GROUPS):
        raise BadQuery("Waste is summed up by user, account, rule or partition.")
    return GroupBy(text)


def _find_chart(visit: Visit, name: str) -> Chart:
    for chart in visit.desk.cluster_charts():
        if chart.name == name:
            return chart
    raise absent()


def _choose_table(now: ClusterNow, name: str) -> Table:
    if name == "partitions":
        return make_partition_table(now.partitions)
    counts = {"jobs": now.jobs_by_state, "reasons": now.pending_by_reason, "nodes": now.nodes_by_state}
    if name not in counts:
        raise BadQuery("The cluster's tables are partitions, jobs, reasons and nodes.")
    return Table(columns=("name", "count"), rows=tuple((counts[name] or {}).items()))
