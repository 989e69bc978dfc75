# SPDX-License-Identifier: Apache-2.0
"""Convert the memory that nodes needed into what a job requests for each core.

A node gets the memory of its own cores: of nodes with 16 and 2 cores, the second one gets an eighth of the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from slurmscope.core.units import parse_bytes
from slurmscope.jobs.rule import needed_node_bytes
from slurmscope.jobs.summary import JobSummary

ROUNDING = 1.01
"""Slurm rounds memory up to whole MiB."""


MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")


def requests_memory_per_core(summary: JobSummary) -> bool:
    """Return whether a job got memory for each core, by its options or by default: then its nodes differ."""
    options, limits = summary.record.options, [node.limit_bytes for node in summary.nodes if node.limit_bytes]
    if options.keys() & MEMORY_OPTIONS or summary.record.gpus:
        return "mem-per-cpu" in options
    return bool(limits) and max(limits) > ROUNDING * min(limits)


def counted_cores(summary: JobSummary) -> float:
    """Return by how many cores Slurm multiplied the memory of each; 0 where that is unknown.

    They may be fewer than the allocated ones: above MaxMemPerCPU, Slurm adds cores instead of giving each more memory.
    """
    cpus, requested = summary.record.cpus or 0, summary.memory.requested_bytes
    try:
        each = parse_bytes(summary.record.options.get("mem-per-cpu", ""), default_unit="M")
    except ValueError:
        return float(cpus)
    counted = int(ROUNDING * requested / each) if requested and each else cpus
    return float(min(counted or cpus, cpus))


def counted_ratio(summary: JobSummary) -> float:
    """Return the share of the cores for which Slurm counted memory."""
    return counted_cores(summary) / summary.record.cpus if summary.record.cpus else 1.0


def counted_by_node(summary: JobSummary) -> Mapping[str, float]:
    """Return the counted cores of each node, as its memory limit shows them, or else its cores; none if one is unknown.

    The limit is exact; cores that no agent reports are assumed to be divided evenly.
    """
    count, nodes = max(1, summary.record.node_count), summary.nodes
    limits = {node.node: node.limit_bytes for node in nodes if node.limit_bytes}
    if len(limits) >= count:
        whole = math.fsum(limits.values())
        return {node: counted_cores(summary) * limit / whole for node, limit in limits.items()}
    cores = {node.node: node.cpus * counted_ratio(summary) for node in nodes if node.cpus}
    return cores if len(cores) >= count else {}


def spread_ratio(summary: JobSummary) -> float | None:
    """Return by how much the memory of the mean node exceeds the lowest of one; None where that is unknown.

    It is 1 for a job whose memory does not depend on the cores or GPUs of a node.
    """
    count = summary.record.node_count
    # Which node had how many of the GPUs is not known.
    if count > 1 and "mem-per-gpu" in summary.record.options:
        return None if summary.record.gpus % count else 1.0
    if count < 2 or not requests_memory_per_core(summary):
        return 1.0
    shares = counted_by_node(summary).values()
    ratio = math.fsum(shares) / count / min(shares) if shares else None
    return 1.0 if ratio is not None and ratio < ROUNDING else ratio


def may_lower_memory(summary: JobSummary) -> bool:
    """Return whether it is known what less memory would mean for each node, and that it takes away no used cores."""
    added = (summary.record.cpus or 0) - counted_cores(summary)
    busy = summary.cpu.peak_cores
    keeps_cores = not added or (busy is not None and busy <= counted_cores(summary) + 0.5)
    return keeps_cores and spread_ratio(summary) is not None


def even_need_bytes(summary: JobSummary) -> float | None:
    """Return the memory that each node has to get on average, so that every one has what it needed.

    None where memory depends on the cores or GPUs of a node that are unknown.
    """
    needed, spread = needed_node_bytes(summary), spread_ratio(summary)
    if spread is None or spread == 1:
        return None if spread is None else needed
    cores, count = counted_by_node(summary), summary.record.node_count
    needs = {node.node: node.working_peak_bytes for node in summary.nodes if node.working_peak_bytes is not None}
    # Slurm's peak was on any of the nodes.
    if len(needs) < count or max(needs.values()) < needed:
        return needed * spread
    return max(need / cores[node] for node, need in needs.items()) * math.fsum(cores.values()) / count
