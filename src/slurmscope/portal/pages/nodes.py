# SPDX-License-Identifier: Apache-2.0
"""Show one node: its state, the jobs on it that the viewer may see, their curves, and when it was down.

Other people's nodes are like absent ones: a user may see a node on which one of their jobs has run.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.model.nodes import Node
from slurmscope.model.report import Chart
from slurmscope.portal.pages.context import Context, RequestContext, not_found
from slurmscope.portal.views.chart_data import encode_charts, make_data_table
from slurmscope.portal.views.node import find_node, list_node_facts, make_node_charts
from slurmscope.reports.charts_svg import render_chart_svg

router = APIRouter(include_in_schema=False)

_ROWS = 25
_DRAWN_JOBS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Hold a node that the viewer may see; ``node`` is None if the controller does not report it now."""

    name: str
    node: Node | None
    running: tuple[JobRow, ...]
    ended: tuple[JobRow, ...]


@router.get("/nodes/{name}")
def show_node(context: Context, name: str) -> Response:
    """Show a node."""
    found = _find(context, name)
    is_staff = context.viewer.is_staff
    return context.page(
        "node.html",
        name=name,
        facts=list_node_facts(found.node, is_staff=is_staff) if found.node else (),
        running=found.running,
        ended=found.ended,
        wanted=JobFilter(node=name),
        charts=[(chart, make_data_table(chart)) for chart in _charts(context, found)],
        # Reasons are written by staff for staff.
        events=context.backend.cluster.node_events(name) if is_staff else None,
    )


@router.get("/nodes/{name}/charts.json")
def send_node_charts(context: Context, name: str) -> Response:
    """Send the charts to the script on the page."""
    return Response(encode_charts(_charts(context, _find(context, name))), media_type="application/json")


@router.get("/nodes/{name}/charts/{chart_name}.svg")
def send_node_image(context: Context, name: str, chart_name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for browsers without scripts."""
    for chart in _charts(context, _find(context, name)):
        if chart.name == chart_name:
            return Response(render_chart_svg(chart, dark=dark), media_type="image/svg+xml")
    raise not_found()


def has_node(context: RequestContext, name: str) -> bool:
    """Return whether there is a node of this name that the viewer may see."""
    if not 0 < len(name) <= 255 or not name.isprintable():
        return False
    if context.has_jobs(JobFilter(node=name)):
        return True
    return context.viewer.is_staff and find_node(context.backend.queue.facts(()).nodes, name) is not None


def _find(context: RequestContext, name: str) -> _Found:
    if not has_node(context, name):
        raise not_found()
    context.audit(f"node {name}")

    def list_jobs(*, is_running: bool) -> tuple[JobRow, ...]:
        wanted = JobFilter(node=name, is_running=is_running)
        return context.archive.list_jobs(context.viewer, wanted, limit=_ROWS).rows

    node = find_node(context.backend.queue.facts(()).nodes, name)
    return _Found(name=name, node=node, running=list_jobs(is_running=True), ended=list_jobs(is_running=False))


def _charts(context: RequestContext, found: _Found) -> tuple[Chart, ...]:
    reports = [
        report
        for row in found.running[:_DRAWN_JOBS]
        for report in context.archive.find(context.viewer, row.job_id, cluster=row.cluster)[:1]
    ]
    return make_node_charts(found.name, reports, found.node)
