# SPDX-License-Identifier: Apache-2.0
"""Reduce a simulated cluster to an ordinary day.

The simulation puts everything that can break a parser into one cluster: every state, every reason, names that break
programs. A demo should show what people know from their own cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurmscope.simulator.cluster.people import HOSTILE_NAMES
from slurmscope.simulator.cluster.records import (
    CPU_HOLDING_STATES,
    ENDED_STATES,
    SimulatedCluster,
    SimulatedJob,
    SimulatedNode,
)
from slurmscope.slurm.states import WAITING_STATES

REASONS = frozenset(
    {"Priority", "Resources", "Dependency", "JobArrayTaskLimit", "QOSMaxJobsPerUserLimit", "Licenses", "BeginTime"}
)
TROUBLED_NODES = 5
"""So many nodes may be drained, failing or down."""


def calm(cluster: SimulatedCluster) -> SimulatedCluster:
    """Return the same jobs on the same nodes, with ordinary states, reasons and names."""
    return replace(
        cluster,
        jobs=tuple(_calm_job(job) for job in cluster.jobs if job.state not in ENDED_STATES or job.end_time),
        nodes=tuple(_calm_nodes(cluster.nodes)),
    )


def _calm_job(job: SimulatedJob) -> SimulatedJob:
    state = job.state
    if state in WAITING_STATES:
        state = "PENDING"
    elif state in CPU_HOLDING_STATES and state not in {"COMPLETING", "CONFIGURING"}:
        state = "RUNNING"
    is_odd = state == "PENDING" and job.reason not in REASONS
    return replace(
        job,
        name=f"job-{job.id % 1000}" if job.name in HOSTILE_NAMES else job.name,
        state="COMPLETED" if state == "STAGE_OUT" else state,
        reason="Priority" if is_odd else job.reason,
    )


def _calm_nodes(nodes: Iterable[SimulatedNode]) -> Iterator[SimulatedNode]:
    troubled = 0
    for node in nodes:
        is_known_trouble = bool(node.reason) and ("drain" in node.flags or node.base == "down")
        if is_known_trouble and troubled < TROUBLED_NODES:
            troubled += 1
            yield replace(node, flags=tuple(flag for flag in node.flags if flag in {"drain", "not_responding"}))
        else:
            yield _sound_node(node)


def _sound_node(node: SimulatedNode) -> SimulatedNode:
    used = node.cpus_allocated
    free_bytes = node.memory_bytes - 0.7 * node.memory_allocated_bytes
    return replace(
        node,
        base="idle" if not used else "mixed" if used < node.cpus else "allocated",
        flags=(),
        reason=None,
        reason_user=None,
        reason_time=None,
        cpu_load=round(0.9 * used + 0.1, 2) if node.cpu_load is None else node.cpu_load,
        memory_free_bytes=int(free_bytes) if node.memory_free_bytes is None else node.memory_free_bytes,
    )
