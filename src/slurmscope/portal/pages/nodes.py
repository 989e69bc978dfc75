# SPDX-License-Identifier: Apache-2.0
"""Show one node: its state, the jobs on it that the viewer may see, their curves, and when it was down.

Other people's nodes are like absent ones: a user may see a node on which one of their jobs has run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.model.node_events import NodeEvent
from slurmscope.model.nodes import Node
from slurmscope.model.report import Chart
from slurmscope.portal.pages.context import Context, RequestContext, not_found, require_one_cluster
from slurmscope.portal.views.chart_data import encode_charts, make_data_table
from slurmscope.portal.views.node import find_node, list_node_facts, make_node_charts
from slurmscope.reports.svg.charts import render_chart_svg

router = APIRouter(include_in_schema=False)

_ROWS = 25
_DRAWN_JOBS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Hold a node that the viewer may see; ``node`` is None if the controller does not report it now."""

    name: str
    cluster: str
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
        cluster=found.cluster,
        facts=list_node_facts(found.node, is_staff=is_staff) if found.node else (),
        running=found.running,
        ended=found.ended,
        wanted=JobFilter(cluster=context.link_cluster(found.cluster), node=name),
        charts=[(chart, make_data_table(chart)) for chart in _charts(context, found)],
        events=read_events(context, found.cluster, name),
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
            return Response(render_chart_svg(chart, dark=dark, zone=context.zone), media_type="image/svg+xml")
    raise not_found()


def has_node(context: RequestContext, name: str) -> bool:
    """Return whether there is a node of this name that the viewer may see, in any cluster."""
    return bool(_list_clusters(context, name))


def read_events(context: RequestContext, cluster: str, name: str) -> tuple[NodeEvent, ...] | None:
    """Return when a node was down or drained; reasons are written by staff for staff."""
    live = context.find_live(cluster)
    is_shown = context.viewer.is_staff and live is not None
    return context.backend.cluster.node_events(live or "", name) if is_shown else None


def _list_clusters(context: RequestContext, name: str) -> list[str]:
    """Return the clusters with a node of this name that the viewer may see; while there is only one, it is empty."""
    if not 0 < len(name) <= 255 or not name.isprintable():
        return []
    known = context.backend.jobs.clusters()
    several = sorted({*known, *context.backend.cluster.names()})
    candidates = [context.cluster] if context.cluster else several if len(known) > 1 else [""]
    reported = _read_nodes(context, name, candidates) if context.viewer.is_staff else {}
    return [cluster for cluster in candidates if cluster in reported or _has_run(context, cluster, name)]


def _has_run(context: RequestContext, cluster: str, name: str) -> bool:
    """Return whether a job that the viewer may see has run on a node; queues are not read, they name no nodes."""
    return bool(context.archive.list_jobs(context.viewer, JobFilter(cluster=cluster, node=name), limit=1).rows)


def _read_nodes(context: RequestContext, name: str, clusters: Iterable[str]) -> dict[str, Node]:
    """Return what the controllers of these clusters report about their nodes of a name."""
    live = {cluster: other for cluster in clusters if (other := context.find_live(cluster)) is not None}
    nodes = context.backend.cluster.nodes(tuple(live.values()))
    found = {cluster: find_node(nodes.get(other), name) for cluster, other in live.items()}
    return {cluster: node for cluster, node in found.items() if node is not None}


def find_visible_node(context: RequestContext, name: str) -> tuple[str, Node | None]:
    """Return cluster and state of a node that the viewer may see, and audit the access; respond 404 for others.

    The state is None if the controller does not report the node now.
    """
    clusters = _list_clusters(context, name)
    if not clusters:
        raise not_found()
    require_one_cluster("node", name, set(clusters))
    cluster = clusters[0]
    context.audit(f"node {context.name_job(name, cluster)}")
    return cluster, _read_nodes(context, name, [cluster]).get(cluster)


def _find(context: RequestContext, name: str) -> _Found:
    cluster, node = find_visible_node(context, name)

    def list_jobs(*, is_running: bool) -> tuple[JobRow, ...]:
        wanted = JobFilter(cluster=cluster, node=name, is_running=is_running)
        return context.archive.list_jobs(context.viewer, wanted, limit=_ROWS).rows

    return _Found(
        name=name,
        cluster=cluster,
        node=node,
        running=list_jobs(is_running=True),
        ended=list_jobs(is_running=False),
    )


def _charts(context: RequestContext, found: _Found) -> tuple[Chart, ...]:
    reports = [
        report
        for row in found.running[:_DRAWN_JOBS]
        for report in context.archive.find(context.viewer, row.job_id, cluster=row.cluster)[:1]
    ]
    return make_node_charts(found.name, reports, found.node)
