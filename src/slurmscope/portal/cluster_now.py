# SPDX-License-Identifier: Apache-2.0
"""Summarize the current queue and nodes, and how long jobs waited, without user names."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.cluster.squeue import JobGroup, Jobs
from slurmscope.jobs.wait_times import CORES_BOUNDS, LIMIT_BOUNDS_SECONDS, WaitingTime, label_cores, label_limit
from slurmscope.slurm.states import PENDING, RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionNow:
    """One partition; a node or a pending job in several partitions counts in each of them."""

    name: str
    nodes: int = 0
    cpus: int = 0
    cpus_allocated: int = 0
    cpus_idle: int = 0
    gpus: int = 0
    gpus_allocated: int = 0
    running_jobs: int | None = 0
    pending_jobs: int | None = 0

    @property
    def allocated_ratio(self) -> float | None:
        return self.cpus_allocated / self.cpus if self.cpus else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """The pending jobs of one partition that have the same reason; amounts are requested ones."""

    partition: str
    reason: str
    jobs: int
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblem:
    """The reason why a node is down or drained."""

    node: str
    state: str
    reason: str
    user: str = ""
    """Who set the reason."""
    since_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNow:
    """The current state of the cluster; None where it could not be read.

    The API returns these fields under the same names.
    """

    age_seconds: float | None = None
    jobs_by_state: Mapping[str, int] | None = None
    pending_by_reason: Mapping[str, int] | None = None
    nodes_by_state: Mapping[str, int] | None = None
    cpus: int | None = None
    cpus_allocated: int | None = None
    gpus: int | None = None
    gpus_allocated: int | None = None
    partitions: tuple[PartitionNow, ...] = ()
    queue: tuple[QueueRow, ...] = ()
    """Pending jobs by partition and reason; a job that may start in several partitions counts in each of them."""
    troubles: tuple[NodeProblem, ...] = ()
    """Down and drained nodes."""
    problems: tuple[str, ...] = ()
    """One sentence for each part that could not be read."""

    @property
    def running_jobs(self) -> int | None:
        return None if self.jobs_by_state is None else self.jobs_by_state.get(RUNNING, 0)

    @property
    def pending_jobs(self) -> int | None:
        return None if self.jobs_by_state is None else self.jobs_by_state.get(PENDING, 0)

    @property
    def nodes(self) -> int | None:
        return None if self.nodes_by_state is None else sum(self.nodes_by_state.values())

    @property
    def allocated_ratio(self) -> float | None:
        return self.cpus_allocated / self.cpus if self.cpus and self.cpus_allocated is not None else None


def summarize_cluster(
    jobs: Jobs | None, nodes: Nodes | None, *, age_seconds: float | None = None, problems: tuple[str, ...] = ()
) -> ClusterNow:
    """Summarize jobs and nodes; None where they could not be read."""
    groups = [group for group in jobs.groups if not group.has_ended] if jobs else []
    each_node = nodes.nodes if nodes else ()
    gpus = [gres for node in each_node for gres in node.gres or () if gres.name == "gpu"]
    return ClusterNow(
        age_seconds=age_seconds,
        jobs_by_state=_count((group.state, group.jobs) for group in groups) if jobs else None,
        pending_by_reason=_count((_reason(group), group.jobs) for group in groups if group.state == PENDING)
        if jobs
        else None,
        nodes_by_state=_count((node.state_text, 1) for node in each_node) if nodes else None,
        cpus=sum(node.cpus_total for node in each_node) if nodes else None,
        cpus_allocated=sum(node.cpus_allocated for node in each_node) if nodes else None,
        gpus=sum(gres.total for gres in gpus) if nodes else None,
        gpus_allocated=sum(gres.used for gres in gpus) if nodes else None,
        queue=_summarize_queue(groups),
        partitions=_summarize_partitions(groups if jobs else None, each_node),
        troubles=tuple(
            NodeProblem(
                node=node.name,
                state=node.state_text,
                reason=node.reason,
                user=node.reason_user or "",
                since_seconds=node.reason_since_seconds,
            )
            for node in each_node
            if node.reason
        ),
        problems=problems,
    )


def _summarize_queue(groups: Iterable[JobGroup]) -> tuple[QueueRow, ...]:
    """Sum up pending jobs by partition and reason, most jobs of a partition first."""
    sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for group in groups:
        if group.state == PENDING:
            for partition in group.partitions:
                amounts = sums[partition, _reason(group).partition(",")[0]]
                amounts["jobs"] += group.jobs
                amounts["cpus"] += group.cpus
                amounts["gpus"] += sum(gres.count for gres in group.gres if gres.name == "gpu")
    rows = [
        QueueRow(partition=partition, reason=reason, jobs=one["jobs"], cpus=one["cpus"], gpus=one["gpus"])
        for (partition, reason), one in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.partition, -row.jobs, row.reason)))


def _reason(group: JobGroup) -> str:
    return group.reason or "None"


def _count(pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Add up by name, highest count first."""
    counts: Counter[str] = Counter()
    for name, number in pairs:
        counts[name] += number
    return dict(counts.most_common())


def _summarize_partitions(groups: Iterable[JobGroup] | None, nodes: Iterable[Node]) -> tuple[PartitionNow, ...]:
    """Sum up by partition; the numbers of jobs are None where they could not be read."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for partition in node.partitions:
            _add_node(sums[partition], node)
    for group in groups or ():
        if group.state in {RUNNING, PENDING}:
            for partition in group.partitions:
                sums[partition][f"{group.state.lower()}_jobs"] += group.jobs
    partitions = tuple(PartitionNow(name=name, **sums[name]) for name in sorted(sums))
    if groups is not None:
        return partitions
    return tuple(replace(partition, running_jobs=None, pending_jobs=None) for partition in partitions)


def _add_node(sums: Counter[str], node: Node) -> None:
    gpus = [gres for gres in node.gres or () if gres.name == "gpu"]
    sums["nodes"] += 1
    sums["cpus"] += node.cpus_total
    sums["cpus_allocated"] += node.cpus_allocated
    sums["cpus_idle"] += node.cpus_idle
    sums["gpus"] += sum(gres.total for gres in gpus)
    sums["gpus_allocated"] += sum(gres.used for gres in gpus)


LEVEL_BOUNDS_SECONDS = (60.0, 600.0, 3600.0, 6 * 3600.0, 86_400.0)
"""Bounds of the shades of the table of waiting times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTable:
    """How long jobs of one partition waited, by cores (rows) and time limit (columns)."""

    partition: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[WaitingTime | None, ...]], ...]
    jobs: int
    cluster: str = ""
    partitions: tuple[str, ...] = ()
    """Partitions to choose from."""


def make_waiting_table(partition: str, waits: Mapping[tuple[int, int], WaitingTime]) -> WaitingTable:
    """Arrange waiting times by shape; shapes without jobs are None."""
    limits = range(len(LIMIT_BOUNDS_SECONDS) + 1)
    rows = tuple(
        (label_cores(cores), tuple(waits.get((cores, limit)) for limit in limits))
        for cores in range(len(CORES_BOUNDS) + 1)
    )
    return WaitingTable(
        partition=partition,
        columns=tuple(map(label_limit, limits)),
        rows=rows,
        jobs=sum(wait.jobs for wait in waits.values()),
    )


def rate_wait(seconds: float) -> int:
    """Return the shade of a waiting time, from 0 to 5."""
    return bisect_right(LEVEL_BOUNDS_SECONDS, seconds)
