# SPDX-License-Identifier: Apache-2.0
"""Compute what a job wasted beyond the cores and GPUs that it left idle."""

from __future__ import annotations

from slurmscope.model.summary import JobSummary
from slurmscope.rules.known import memory_peak_bytes


def blocked_core_seconds(summary: JobSummary) -> float | None:
    """Return the time of cores that the job blocked for others by memory that it requested and did not need.

    That is its share of a node's memory, as cores, beyond the cores that it had and beyond those that its needed memory
    stands for. None where the size of the nodes or the needed memory is unknown, or the job did not end by itself.
    """
    asked, peak = summary.memory.asked_bytes, memory_peak_bytes(summary.memory)
    if not summary.node_cpus or not summary.node_memory_bytes or asked is None or peak is None:
        return None
    if summary.record.state != "COMPLETED" or summary.record.cpus is None:
        return None
    cores_per_byte = summary.node_cpus / summary.node_memory_bytes
    held = max(float(summary.record.cpus), peak * cores_per_byte)
    return max(0.0, asked * cores_per_byte - held) * summary.run_seconds
