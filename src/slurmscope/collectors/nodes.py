# SPDX-License-Identifier: Apache-2.0
"""Export nodes, CPUs, memory and generic resources of the cluster, its partitions and each node.

::

    slurm_nodes{base_state="mixed"} 112
    slurm_partition_gres{partition="gpu",gres="gpu",model="a100",state="idle"} 7
    slurm_node_drain_info{node="n17",reason="bad DIMM, slot 3",user="root"} 1

A node counts once for the cluster and once in each of its partitions. Unallocated resources are ``idle`` on a node
that can run jobs and ``unusable`` on one that cannot: see :func:`slurmscope.model.nodes.can_run_jobs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.collectors import each_node
from slurmscope.collectors.compat import nodes as node_compat
from slurmscope.collectors.node_sums import Measure, NodeGroup, Sum, amount, cluster, group_nodes, partition
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, gauge
from slurmscope.model.nodes import BASE_STATES, FLAGS, Nodes
from slurmscope.settings import setting

UNREADABLE = gauge(
    "slurm_nodes_unreadable",
    "Parts of the latest node list that could not be parsed: rows (their nodes are missing) and gres.",
    "part",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesOptions:
    """Which metrics are exported per node."""

    per_node: bool = setting(True, help="Expose state, CPUs, memory, load, GRES and drain reason of each node.")
    partition_map: bool = setting(False, help="Expose which node is in which partition: one series per pair.")


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
        yield from each_node.each_node(nodes.nodes)
    if options.partition_map:
        yield each_node.each_partition_of_each_node(nodes.nodes)


COLLECTOR = Collector(
    name="nodes",
    role=Role.CLUSTER,
    help="Nodes, CPUs, memory and generic resources of the cluster, its partitions and its nodes, from one sinfo call.",
    needs=("nodes",),
    metrics=(
        *(each.metric for each in (*node_compat.SUMS, *SUMS)),
        UNREADABLE,
        *each_node.METRICS,
        each_node.PARTITION,
    ),
    collect=collect,
    options=NodesOptions,
)
