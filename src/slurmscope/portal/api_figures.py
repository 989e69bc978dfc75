# SPDX-License-Identifier: Apache-2.0
"""Serve as JSON what the pages of savings, histograms, waiting times, file systems and nodes show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query

from slurmscope.archive.metric_ranges import JobMetric, ValueKind
from slurmscope.cluster.events import NodeEvent
from slurmscope.core.units import round_number
from slurmscope.jobs.advice import AdviceGroup, AdviceTotal
from slurmscope.lustre.use import ClientKind, Period, Quantity
from slurmscope.portal.api import ERRORS, RANGE_PARAMETERS, Text, WantedJobs
from slurmscope.portal.cluster import find_waiting_table
from slurmscope.portal.context import Context
from slurmscope.portal.filesystems import find_top_clients
from slurmscope.portal.histogram import count_jobs
from slurmscope.portal.jobs import bound_ranges
from slurmscope.portal.nodes import find_visible_node, read_events
from slurmscope.portal.queries import MAX_DAYS, parse_cluster
from slurmscope.portal.savings import SAVINGS_DAYS, total_savings
from slurmscope.portal.waste import require_staff
from slurmscope.portal.web.tables import round_fields

router = APIRouter(prefix="/api/v2", responses=ERRORS, tags=["version 2"])

_METRICS = {metric.key: metric for metric in JobMetric}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsAnswer:
    """What became of advice, largest saving of core time first; months in order."""

    by: AdviceGroup
    since_seconds: int
    totals: tuple[AdviceTotal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramClass:
    """Jobs whose number is at least ``min`` and less than ``max``; null is without bound."""

    min: float | None
    max: float | None
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramAnswer:
    """The newest jobs in classes of a metric, in seconds, as a ratio or as a count.

    ``unknown`` are jobs for which the number is not known; ``is_cut`` says whether older jobs were left out;
    ``since_seconds`` is when the oldest of these jobs was submitted, null without jobs.
    """

    metric: str
    unit: ValueKind
    classes: tuple[HistogramClass, ...]
    unknown: int
    is_cut: bool
    since_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeWait:
    """How long jobs of one shape waited in the last four weeks."""

    cores: str
    time_limit: str
    jobs: int
    median_seconds: float
    p90_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTimesAnswer:
    """Waiting times of one partition by cores and time limit; shapes without jobs are left out."""

    cluster: str
    partition: str
    shapes: tuple[ShapeWait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemClientAnswer:
    """One client of a file system: bytes or operations, per second now or in the last 24 hours."""

    filesystem: str
    period: Period
    kind: ClientKind
    quantity: Quantity
    name: str
    user: str
    account: str
    amount: float
    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemsAnswer:
    """The clients that use each file system most; ``is_known`` is false without Prometheus."""

    is_known: bool
    clients: tuple[FilesystemClientAnswer, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """One node; all but its name is null if the controller does not report it now.

    ``reason`` and ``events``, the times in which it was down or drained, are for staff only.
    """

    name: str
    cluster: str = ""
    state: str | None = None
    partitions: tuple[str, ...] | None = None
    cpus: int | None = None
    cpus_allocated: int | None = None
    cpus_idle: int | None = None
    load: float | None = None
    memory_bytes: int | None = None
    memory_allocated_bytes: int | None = None
    memory_free_bytes: int | None = None
    reason: str | None = None
    events: tuple[NodeEvent, ...] | None = None


@router.get("/savings")
def read_savings(
    context: Context,
    by: AdviceGroup = AdviceGroup.RULE,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = SAVINGS_DAYS,
    cluster: Text = "",
) -> SavingsAnswer:
    """Return whether the next run followed the advice, and what that saved, of users whom the viewer may see."""
    context.audit("savings of all users")
    totals = total_savings(context, by, days, parse_cluster({"cluster": cluster}))
    return SavingsAnswer(by=by, since_seconds=context.since(days), totals=tuple(map(round_fields, totals)))


@router.get("/histogram", openapi_extra=RANGE_PARAMETERS)
def read_histogram(
    context: Context,
    wanted: WantedJobs,
    metric: Annotated[str, Query(pattern=f"^({'|'.join(_METRICS)})$", description=", ".join(_METRICS) + ".")] = "cpu",
) -> HistogramAnswer:
    """Return how a number is distributed over the jobs of a list, which has the filters of /api/v2/jobs."""
    found = count_jobs(context, bound_ranges(context, wanted), _METRICS[metric]).value
    return HistogramAnswer(
        metric=metric,
        unit=found.metric.kind,
        classes=tuple(
            HistogramClass(min=each.low, max=each.high, jobs=count)
            for each, count in zip(found.ranges, found.counts, strict=True)
        ),
        unknown=found.unknown,
        is_cut=found.is_cut,
        since_seconds=found.since_seconds,
    )


@router.get("/waiting-times")
def read_waiting_times(
    context: Context,
    partition: Annotated[str, Query(max_length=200, description="Default: the one with most pending jobs.")] = "",
    cluster: Annotated[str, Query(max_length=200, description="Default: the one whose queue is shown.")] = "",
) -> WaitingTimesAnswer:
    """Return how long jobs of each shape waited in a partition in the last four weeks."""
    named = parse_cluster({"cluster": cluster})
    table = find_waiting_table(context, context.now(named), partition, named)
    shapes = (
        ShapeWait(
            cores=cores,
            time_limit=limit,
            jobs=cell.jobs,
            median_seconds=round_number(cell.median_seconds),
            p90_seconds=round_number(cell.p90_seconds),
        )
        for cores, cells in table.rows
        for limit, cell in zip(table.columns, cells, strict=True)
        if cell is not None
    )
    return WaitingTimesAnswer(cluster=table.cluster, partition=table.partition, shapes=tuple(shapes))


@router.get("/filesystems")
def read_filesystems(context: Context) -> FilesystemsAnswer:
    """Return who uses each shared file system most, now and in the last 24 hours; for staff only."""
    require_staff(context)
    context.audit("file systems of all users")
    top = find_top_clients(context.services.filesystems)
    clients = (FilesystemClientAnswer(**client._asdict()) for client in (top.clients if top else ()))
    return FilesystemsAnswer(
        is_known=top is not None,
        clients=tuple(map(round_fields, clients)),
        problems=tuple(top.problems) if top else (),
    )


@router.get("/nodes/{name}")
def read_node(
    context: Context, name: Annotated[str, Path(max_length=255, description="Name of a node.")]
) -> NodeAnswer:
    """Return state and size of a node; users see the nodes on which a job ran that they have access to."""
    (cluster, node), is_staff = find_visible_node(context, name), context.viewer.is_staff
    shown_cluster = cluster or next(iter(context.services.clusters()), "")
    events = read_events(context, cluster, name)
    if node is None:
        return NodeAnswer(name=name, cluster=shown_cluster, events=events)
    return NodeAnswer(
        name=name,
        cluster=shown_cluster,
        state=node.state_text,
        partitions=node.partitions,
        cpus=node.cpus_total,
        cpus_allocated=node.cpus_allocated,
        cpus_idle=node.cpus_idle,
        load=node.load,
        memory_bytes=node.memory_bytes,
        memory_allocated_bytes=node.allocated_memory_bytes,
        memory_free_bytes=node.free_memory_bytes,
        reason=node.reason if is_staff else None,
        events=events,
    )
