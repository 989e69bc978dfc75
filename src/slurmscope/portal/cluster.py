# SPDX-License-Identifier: Apache-2.0
"""Show the state of the cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.report import Chart
from slurmscope.jobs.suspect_nodes import JudgedNode
from slurmscope.portal.charts import encode_charts, find_chart, make_data_table
from slurmscope.portal.cluster_now import ClusterNow, PartitionNow, QueueRow, WaitingTable, make_waiting_table
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.hours import find_goodput
from slurmscope.portal.node_list import SUSPICIOUS, may_list_nodes, read_records
from slurmscope.portal.queries import BadQuery, parse_cluster, parse_format
from slurmscope.portal.web.tables import (
    Table,
    make_chart_table,
    make_shape_table,
    make_table,
    make_table_response,
)

router = APIRouter(include_in_schema=False)

_WAITING_DAYS = 28
_SUSPECTS = 10


@router.get("/cluster")
def show_cluster(context: Context) -> Response:
    """Show queue, nodes, partitions and the last 24 hours; staff also see down and drained nodes."""
    cluster, table_format = _choose_cluster(context), parse_format(context.query)
    now, requested = context.now(cluster), context.query.get("partition", "")
    if table_format != "html":
        name = context.query.get("table", "partitions")
        if name == "waiting":
            shapes = make_shape_table(find_waiting_table(context, now, requested, cluster))
            return make_table_response(shapes, table_format, "cluster-waiting-times")
        return make_table_response(_choose_table(now, name), table_format, f"cluster-{name}")
    charts = _charts(context) if cluster in {"", context.own_cluster} else ()
    return context.page(
        "cluster.html",
        charts=[(chart, make_data_table(chart)) for chart in charts],
        table=find_waiting_table(context, now, requested, cluster),
        goodput=find_goodput(context, context.link_cluster(cluster)),
        suspects=_find_suspects(context, context.link_cluster(cluster)),
        **_now_values(context, now, cluster),
    )


def _find_suspects(context: RequestContext, cluster: str) -> tuple[JudgedNode, ...]:
    """Return nodes on which jobs fail or are slow; for staff."""
    records = read_records(context.services.suspects) if context.viewer.is_staff else None
    own = (one for one in records or () if one.verdict in SUSPICIOUS and cluster in {"", one.cluster})
    return tuple(own)[:_SUSPECTS]


@router.get("/cluster/now")
def send_cluster_now(context: Context) -> Response:
    """Send the part of the page that changes."""
    cluster = _choose_cluster(context)
    values = _now_values(context, context.now(cluster), cluster)
    return HTMLResponse(context.pages.render("cluster_now.html", context.viewer, values))


@router.get("/cluster/charts.json")
def send_cluster_charts(context: Context) -> Response:
    """Send the charts to the script on the page."""
    return Response(encode_charts(_charts(context)), media_type="application/json")


@router.get("/cluster/charts/{name}.svg")
def send_cluster_image(context: Context, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for browsers without scripts."""
    image = render_chart_svg(find_chart(_charts(context), name), width=720, height=260, dark=dark, zone=context.zone)
    return Response(image, media_type="image/svg+xml")


@router.get("/cluster/charts/{name}.{format}")
def send_cluster_chart_table(context: Context, name: str, format: str) -> Response:
    """Send all points of a chart."""
    if format not in {"csv", "json"}:
        raise not_found()
    return make_table_response(make_chart_table(find_chart(_charts(context), name)), format, f"cluster-{name}-day")


def find_waiting_table(context: RequestContext, now: ClusterNow, requested: str, cluster: str = "") -> WaitingTable:
    """Return the waiting times of the requested partition of a cluster, by default of that with most pending jobs.

    ``now`` is the state of that cluster. Among several, one whose name is unknown has no waiting times.
    """
    cluster = cluster or context.own_cluster
    if not cluster and len(context.services.clusters()) > 1:
        return make_waiting_table("", {})
    names = _list_partitions(context, now, cluster)
    partition = requested if requested in names else next(iter(names), "")
    waits = context.services.wait_times.find(cluster, partition) if partition else {}
    return replace(make_waiting_table(partition, waits), cluster=cluster, partitions=tuple(names))


def _choose_cluster(context: RequestContext) -> str:
    """Return the cluster that the address names, by default that of the portal's host."""
    return parse_cluster(context.query) or context.own_cluster


def _now_values(context: RequestContext, now: ClusterNow, cluster: str) -> dict[str, object]:
    """Return the values of the live part of the page; problems of the portal's own cluster are shown on every page."""
    is_own = cluster in {"", context.own_cluster}
    return {
        "now": now,
        "cluster": context.link_cluster(cluster),
        "cluster_problems": () if is_own else now.problems,
        "sees_nodes": may_list_nodes(context, cluster),
    }


def _list_partitions(context: RequestContext, now: ClusterNow, cluster: str) -> list[str]:
    """List those that the controller reports, or those of the last weeks' jobs if it is not read."""
    if now.partitions:
        return [part.name for part in sorted(now.partitions, key=lambda part: -(part.pending_jobs or 0))]
    jobs: Counter[str] = Counter()
    for waits in context.archive.waiting_times(context.since(_WAITING_DAYS), cluster=cluster):
        jobs[waits.partition] += waits.jobs
    return [partition for partition, _ in jobs.most_common()]


def _charts(context: RequestContext) -> tuple[Chart, ...]:
    return context.services.charts.get() if context.services.charts else ()


def _choose_table(now: ClusterNow, name: str) -> Table:
    if name == "partitions":
        return make_table(PartitionNow, now.partitions)
    if name == "queue":
        return make_table(QueueRow, now.queue)
    counts = {"jobs": now.jobs_by_state, "reasons": now.pending_by_reason, "nodes": now.nodes_by_state}
    if name not in counts:
        raise BadQuery("The table must be partitions, queue, jobs, reasons, nodes or waiting.")
    return Table(columns=("name", "count"), rows=tuple((counts[name] or {}).items()))
