# SPDX-License-Identifier: Apache-2.0
"""Export each node by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurmscope.metrics.family import Family, Labels, gauge, info
from slurmscope.model.nodes import Node, NodeGres, can_run_jobs

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
    yield Family(GRES, _gres(nodes, lambda gres: gres.total))
    yield Family(GRES_USED, _gres(nodes, lambda gres: gres.used))
    yield Family(
        DRAIN, {(node.name, one_line(node.reason), node.reason_user or ""): 1 for node in nodes if node.reason}
    )
    yield Family(DRAIN_SINCE, _measured(names, [node.reason_since_seconds for node in nodes]))


def each_partition_of_each_node(nodes: Sequence[Node]) -> Family:
    """Return the family that maps nodes to partitions."""
    return Family(PARTITION, {(node.name, partition): 1 for node in nodes for partition in node.partitions})


def one_line(text: str) -> str:
    """Make free text fit for a label: no line breaks, no control characters, single spaces."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _is_usable(node: Node) -> int:
    return int(can_run_jobs(node.base_state, node.flags))


def _measured(names: Sequence[Labels], values: Sequence[float | None]) -> dict[Labels, float]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _gres(nodes: Sequence[Node], read: Callable[[NodeGres], int]) -> dict[Labels, float]:
    return {(node.name, gres.name, gres.model): read(gres) for node in nodes for gres in node.gres or ()}
