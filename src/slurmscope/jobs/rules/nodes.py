# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its nodes."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from statistics import fmean

from slurmscope.core.units import format_bytes, format_rate, format_ratio, format_some
from slurmscope.jobs.rule import (
    MIN_WORKING_CORES,
    Match,
    Rule,
    Severity,
    Subject,
    Threshold,
    Thresholds,
    has_gpus,
    step_requests,
    step_tasks,
)
from slurmscope.jobs.suggestions import fewer_nodes_line, may_have_nodes, submitted_tasks
from slurmscope.jobs.summary import JobSummary

LISTED_NODES = 5
IDLE_RATIO = 0.05
"""A node that did less than this share of the mean was idle."""
UNUSED_RATIO = 0.01
"""A network that carried less than this share of what another one did was not used."""


def _node_imbalance(summary: JobSummary, values: Thresholds) -> Match | None:
    measured = [(node.node, node.mean_cores, node.cpus) for node in summary.nodes if node.mean_cores is not None]
    # The number of cores may differ between nodes: compare the busy share of each node's own cores.
    busy = {node: cores / cpus for node, cores, cpus in measured if cpus}
    if len(busy) < max(2, len(measured)) or not summary.coverage.is_good or has_gpus(summary):
        return None
    mean_cores, mean = fmean(cores for _, cores, _ in measured), fmean(busy.values())
    if mean_cores < MIN_WORKING_CORES:
        return None
    behind = sorted((ratio, node) for node, ratio in busy.items() if ratio < values["min_share_ratio"] * mean)
    if not behind:
        return None
    idle = sum(ratio < IDLE_RATIO * mean for ratio, _ in behind)
    enough = len(busy) - idle
    return Match(
        explanation=f"{len(behind):,} of {format_some(len(busy), 'node')} did much less than the others: "
        f"{_listing(behind)}, while the mean was {format_ratio(mean)}.",
        numbers={
            "nodes_behind": float(len(behind)),
            "idle_nodes": float(idle),
            "mean_cores": mean_cores,
            "mean_busy_ratio": mean,
        },
        suggestion=f"#SBATCH --nodes={enough}" if idle and _can_start(summary, enough, len(busy)) else "",
        severity=Severity.CRITICAL if idle else None,
        without=_with_nodes(summary, busy.keys() - {node for _, node in behind}),
    )


def _can_start(summary: JobSummary, nodes: int, of_nodes: int) -> bool:
    """Return whether every step can start on fewer nodes: each of its tasks needs a core.

    Tasks that were requested by node only become fewer with the nodes, also those of a step that names no number. Where
    accounting has no submit lines, it is not known whether a step does.
    """
    options = summary.record.options
    by_node = "ntasks-per-node" in options and "ntasks" not in options
    is_known = by_node and bool(summary.record.submit_line)
    is_fixed = not is_known or any("ntasks" in request for request, _ in step_requests(summary))
    tasks = (step_tasks(summary) or 1) if is_fixed else 0
    return may_have_nodes(summary, nodes) and tasks * of_nodes <= (summary.record.cpus or 0) * nodes


def _with_nodes(summary: JobSummary, names: Collection[str]) -> JobSummary:
    """Return the job as if it had run on these nodes only, with the same cores and memory on each."""
    record, memory, time = summary.record, summary.memory, summary.cpu.time
    nodes = tuple(node for node in summary.nodes if node.node in names)
    share = len(nodes) / len(summary.nodes)
    peaks = [node.working_peak_bytes for node in nodes]
    known = [peak for peak in peaks if peak is not None]
    cpus = math.fsum(node.cpus or 0.0 for node in nodes)
    requested_seconds = time.requested * cpus / record.cpus if time.requested and record.cpus else None
    used_seconds = math.fsum(node.mean_cores or 0.0 for node in nodes) * summary.run_seconds
    return replace(
        summary,
        record=replace(record, node_count=len(nodes), cpus=round(cpus), requested_cpus=None),
        cpu=replace(summary.cpu, time=replace(time, requested=requested_seconds, used=used_seconds)),
        memory=replace(
            memory,
            requested_bytes=None if memory.requested_bytes is None else memory.requested_bytes * share,
            working_peak_bytes=math.fsum(known) if len(known) == len(peaks) else None,
        ),
        nodes=nodes,
    )


def _listing(behind: list[tuple[float, str]]) -> str:
    named = [f"{node} had {format_ratio(ratio)} of its cores busy" for ratio, node in behind[:LISTED_NODES]]
    rest = len(behind) - LISTED_NODES
    return ", ".join(named) + (f", and {format_some(rest, 'more node')}" if rest > 0 else "")


def _too_many_nodes(summary: JobSummary, values: Thresholds) -> Match | None:
    record, memory = summary.record, summary.memory.requested_bytes
    nodes, cpus = record.node_count, record.cpus
    if nodes < 2 or not cpus or has_gpus(summary):
        return None
    if not summary.node_cpus or not summary.node_memory_bytes:
        return None
    by_cores = _nodes_for_tasks(summary, cpus, summary.node_cpus)
    by_memory = math.ceil((memory or 0.0) / summary.node_memory_bytes)
    enough = max(1, by_cores, by_memory)
    if enough > values["max_needed_ratio"] * nodes:
        return None
    each = f" and {format_bytes(memory / nodes)} of memory" if memory else ""
    return Match(
        explanation=f"The job was spread over {nodes:,} nodes with {format_some(cpus / nodes, 'core')}{each} each. "
        f"{format_some(enough, 'node')} would have been enough.",
        numbers={"nodes": float(nodes), "cores": float(cpus), "enough_nodes": float(enough)},
        suggestion=fewer_nodes_line(summary, enough),
    )


def _nodes_for_tasks(summary: JobSummary, cpus: int, node_cpus: float) -> int:
    """Return how many nodes the cores fit on; those of a task have to be on one node."""
    tasks = submitted_tasks(summary)
    if tasks is None:
        return math.ceil(cpus / max(1.0, node_cpus))
    fitting = int(node_cpus // math.ceil(cpus / tasks))
    return math.ceil(tasks / fitting) if fitting else summary.record.node_count


def _node_failed(summary: JobSummary, _values: Thresholds) -> Match | None:
    state = summary.record.state
    if state not in {"NODE_FAIL", "BOOT_FAIL"}:
        return None
    what = "A node failed while the job ran" if state == "NODE_FAIL" else "A node failed to boot for the job"
    return Match(explanation=f"{what}. The job did not cause this.")


def _network_fallback(summary: JobSummary, values: Thresholds) -> Match | None:
    sent, nodes = summary.sent_bytes, summary.record.node_count
    fast = [sent[transport] for transport in ("infiniband", "roce", "rdma", "slingshot") if transport in sent]
    if nodes < 2 or not fast or not summary.run_seconds:
        return None
    slow = sent.get("ethernet", 0.0)
    rate = slow / nodes / summary.run_seconds
    if rate < values["min_bytes_per_second"] or sum(fast) > UNUSED_RATIO * slow:
        return None
    return Match(
        explanation=f"Each node sent {format_rate(rate)} over Ethernet and next to nothing over its fast network "
        f"({format_bytes(sum(fast))} in total).",
        numbers={"ethernet_bytes_per_second": rate, "fast_bytes": sum(fast)},
    )


RULES = (
    Rule(
        id="network_fallback",
        title="The fast network was not used",
        subject=Subject.NODES,
        severity=Severity.WARNING,
        needs="network counters of every node of a multi-node job that was alone on its nodes",
        advice="Check that the MPI or NCCL library finds the fast network: run it once with I_MPI_DEBUG=5, "
        "UCX_LOG_LEVEL=info or NCCL_DEBUG=INFO, and look for tcp or NET/Socket in its output.",
        check=_network_fallback,
        thresholds=(
            Threshold("min_bytes_per_second", "bytes", 100e6, "Ignore nodes that sent less over Ethernet, per second."),
        ),
    ),
    Rule(
        id="node_failed",
        title="A node failed",
        subject=Subject.NODES,
        severity=Severity.CRITICAL,
        needs="the job's state",
        advice="Submit the job again. If it happens twice, report the job ID to your cluster's support.",
        check=_node_failed,
        min_run_seconds=0.0,
        explains=("node_imbalance", "stopped_early"),
    ),
    Rule(
        id="node_imbalance",
        title="Some nodes did much less than others",
        subject=Subject.NODES,
        severity=Severity.WARNING,
        needs="CPU time and cores of every node of a multi-node job; no GPUs",
        advice="Check that the program runs on all nodes (start it with srun), and that the work is divided evenly.",
        check=_node_imbalance,
        thresholds=(Threshold("min_share_ratio", "ratio", 0.5, "Report nodes below this share of the mean."),),
        explains=("cpu_idle", "core_imbalance", "memory_over_requested", "too_many_nodes"),
    ),
    Rule(
        id="too_many_nodes",
        title="Spread over more nodes than needed",
        subject=Subject.NODES,
        severity=Severity.INFO,
        needs="the allocation, and the sizes of its nodes from sinfo; no GPUs",
        advice="Request fewer nodes with more tasks on each: communication within a node is faster, and nodes are less "
        "fragmented.",
        check=_too_many_nodes,
        thresholds=(
            Threshold(
                "max_needed_ratio", "ratio", 0.5, "Report jobs for which this share of their nodes would be enough."
            ),
        ),
    ),
)
