# SPDX-License-Identifier: Apache-2.0
"""Export nodes, CPUs, memory and generic resources of the cluster, its partitions and each node.

::

    slurm_nodes{base_state="mixed"} 112
    slurm_partition_gres{partition="gpu",gres="gpu",model="a100",state="idle"} 7
    slurm_node_drain_info{node="n17",reason="bad DIMM, slot 3",user="root"} 1

A node counts once for the cluster and once in each of its partitions. Unallocated resources are ``idle`` on a node
that can run jobs and ``unusable`` on one that cannot: see :func:`slurmscope.cluster.sinfo.can_run_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurmscope.cluster import node_sums as node_compat
from slurmscope.cluster.node_sums import Measure, NodeGroup, Sum, amount, cluster, group_nodes, partition
from slurmscope.cluster.sinfo import BASE_STATES, FLAGS, Node, NodeGres, Nodes, can_run_jobs
from slurmscope.core.settings import setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, gauge, info

STATE = info("slurm_node_state_info", "Base state of a node; its flags are in slurm_node_flag.", "node", "base_state")
FLAG = gauge("slurm_node_flag", "1 for each flag set on a node, such as drain or not_responding.", "node", "flag")
USABLE = gauge("slurm_node_usable", "1 if Slurm can start jobs on the idle resources of a node, 0 if not.", "node")
CPUS = gauge("slurm_node_cpus", "CPUs of a node.", "node")
ALLOCATED_CPUS = gauge("slurm_node_allocated_cpus", "Allocated CPUs of a node.", "node")
MEMORY = gauge("slurm_node_memory_bytes", "Memory of a node.", "node")
ALLOCATED_MEMORY = gauge("slurm_node_allocated_memory_bytes", "Allocated memory of a node.", "node")
FREE_MEMORY = gauge(
    "slurm_node_free_memory_bytes", "Free memory of a node, as reported by its operating system.", "node"
)
LOAD = gauge("slurm_node_load", "CPU load of a node, as reported by slurmd.", "node")
GRES = gauge("slurm_node_gres", "Generic resources of a node, such as GPUs.", "node", "gres", "model")
GRES_USED = gauge("slurm_node_gres_used", "Allocated generic resources of a node.", "node", "gres", "model")
DRAIN = info(
    "slurm_node_drain_info", "Reason why a node is down or drained, and the user who set it.", "node", "reason", "user"
)
DRAIN_SINCE = gauge(
    "slurm_node_drain_since_timestamp_seconds", "Unix time at which the reason of a node was set.", "node"
)
PARTITION = info("slurm_node_partition_info", "Partitions of a node, one series per pair.", "node", "partition")

METRICS = (
    STATE, FLAG, USABLE, CPUS, ALLOCATED_CPUS, MEMORY, ALLOCATED_MEMORY, FREE_MEMORY, LOAD, GRES, GRES_USED, DRAIN,
    DRAIN_SINCE,
)  # fmt: skip
"""All but PARTITION, which is optional."""


def each_node(nodes: Sequence[Node]) -> Iterator[Family]:
    """Yield the families of :data:`METRICS`, one sample per node or more."""
    # The same label tuples for all families: the guard and the writer recognise them by identity.
    names: list[Labels] = [(node.name,) for node in nodes]
    yield Family(STATE, {(node.name, node.base_state): 1 for node in nodes})
    yield Family(FLAG, {(node.name, flag): 1 for node in nodes for flag in sorted(node.flags)})
    yield Family(USABLE, dict(zip(names, map(_is_usable, nodes), strict=True)))
    yield Family(CPUS, dict(zip(names, (node.cpus_total for node in nodes), strict=True)))
    yield Family(ALLOCATED_CPUS, dict(zip(names, (node.cpus_allocated for node in nodes), strict=True)))
    yield Family(MEMORY, dict(zip(names, (node.memory_bytes for node in nodes), strict=True)))
    yield Family(ALLOCATED_MEMORY, dict(zip(names, (node.allocated_memory_bytes for node in nodes), strict=True)))
    yield Family(FREE_MEMORY, _measured(names, [node.free_memory_bytes for node in nodes]))
    yield Family(LOAD, _measured(names, [node.load for node in nodes]))
    yield Family(GRES, _node_gres(nodes, lambda gres: gres.total))
    yield Family(GRES_USED, _node_gres(nodes, lambda gres: gres.used))
    yield Family(
        DRAIN, {(node.name, one_line(node.reason), node.reason_user or ""): 1 for node in nodes if node.reason}
    )
    yield Family(DRAIN_SINCE, _measured(names, [node.reason_since_seconds for node in nodes]))


def each_partition_of_each_node(nodes: Sequence[Node]) -> Family:
    return Family(PARTITION, {(node.name, partition): 1 for node in nodes for partition in node.partitions})


def one_line(text: str) -> str:
    """Make free text fit for a label: no line breaks, no control characters, single spaces."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _is_usable(node: Node) -> int:
    return int(can_run_jobs(node.base_state, node.flags))


def _measured(names: Sequence[Labels], values: Sequence[float | None]) -> dict[Labels, float]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _node_gres(nodes: Sequence[Node], read: Callable[[NodeGres], int]) -> dict[Labels, float]:
    return {(node.name, gres.name, gres.model): read(gres) for node in nodes for gres in node.gres or ()}


UNREADABLE = gauge(
    "slurm_nodes_unreadable",
    "Parts of the latest node list that could not be parsed: rows (their nodes are missing) and gres.",
    "part",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesOptions:
    """Which metrics are exported per node."""

    per_node: bool = setting(True, "Expose state, CPUs, memory, load, GRES and drain reason of each node.")
    partition_map: bool = setting(False, "Expose which node is in which partition: one series per pair.")


def _base_states(group: NodeGroup) -> Iterable[tuple[Labels, float]]:
    return (((group.base_state,), group.nodes),)


def _flags(group: NodeGroup) -> Iterable[tuple[Labels, float]]:
    return (((flag,), group.nodes) for flag in sorted(group.flags))


def _cpus(group: NodeGroup) -> Iterable[tuple[Labels, float]]:
    unused = group.cpus_total - group.cpus_allocated
    yield ("allocated",), group.cpus_allocated
    yield ("idle",), unused if group.is_usable else 0
    yield ("unusable",), 0 if group.is_usable else unused


def _gres(group: NodeGroup) -> Iterable[tuple[Labels, float]]:
    for key, unused in group.gres_unused.items():
        yield (*key, "allocated"), group.gres_used[key]
        yield (*key, "idle"), unused if group.is_usable else 0
        yield (*key, "unusable"), 0 if group.is_usable else unused


def _for_both(name: str, help: str, measure: Measure, *labels: str, known: Iterable[str] = ()) -> tuple[Sum, Sum]:
    """Declare a sum over the cluster and the same sum by partition."""
    own = gauge(f"slurm_{name}", f"{help}.", *labels)
    twin = gauge(f"slurm_partition_{name}", f"{help}, by partition.", "partition", *labels)
    zeros = tuple((label,) for label in known)
    return (
        Sum(metric=own, view=cluster, measure=measure, known=zeros),
        Sum(metric=twin, view=partition, measure=measure, known=zeros),
    )


SUMS = (
    *_for_both("nodes", "Nodes by base state", _base_states, "base_state", known=BASE_STATES),
    *_for_both(
        "nodes_flagged",
        "Nodes by flag, such as drain; a node may have several flags",
        _flags,
        "flag",
        known=FLAGS,
    ),
    *_for_both(
        "nodes_usable",
        "Nodes on whose idle resources Slurm can start jobs",
        amount(lambda group: group.nodes if group.is_usable else 0),
    ),
    *_for_both(
        "cpus", "CPUs by state: allocated, idle, or unusable (idle on nodes that cannot run jobs)", _cpus, "state"
    ),
    *_for_both("memory_bytes", "Memory of nodes", amount(lambda group: group.memory_bytes)),
    *_for_both(
        "allocated_memory_bytes",
        "Memory allocated to jobs",
        amount(lambda group: group.allocated_memory_bytes),
    ),
    *_for_both(
        "free_memory_bytes",
        "Free memory of nodes, as reported by their operating systems",
        amount(lambda group: group.free_memory_bytes),
    ),
    *_for_both("load", "Sum of the CPU loads of nodes that report one", amount(lambda group: group.load)),
    *_for_both(
        "gres",
        "Generic resources such as GPUs by state: allocated, idle, or unusable (idle on nodes that cannot run jobs)",
        _gres,
        "gres",
        "model",
        "state",
    ),
)


def collect(options: NodesOptions, *, nodes: Nodes) -> Iterator[Family]:
    """Yield sums over nodes, and each node if enabled."""
    groups = group_nodes(nodes.nodes)
    for each in (*node_compat.SUMS, *SUMS):
        yield each.family(groups)
    unreadable_gres = sum(node.gres is None for node in nodes.nodes)
    yield Family(UNREADABLE, {("rows",): nodes.unreadable_rows, ("gres",): unreadable_gres})
    if options.per_node:
        yield from each_node(nodes.nodes)
    if options.partition_map:
        yield each_partition_of_each_node(nodes.nodes)


COLLECTOR = Collector(
    name="nodes",
    role=Role.CLUSTER,
    help="Nodes, CPUs, memory and generic resources of the cluster, its partitions and its nodes, from one sinfo call.",
    needs=("nodes",),
    metrics=(
        *(each.metric for each in (*node_compat.SUMS, *SUMS)),
        UNREADABLE,
        *METRICS,
        PARTITION,
    ),
    collect=collect,
    options=NodesOptions,
)
