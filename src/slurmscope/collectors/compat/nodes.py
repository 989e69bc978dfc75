# SPDX-License-Identifier: Apache-2.0
"""Export nodes and partitions under the metric names of an older exporter.

Memory is in bytes, converted with binary units; allocated memory is what the scheduler allocated, not total minus free.
The state is the long form of sinfo with its suffix: ``idle~``, ``down*``, ``mixed-``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slurmscope.collectors.node_sums import GroupLabels, Measure, NodeGroup, Sum, amount, cluster, partition
from slurmscope.metrics.family import Labels, compat_gauge

GPU = "gpu"


def _in_state(read: Callable[[NodeGroup], float]) -> Measure:
    """Return a measure labelled with the node state as shown by sinfo."""
    return lambda group: (((group.state_text,), read(group)),)


def _gpus(counts: Mapping[Labels, int]) -> int:
    return sum(count for (name, _), count in counts.items() if name == GPU)


def _gpus_by_model(counts: Mapping[Labels, int]) -> Iterable[tuple[Labels, float]]:
    return (((model,), count) for (name, model), count in counts.items() if name == GPU)


def _idle_gres(group: NodeGroup) -> Mapping[Labels, int]:
    return group.gres_unused if group.is_usable else dict.fromkeys(group.gres_unused, 0)


def _sum(name: str, help: str, view: GroupLabels, measure: Measure, *labels: str) -> Sum:
    return Sum(metric=compat_gauge(name, help, *labels), view=view, measure=measure)


SUMS = (
    _sum("slurm_cpus_total", "CPUs of all nodes.", cluster, amount(lambda group: group.cpus_total)),
    _sum("slurm_cpus_idle", "Idle CPUs as reported by sinfo.", cluster, amount(lambda group: group.cpus_idle)),
    _sum(
        "slurm_cpu_load",
        "Sum of the CPU loads of all nodes that report one.",
        cluster,
        amount(lambda group: group.load),
    ),
    _sum(
        "slurm_cpus_per_state",
        "CPUs of nodes by state.",
        cluster,
        _in_state(lambda group: group.cpus_total),
        "state",
    ),
    _sum("slurm_node_count_per_state", "Nodes by state.", cluster, _in_state(lambda group: group.nodes), "state"),
    _sum("slurm_mem_real", "Memory of all nodes in bytes.", cluster, amount(lambda group: group.memory_bytes)),
    _sum(
        "slurm_mem_free",
        "Free memory of all nodes in bytes, as reported by their operating systems.",
        cluster,
        amount(lambda group: group.free_memory_bytes),
    ),
    _sum(
        "slurm_mem_alloc",
        "Memory allocated to jobs in bytes.",
        cluster,
        amount(lambda group: group.allocated_memory_bytes),
    ),
    _sum(
        "slurm_partition_total_cpus",
        "CPUs of the nodes of a partition.",
        partition,
        amount(lambda group: group.cpus_total),
        "partition",
    ),
    _sum(
        "slurm_partition_idle_cpus",
        "Idle CPUs of a partition as reported by sinfo.",
        partition,
        amount(lambda group: group.cpus_idle),
        "partition",
    ),
    _sum(
        "slurm_partition_cpu_load",
        "Sum of the CPU loads of the nodes of a partition that report one.",
        partition,
        amount(lambda group: group.load),
        "partition",
    ),
    _sum(
        "slurm_partition_real_mem",
        "Memory of the nodes of a partition in bytes.",
        partition,
        amount(lambda group: group.memory_bytes),
        "partition",
    ),
    _sum(
        "slurm_partition_free_mem",
        "Free memory of the nodes of a partition in bytes, as reported by their operating systems.",
        partition,
        amount(lambda group: group.free_memory_bytes),
        "partition",
    ),
    _sum(
        "slurm_partition_weight",
        "Sum of the scheduling weights of the nodes of a partition.",
        partition,
        amount(lambda group: group.weight),
        "partition",
    ),
    _sum(
        "slurm_partition_alloc_cpus",
        "Allocated CPUs on the nodes of a partition, including jobs in other partitions.",
        partition,
        _in_state(lambda group: group.cpus_allocated),
        "partition",
        "state",
    ),
    _sum(
        "slurm_partition_alloc_mem",
        "Memory allocated to jobs on the nodes of a partition in bytes.",
        partition,
        _in_state(lambda group: group.allocated_memory_bytes),
        "partition",
        "state",
    ),
    _sum(
        "slurm_partition_node_count",
        "Nodes of a partition by state.",
        partition,
        _in_state(lambda group: group.nodes),
        "partition",
        "state",
    ),
    _sum("slurm_gpus_total", "GPUs of all nodes.", cluster, amount(lambda group: _gpus(group.gres_total))),
    _sum("slurm_gpus_alloc", "Allocated GPUs.", cluster, amount(lambda group: _gpus(group.gres_used))),
    _sum(
        "slurm_gpus_idle",
        "Idle GPUs on usable nodes.",
        cluster,
        amount(lambda group: _gpus(_idle_gres(group))),
    ),
    _sum(
        "slurm_gpus_total_per_type",
        "GPUs of all nodes by model.",
        cluster,
        lambda group: _gpus_by_model(group.gres_total),
        "type",
    ),
    _sum(
        "slurm_gpus_alloc_per_type",
        "Allocated GPUs by model.",
        cluster,
        lambda group: _gpus_by_model(group.gres_used),
        "type",
    ),
    _sum(
        "slurm_gpus_idle_per_type",
        "Idle GPUs on usable nodes, by model.",
        cluster,
        lambda group: _gpus_by_model(_idle_gres(group)),
        "type",
    ),
    _sum(
        "slurm_partition_total_gpus",
        "GPUs of the nodes of a partition.",
        partition,
        amount(lambda group: _gpus(group.gres_total)),
        "partition",
    ),
    _sum(
        "slurm_partition_alloc_gpus",
        "Allocated GPUs on the nodes of a partition.",
        partition,
        _in_state(lambda group: _gpus(group.gres_used)),
        "partition",
        "state",
    ),
)
"""Every sum that has an older name."""
