# SPDX-License-Identifier: Apache-2.0
"""Sum nodes over the whole cluster and over each partition, also under the metric names of an older exporter.

Memory is in bytes, converted with binary units; allocated memory is what the scheduler allocated, not total minus free.
The state is the long form of sinfo with its suffix: ``idle~``, ``down*``, ``mixed-``.

Thousands of nodes are in few states and few sets of partitions. Nodes that share both are summed first, into a
:class:`NodeGroup`; every sum over the cluster or a partition then adds a few groups. A :class:`Sum` names what is
added (its measure) and by which labels (its view).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.cluster.sinfo import Node, can_run_jobs
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """The sums of nodes in one state and one set of partitions.

    The three mappings count generic resources by name and model; ``gres_unused`` counts as idle only if
    ``is_usable``. None means that no node of the group reported a value.
    """

    partitions: tuple[str, ...]
    base_state: str
    flags: frozenset[str]
    state_text: str
    is_usable: bool
    nodes: int
    cpus_total: int
    cpus_allocated: int
    cpus_idle: int
    memory_bytes: int
    allocated_memory_bytes: int
    weight: int
    free_memory_bytes: int | None
    load: float | None
    gres_total: Mapping[Labels, int]
    gres_used: Mapping[Labels, int]
    gres_unused: Mapping[Labels, int]


Measure = Callable[[NodeGroup], Iterable[tuple[Labels, float]]]
GroupLabels = Callable[[NodeGroup], Iterable[Labels]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Declare one summed metric; the labels of the view come before those of the measure.

    ``known`` are label values that are exported as 0 if no group has them.
    """

    metric: Metric
    view: GroupLabels
    measure: Measure
    known: tuple[Labels, ...] = ()

    def family(self, groups: Sequence[NodeGroup]) -> Family:
        """Sum the measure over the groups."""
        prefixes = dict.fromkeys(prefix for group in groups for prefix in self.view(group))
        samples: dict[Labels, float] = {prefix + labels: 0 for prefix in prefixes for labels in self.known}
        for group in groups:
            amounts = tuple(self.measure(group))
            for prefix in self.view(group):
                for labels, amount in amounts:
                    key = prefix + labels
                    samples[key] = samples.get(key, 0) + amount
        # Loads have two decimals; their sum has no more.
        return Family(self.metric, {labels: round(total, 6) for labels, total in samples.items()})


def cluster(group: NodeGroup) -> Iterable[Labels]:  # noqa: ARG001 - one of the two views
    """Count a group once, for the whole cluster."""
    return ((),)


def partition(group: NodeGroup) -> Iterable[Labels]:
    return ((name,) for name in group.partitions)


def amount(read: Callable[[NodeGroup], float | None]) -> Measure:
    """Return a measure without labels; values that were not measured are left out."""

    def measure(group: NodeGroup) -> Iterable[tuple[Labels, float]]:
        value = read(group)
        return () if value is None else (((), value),)

    return measure


def group_nodes(nodes: Iterable[Node]) -> tuple[NodeGroup, ...]:
    """Group nodes by partitions and state, and sum each group."""
    alike: dict[tuple[tuple[str, ...], str, frozenset[str], str], list[Node]] = {}
    for node in nodes:
        alike.setdefault((node.partitions, node.base_state, node.flags, node.state_text), []).append(node)
    return tuple(_add_up(members) for members in alike.values())


def _add_up(nodes: Sequence[Node]) -> NodeGroup:
    first = nodes[0]
    loads = [node.load for node in nodes if node.load is not None]
    free_memories = [node.free_memory_bytes for node in nodes if node.free_memory_bytes is not None]
    total, used, unused = _add_gres(nodes)
    return NodeGroup(
        partitions=first.partitions,
        base_state=first.base_state,
        flags=first.flags,
        state_text=first.state_text,
        is_usable=can_run_jobs(first.base_state, first.flags),
        nodes=len(nodes),
        cpus_total=sum(node.cpus_total for node in nodes),
        cpus_allocated=sum(node.cpus_allocated for node in nodes),
        cpus_idle=sum(node.cpus_idle for node in nodes),
        memory_bytes=sum(node.memory_bytes for node in nodes),
        allocated_memory_bytes=sum(node.allocated_memory_bytes for node in nodes),
        weight=sum(node.weight for node in nodes),
        free_memory_bytes=sum(free_memories) if free_memories else None,
        load=sum(loads) if loads else None,
        gres_total=total,
        gres_used=used,
        gres_unused=unused,
    )


def _add_gres(nodes: Iterable[Node]) -> tuple[Counter[Labels], Counter[Labels], Counter[Labels]]:
    total: Counter[Labels] = Counter()
    used: Counter[Labels] = Counter()
    unused: Counter[Labels] = Counter()
    # The texts of equal resources were parsed once, so equal ones are nearly always one object.
    for resources, count in Counter(node.gres for node in nodes if node.gres).items():
        for gres in resources:
            key = (gres.name, gres.model)
            total[key] += gres.total * count
            used[key] += gres.used * count
            # A node may have lost devices that a job still holds.
            unused[key] += max(0, gres.total - gres.used) * count
    return total, used, unused


GPU = "gpu"


def _gpus(counts: Mapping[Labels, int]) -> int:
    return sum(count for (name, _), count in counts.items() if name == GPU)


def _gpus_by_model(counts: Mapping[Labels, int]) -> Iterable[tuple[Labels, float]]:
    return (((model,), count) for (name, model), count in counts.items() if name == GPU)


def _idle_gres(group: NodeGroup) -> Mapping[Labels, int]:
    return group.gres_unused if group.is_usable else dict.fromkeys(group.gres_unused, 0)


_Read = Callable[[NodeGroup], float | None]


def _of_cluster(name: str, help: str, read: _Read) -> Sum:
    return Sum(metric=compat_gauge(name, help), view=cluster, measure=amount(read))


def _of_partition(name: str, help: str, read: _Read) -> Sum:
    return Sum(metric=compat_gauge(name, help, "partition"), view=partition, measure=amount(read))


def _by_state(of: Callable[..., Sum], name: str, help: str, read: Callable[[NodeGroup], float]) -> Sum:
    whole = of(name, help, read)
    metric = compat_gauge(name, help, *whole.metric.labels, "state")
    return Sum(metric=metric, view=whole.view, measure=lambda group: (((group.state_text,), read(group)),))


def _by_type(name: str, help: str, read: Callable[[NodeGroup], Mapping[Labels, int]]) -> Sum:
    metric = compat_gauge(name, help, "type")
    return Sum(metric=metric, view=cluster, measure=lambda group: _gpus_by_model(read(group)))


SUMS = (
    _of_cluster("slurm_cpus_total", "CPUs of all nodes.", lambda group: group.cpus_total),
    _of_cluster("slurm_cpus_idle", "Idle CPUs as reported by sinfo.", lambda group: group.cpus_idle),
    _of_cluster("slurm_cpu_load", "Sum of the CPU loads of all nodes that report one.", lambda group: group.load),
    _by_state(_of_cluster, "slurm_cpus_per_state", "CPUs of nodes by state.", lambda group: group.cpus_total),
    _by_state(_of_cluster, "slurm_node_count_per_state", "Nodes by state.", lambda group: group.nodes),
    _of_cluster("slurm_mem_real", "Memory of all nodes in bytes.", lambda group: group.memory_bytes),
    _of_cluster(
        "slurm_mem_free",
        "Free memory of all nodes in bytes, as reported by their operating systems.",
        lambda group: group.free_memory_bytes,
    ),
    _of_cluster("slurm_mem_alloc", "Memory allocated to jobs in bytes.", lambda group: group.allocated_memory_bytes),
    _of_partition("slurm_partition_total_cpus", "CPUs of the nodes of a partition.", lambda group: group.cpus_total),
    _of_partition(
        "slurm_partition_idle_cpus", "Idle CPUs of a partition as reported by sinfo.", lambda group: group.cpus_idle
    ),
    _of_partition(
        "slurm_partition_cpu_load",
        "Sum of the CPU loads of the nodes of a partition that report one.",
        lambda group: group.load,
    ),
    _of_partition(
        "slurm_partition_real_mem", "Memory of the nodes of a partition in bytes.", lambda group: group.memory_bytes
    ),
    _of_partition(
        "slurm_partition_free_mem",
        "Free memory of the nodes of a partition in bytes, as reported by their operating systems.",
        lambda group: group.free_memory_bytes,
    ),
    _of_partition(
        "slurm_partition_weight",
        "Sum of the scheduling weights of the nodes of a partition.",
        lambda group: group.weight,
    ),
    _by_state(
        _of_partition,
        "slurm_partition_alloc_cpus",
        "Allocated CPUs on the nodes of a partition, including jobs in other partitions.",
        lambda group: group.cpus_allocated,
    ),
    _by_state(
        _of_partition,
        "slurm_partition_alloc_mem",
        "Memory allocated to jobs on the nodes of a partition in bytes.",
        lambda group: group.allocated_memory_bytes,
    ),
    _by_state(_of_partition, "slurm_partition_node_count", "Nodes of a partition by state.", lambda group: group.nodes),
    _of_cluster("slurm_gpus_total", "GPUs of all nodes.", lambda group: _gpus(group.gres_total)),
    _of_cluster("slurm_gpus_alloc", "Allocated GPUs.", lambda group: _gpus(group.gres_used)),
    _of_cluster("slurm_gpus_idle", "Idle GPUs on usable nodes.", lambda group: _gpus(_idle_gres(group))),
    _by_type("slurm_gpus_total_per_type", "GPUs of all nodes by model.", lambda group: group.gres_total),
    _by_type("slurm_gpus_alloc_per_type", "Allocated GPUs by model.", lambda group: group.gres_used),
    _by_type("slurm_gpus_idle_per_type", "Idle GPUs on usable nodes, by model.", _idle_gres),
    _of_partition(
        "slurm_partition_total_gpus", "GPUs of the nodes of a partition.", lambda group: _gpus(group.gres_total)
    ),
    _by_state(
        _of_partition,
        "slurm_partition_alloc_gpus",
        "Allocated GPUs on the nodes of a partition.",
        lambda group: _gpus(group.gres_used),
    ),
)
"""Every sum that has an older name."""
