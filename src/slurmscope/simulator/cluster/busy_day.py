# SPDX-License-Identifier: Apache-2.0
"""Show a simulated cluster on a busy day: no core is idle while jobs wait for one, and the hours before were alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, cycle
from random import Random

from slurmscope.core.units import GIB
from slurmscope.simulator.cluster.records import GpuPool, SimulatedCluster, SimulatedJob, SimulatedNode
from slurmscope.slurm.states import PENDING, RUNNING

GPU_MODEL = "h100"
"""The one whose measurements are simulated."""
_NODES_PER_JOB = (1, 2, 1, 4)
_MEMORY_SHARE = 0.6
_MEMORY_HUNGRY = 4
"""Every so many of the added jobs take all memory, and leave cores that nothing can use."""
_STRIDE = 7
"""Takes jobs of all partitions in turn."""
_DAY_SECONDS = 86_400.0


def fill(cluster: SimulatedCluster) -> SimulatedCluster:
    """Run further jobs on sound nodes until no other fits; all GPUs are of one model."""
    nodes = {node.name: _with_one_model(node) for node in cluster.nodes}
    jobs = [replace(job, gpu_type=GPU_MODEL if job.gpus_per_node else "") for job in cluster.jobs]
    templates = [job for job in jobs if job.state == RUNNING and job.array_id is None and job.het_id is None]
    taken = {job.id for job in jobs}
    for turn, group in enumerate(list(_group_idle(nodes.values()))):
        fitting = [job for job in templates if job.partitions[0] in group[0].partitions]
        if not fitting:
            continue
        like = fitting[_STRIDE * turn % len(fitting)]
        is_hungry = turn % _MEMORY_HUNGRY == 1 and not _idle_gpus(group[0])
        job = _run(like, group, (0.75, 1.0) if is_hungry else (1.0, _MEMORY_SHARE))
        job = replace(job, id=next(number for number in count(like.id) if number not in taken))
        taken.add(job.id)
        jobs.append(job)
        nodes.update((node.name, _occupy(node, job)) for node in group)
    return replace(cluster, jobs=tuple(jobs), nodes=tuple(nodes.values()))


def _with_one_model(node: SimulatedNode) -> SimulatedNode:
    if not node.gpus:
        return node
    total, used = sum(pool.total for pool in node.gpus), sum(pool.used for pool in node.gpus)
    return replace(node, gpus=(GpuPool(type=GPU_MODEL, total=total, used=used),), features=f"nvme,{GPU_MODEL}")


def _group_idle(nodes: Iterable[SimulatedNode]) -> Iterator[list[SimulatedNode]]:
    """Yield groups of nodes that have the same idle."""
    alike: defaultdict[object, list[SimulatedNode]] = defaultdict(list)
    for node in nodes:
        if not node.reason and node.cpus > node.cpus_allocated:
            alike[node.partitions, node.cpus - node.cpus_allocated, _idle_gpus(node)].append(node)
    sizes = cycle(_NODES_PER_JOB)
    for members in alike.values():
        while members:
            size = next(sizes)
            yield members[:size]
            del members[:size]


def _idle_gpus(node: SimulatedNode) -> int:
    return sum(pool.total - pool.used for pool in node.gpus)


def _run(like: SimulatedJob, nodes: list[SimulatedNode], shares: tuple[float, float]) -> SimulatedJob:
    """Return a job like another one that runs on these nodes, on such shares of their idle cores and memory."""
    free_bytes = min(node.memory_bytes - node.memory_allocated_bytes for node in nodes)
    gpus = _idle_gpus(nodes[0])
    return replace(
        like,
        nodes=len(nodes),
        node_names=tuple(node.name for node in nodes),
        cpus_per_node=math.ceil((nodes[0].cpus - nodes[0].cpus_allocated) * shares[0]),
        memory_per_node_bytes=int(free_bytes * shares[1]) // GIB * GIB,
        gpus_per_node=gpus,
        gpu_type=GPU_MODEL if gpus else "",
        licenses=None,
    )


def _occupy(node: SimulatedNode, job: SimulatedJob) -> SimulatedNode:
    cpus = node.cpus_allocated + job.cpus_per_node
    allocated_bytes = node.memory_allocated_bytes + job.memory_per_node_bytes
    return replace(
        node,
        base="allocated" if cpus == node.cpus else "mixed",
        cpus_allocated=cpus,
        memory_allocated_bytes=allocated_bytes,
        memory_free_bytes=int(node.memory_bytes - 0.7 * allocated_bytes),
        cpu_load=round(0.9 * cpus, 2),
        gpus=tuple(replace(pool, used=pool.total) for pool in node.gpus),
    )


def samples_of(
    cluster: SimulatedCluster, at_seconds: float
) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Yield the numbers of jobs and cores as the controller reported them then; at the cluster's time, those of it."""
    age = max(0.0, cluster.now - at_seconds) / _DAY_SECONDS
    night = (1 - math.cos(2 * math.pi * age)) / 2
    ripple = math.sin(23 * 2 * math.pi * age) * math.sin(7 * 2 * math.pi * age)
    rows = {state: sum(job.rows for job in cluster.jobs if job.state == state) for state in (RUNNING, PENDING)}
    used, cores = sum(node.cpus_allocated for node in cluster.nodes), sum(node.cpus for node in cluster.nodes)
    unusable = sum(node.cpus - node.cpus_allocated for node in cluster.nodes if node.reason)
    allocated = round(used * (1 - 0.16 * night - 0.04 * ripple**2))
    for state, share in ((RUNNING, 0.2 * night + 0.06 * ripple**2), (PENDING, 0.6 * night + 0.1 * ripple)):
        yield "slurm_jobs", (("state", state),), float(round(rows[state] * (1 - share)))
    for state, number in (
        ("allocated", allocated),
        ("idle", cores - unusable - allocated),
        ("unusable", unusable),
    ):
        yield "slurm_cpus", (("state", state),), float(number)


_FILESYSTEMS = {"scratch": 1.0, "home": 0.05}
_FILE_USE = {"read": 30e6, "write": 20e6, "metadata": 40.0}
"""Means of a job, per second and square root of its cores."""


def file_use_of(cluster: SimulatedCluster) -> Mapping[str, Mapping[SimulatedJob, Mapping[str, float]]]:
    """Return what running jobs read and write per second by file system, always the same for the same jobs."""
    running = [job for job in cluster.jobs if job.state == RUNNING and job.array_id is None and job.het_id is None]
    return {
        filesystem: {job: _draw_use(Random(f"{filesystem} of {job.id}"), share * job.cpus**0.5) for job in running}
        for filesystem, share in _FILESYSTEMS.items()
    }


def _draw_use(random: Random, scale: float) -> Mapping[str, float]:
    return {quantity: scale * mean * random.expovariate(1.0) for quantity, mean in _FILE_USE.items()}
