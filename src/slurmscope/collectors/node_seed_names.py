# SPDX-License-Identifier: Apache-2.0
"""Keep the names under which an older exporter made nodes and partitions known.

Memory is in bytes of the true binary unit, and allocated memory is what the scheduler gave away, not what is not free.
The text of a state is the long form of sinfo with its suffix: ``idle~``, ``down*``, ``mixed-``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slurmscope.collectors.node_sums import GroupLabels, Measure, NodeGroup, Sum, amount, cluster, partition
from slurmscope.metrics.family import Labels, seed_gauge

GPU = "gpu"


def _in_state(read: Callable[[NodeGroup], float]) -> Measure:
    """Measure an amount under the state in which sinfo shows the nodes."""
    return lambda group: (((group.state_text,), read(group)),)


def _gpus(counts: Mapping[Labels, int]) -> int:
    return sum(count for (name, _), count in counts.items() if name == GPU)


def _gpus_by_model(counts: Mapping[Labels, int]) -> Iterable[tuple[Labels, float]]:
    return (((model,), count) for (name, model), count in counts.items() if name == GPU)


def _idle_gres(group: NodeGroup) -> Mapping[Labels, int]:
    return group.gres_unused if group.is_usable else dict.fromkeys(group.gres_unused, 0)


def _sum(name: str, help: str, view: GroupLabels, measure: Measure, *labels: str) -> Sum:
    return Sum(metric=seed_gauge(name, help, *labels), view=view, measure=measure)


SUMS = (
    _sum("slurm_cpus_total", "CPUs of all nodes.", cluster, amount(lambda group: group.cpus_total)),
    _sum("slurm_cpus_idle", "Idle CPUs as sinfo counts them.", cluster, amount(lambda group: group.cpus_idle)),
    _sum("slurm_cpu_load", "Sum of the loads of all nodes that report one.", cluster, amount(lambda group: group.load)),
    _sum(
        "slurm_cpus_per_state",
        "CPUs of nodes in this state.",
        cluster,
        _in_state(lambda group: group.cpus_total),
        "state",
    ),
    _sum("slurm_node_count_per_state", "Nodes in this state.", cluster, _in_state(lambda group: group.nodes), "state"),
    _sum("slurm_mem_real", "Bytes of memory of all nodes.", cluster, amount(lambda group: group.memory_bytes)),
    _sum(
        "slurm_mem_free",
        "Bytes of memory that the operating systems of all nodes have free.",
        cluster,
        amount(lambda group: group.free_memory_bytes),
    ),
    _sum(
        "slurm_mem_alloc",
        "Bytes of memory that the scheduler has given to jobs.",
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
        "Idle CPUs of a partition as sinfo counts them.",
        partition,
        amount(lambda group: group.cpus_idle),
        "partition",
    ),
    _sum(
        "slurm_partition_cpu_load",
        "Sum of the loads of the nodes of a partition that report one.",
        partition,
        amount(lambda group: group.load),
        "partition",
    ),
    _sum(
        "slurm_partition_real_mem",
        "Bytes of memory of the nodes of a partition.",
        partition,
        amount(lambda group: group.memory_bytes),
        "partition",
    ),
    _sum(
        "slurm_partition_free_mem",
        "Bytes of memory that the operating systems of the nodes of a partition have free.",
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
        "Allocated CPUs of the nodes of a partition, by any job, also of other partitions.",
        partition,
        _in_state(lambda group: group.cpus_allocated),
        "partition",
        "state",
    ),
    _sum(
        "slurm_partition_alloc_mem",
        "Bytes of memory that the scheduler has given to jobs on the nodes of a partition.",
        partition,
        _in_state(lambda group: group.allocated_memory_bytes),
        "partition",
        "state",
    ),
    _sum(
        "slurm_partition_node_count",
        "Nodes of a partition in this state.",
        partition,
        _in_state(lambda group: group.nodes),
        "partition",
        "state",
    ),
    _sum("slurm_gpus_total", "GPUs of all nodes.", cluster, amount(lambda group: _gpus(group.gres_total))),
    _sum("slurm_gpus_alloc", "GPUs that jobs hold.", cluster, amount(lambda group: _gpus(group.gres_used))),
    _sum(
        "slurm_gpus_idle",
        "GPUs that no job holds, on nodes that can take work.",
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
        "GPUs that jobs hold by model.",
        cluster,
        lambda group: _gpus_by_model(group.gres_used),
        "type",
    ),
    _sum(
        "slurm_gpus_idle_per_type",
        "GPUs that no job holds, on nodes that can take work, by model.",
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
        "GPUs that jobs hold on the nodes of a partition.",
        partition,
        _in_state(lambda group: _gpus(group.gres_used)),
        "partition",
        "state",
    ),
)
"""Every family of this file."""
