# SPDX-License-Identifier: Apache-2.0
"""Show one node: its state, the jobs on it that the viewer may see, their curves, and when it was down.

Other users' nodes are like absent ones: a user may see a node on which one of their jobs has run.

slurmdbd has the events of all clusters, also while a controller is down.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.events import read_events as read_node_events
from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.core.cache import Cache
from slurmscope.core.errors import SourceError
from slurmscope.core.hostlist import natural_order
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS, format_bytes
from slurmscope.jobs.charts import fold_lines
from slurmscope.jobs.curves import align
from slurmscope.jobs.render.formatting import LabelledText, format_day, format_time
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.series import Series
from slurmscope.jobs.summary import HeldGpu
from slurmscope.jobs.suspect_nodes import JudgedNode
from slurmscope.portal.charts import encode_charts, find_chart, make_data_table
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.node_list import read_records
from slurmscope.reports.find import require_unambiguous
from slurmscope.slurm.command import RunCommand

logger = logging.getLogger(__name__)


_CHARTS = ("gpu_busy", "gpu_sm", "gpu_power", "cpu", "memory", "gpu")


def find_node(nodes: Nodes | None, name: str) -> Node | None:
    """Return a node as the controller reports it; None if it is not known now."""
    return next((node for node in nodes.nodes if node.name == name), None) if nodes else None


def list_node_facts(node: Node, *, is_staff: bool) -> tuple[LabelledText, ...]:
    """List state and size of a node; reasons of down and drained nodes are for staff."""
    reason = f"{node.reason} ({node.reason_user})" if node.reason_user else node.reason or ""
    load = "unknown" if node.load is None else f"{node.load:.2f}"
    free = "unknown" if node.free_memory_bytes is None else format_bytes(node.free_memory_bytes)
    rows = (
        LabelledText("State", node.state_text),
        LabelledText("Reason", reason if is_staff else ""),
        LabelledText("Since", format_time(node.reason_since_seconds) if is_staff and reason else ""),
        LabelledText("Partitions", ", ".join(node.partitions)),
        LabelledText("Cores", f"{node.cpus_allocated:,} of {node.cpus_total:,} allocated, {node.cpus_idle:,} idle"),
        LabelledText("Load", load),
        LabelledText(
            "Memory", f"{format_bytes(node.allocated_memory_bytes)} of {format_bytes(node.memory_bytes)} allocated"
        ),
        LabelledText("Free memory", free),
        *(
            LabelledText(f"{gres.name} {gres.model}".strip(), f"{gres.used:,} of {gres.total:,} allocated")
            for gres in node.gres or ()
        ),
    )
    return tuple(row for row in rows if row.text)


def make_node_charts(name: str, reports: Sequence[JobReport], node: Node | None) -> tuple[Chart, ...]:
    """Draw what each of these jobs used on the node, with the size of the node as limit.

    Jobs on very many nodes have no curve of a single one.
    """
    limits = {"cpu": float(node.cpus_total), "memory": float(node.memory_bytes)} if node else {}
    made = (_make_chart(chart, name, reports, limits.get(chart)) for chart in _CHARTS)
    return tuple(chart for chart in made if chart is not None)


def _make_chart(chart_name: str, name: str, reports: Sequence[JobReport], limit: float | None) -> Chart | None:
    found = [
        (report, chart, replace(line, label=own))
        for report in reports
        for chart in report.charts
        for line in chart.lines
        if chart.name == chart_name and (own := _own_label(line.label, name, report)) is not None
    ]
    if not found:
        return None
    aligned = align([_as_series(report, chart, line) for report, chart, line in found])
    lines = fold_lines([ChartLine(label=labels[0], values=values) for labels, values in aligned.rows.items()])
    first = found[0][1]
    return replace(
        first,
        title=f"{first.title} by job",
        times=aligned.times,
        lines=lines,
        reference=limit,
        reference_label="" if limit is None else "whole node",
        help="What each job used on this node; only jobs that you have access to.",
    )


def _own_label(label: str, name: str, report: JobReport) -> str | None:
    """Return what a line of this node is of, which is empty for all of the node; None for a line of another one."""
    if report.record.nodes == (name,) and label.startswith("GPU "):
        return label
    rest = label.removeprefix(f"{name} ")
    return "" if label == name else rest if rest != label and rest.startswith("GPU ") else None


def _as_series(report: JobReport, chart: Chart, line: ChartLine) -> Series:
    known = [(time, value) for time, value in zip(chart.times, line.values, strict=True) if value is not None]
    times, values = tuple(time for time, _ in known), tuple(value for _, value in known)
    return Series((f"job {report.record.shown_id} {line.label}".rstrip(),), times, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpu:
    """What a running job does with one GPU of the node, since the job started."""

    job: JobRow
    device: HeldGpu


def list_node_gpus(name: str, jobs: Sequence[tuple[JobRow, JobReport]]) -> tuple[NodeGpu, ...]:
    """List the GPUs of a node that these jobs hold, in their order on the node; of jobs with very many not all."""
    found = [
        NodeGpu(job=job, device=device)
        for job, report in jobs
        for device in report.summary.gpu.devices
        if device.node == name
    ]
    return tuple(sorted(found, key=lambda held: (natural_order(held.device.gpu), held.device.mig, held.job.job_id)))


Events = tuple[NodeEvent, ...]

LIFETIME_SECONDS = 300.0
FAILURE_SECONDS = 60.0
MAX_NODES = 500
DAYS = 90
"""Days of history that are shown."""


def open_node_history(run: RunCommand) -> NodeHistory:
    """Return the history of nodes; ``run`` runs a Slurm command."""
    return NodeHistory(
        lambda cluster, node: read_node_events(run, node, format_day(time.time() - DAYS * DAY_SECONDS), cluster)
    )


class NodeHistory:
    """Return the events of a node, None while they cannot be read. Safe to use from any thread."""

    def __init__(self, read: Callable[[str, str], Events], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the function that reads the events of a node, by its cluster and its name; it may raise SourceError."""
        self._read = read
        self._cache = Cache[Events](LIFETIME_SECONDS, retry_seconds=FAILURE_SECONDS, max_keys=MAX_NODES, clock=clock)

    def __call__(self, cluster: str, node: str) -> Events | None:
        """Return the events of a node, newest first; without a cluster it is one of this host's cluster."""
        try:
            return self._cache.get((cluster, node), lambda: self._query(cluster, node))
        except SourceError:
            return None

    def _query(self, cluster: str, node: str) -> Events:
        try:
            return self._read(cluster, node)
        except SourceError as error:
            logger.warning("cannot read node events", extra=fields(cluster=cluster, node=node, error=str(error)))
            raise


router = APIRouter(include_in_schema=False)

_ROWS = 25
_DRAWN_JOBS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A node that the viewer may see; ``node`` is None if the controller does not report it now."""

    name: str
    cluster: str
    node: Node | None
    running: tuple[JobRow, ...]
    ended: tuple[JobRow, ...]


@router.get("/nodes/{name}")
def show_node(context: Context, name: str) -> Response:
    """Show a node."""
    found = _find(context, name)
    jobs, is_staff = _find_reports(context, found), context.viewer.is_staff
    return context.page(
        "node.html",
        name=name,
        cluster=found.cluster,
        facts=list_node_facts(found.node, is_staff=is_staff) if found.node else (),
        failures=_find_record(context, found.cluster, name) if is_staff else None,
        running=found.running,
        ended=found.ended,
        wanted=JobFilter(cluster=context.link_cluster(found.cluster), node=name),
        gpus=list_node_gpus(name, jobs),
        charts=[
            (chart, make_data_table(chart))
            for chart in make_node_charts(name, [report for _, report in jobs], found.node)
        ],
        events=read_events(context, found.cluster, name),
    )


def _find_record(context: RequestContext, cluster: str, name: str) -> JudgedNode | None:
    """Return how the jobs of a node ended; None before that is known."""
    records = read_records(context.services.suspects) or ()
    return next((one for one in records if one.node == name and cluster in {"", one.cluster}), None)


@router.get("/nodes/{name}/charts.json")
def send_node_charts(context: Context, name: str) -> Response:
    """Send the charts to the script on the page."""
    return Response(encode_charts(_charts(context, _find(context, name))), media_type="application/json")


@router.get("/nodes/{name}/charts/{chart_name}.svg")
def send_node_image(context: Context, name: str, chart_name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for browsers without scripts."""
    chart = find_chart(_charts(context, _find(context, name)), chart_name)
    return Response(render_chart_svg(chart, dark=dark, zone=context.zone), media_type="image/svg+xml")


def has_node(context: RequestContext, name: str) -> bool:
    """Return whether there is a node of this name that the viewer may see, in any cluster."""
    return bool(_list_clusters(context, name))


def read_events(context: RequestContext, cluster: str, name: str) -> tuple[NodeEvent, ...] | None:
    """Return when a node was down or drained; reasons are written by staff for staff."""
    live = context.find_live(cluster)
    is_shown = context.viewer.is_staff and live is not None
    return context.services.node_history(live or "", name) if is_shown else None


def _list_clusters(context: RequestContext, name: str) -> list[str]:
    """Return the clusters with a node of this name that the viewer may see; while there is only one, it is empty."""
    if not 0 < len(name) <= 255 or not name.isprintable():
        return []
    known = context.services.clusters()
    several = sorted({*known, *context.services.live.names()})
    candidates = [context.cluster] if context.cluster else several if len(known) > 1 else [""]
    reported = _read_nodes(context, name, candidates) if context.viewer.is_staff else {}
    return [cluster for cluster in candidates if cluster in reported or _has_run(context, cluster, name)]


def _has_run(context: RequestContext, cluster: str, name: str) -> bool:
    """Return whether a job that the viewer may see has run on a node; queues are not read, they name no nodes."""
    return bool(context.archive.list_jobs(context.viewer, JobFilter(cluster=cluster, node=name), limit=1).rows)


def _read_nodes(context: RequestContext, name: str, clusters: Iterable[str]) -> dict[str, Node]:
    """Return what the controllers of these clusters report about their nodes of a name."""
    live = {cluster: other for cluster in clusters if (other := context.find_live(cluster)) is not None}
    nodes = context.services.live.nodes(tuple(live.values()))
    found = {cluster: find_node(nodes.get(other), name) for cluster, other in live.items()}
    return {cluster: node for cluster, node in found.items() if node is not None}


def find_visible_node(context: RequestContext, name: str) -> tuple[str, Node | None]:
    """Return cluster and state of a node that the viewer may see, and audit the access; respond 404 for others.

    The state is None if the controller does not report the node now.
    """
    clusters = _list_clusters(context, name)
    if not clusters:
        raise not_found()
    require_unambiguous("node", name, set(clusters))
    cluster = clusters[0]
    context.audit(f"node {context.name_job(name, cluster)}")
    return cluster, _read_nodes(context, name, [cluster]).get(cluster)


def _find(context: RequestContext, name: str) -> _Found:
    cluster, node = find_visible_node(context, name)

    def list_jobs(*, is_running: bool) -> tuple[JobRow, ...]:
        wanted = JobFilter(cluster=cluster, node=name, is_running=is_running)
        return context.archive.list_jobs(context.viewer, wanted, limit=_ROWS).rows

    return _Found(
        name=name, cluster=cluster, node=node, running=list_jobs(is_running=True), ended=list_jobs(is_running=False)
    )


def _charts(context: RequestContext, found: _Found) -> tuple[Chart, ...]:
    return make_node_charts(found.name, [report for _, report in _find_reports(context, found)], found.node)


def _find_reports(context: RequestContext, found: _Found) -> list[tuple[JobRow, JobReport]]:
    return [
        (row, report)
        for row in found.running[:_DRAWN_JOBS]
        for report in context.archive.find(context.viewer, row.job_id, cluster=row.cluster)[:1]
    ]
