# SPDX-License-Identifier: Apache-2.0
"""Make summaries of measured jobs for tests of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurmscope.core.tres import Gres
from slurmscope.jobs.findings import judge
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    GpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)
from tests.fakes.reports import make_record

GIB = float(1 << 30)
HOUR = 3600.0


def covered(nodes: int = 1, run_ratio: float = 1.0) -> Coverage:
    """Make the coverage of a job all of whose nodes were measured."""
    return Coverage(nodes=nodes, nodes_measured=nodes, run_ratio=run_ratio)


def make_summary(
    *,
    record: dict[str, Any] | None = None,
    run_seconds: float = 2 * HOUR,
    busy: float = 1.0,
    cpu: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    **changed: Any,
) -> JobSummary:
    """Make a measured job of two hours, four cores and 8 GiB without findings, then change it."""
    made = make_record(**({"time_limit_seconds": 3 * 3600} | (record or {})))
    coverage = covered(made.node_count)
    cores = busy * (made.cpus or 0)
    cpu_time = UsedShare(requested=(made.cpus or 0) * run_seconds, used=cores * run_seconds, coverage=coverage)
    summary = JobSummary(
        record=made,
        run_seconds=run_seconds,
        time=UsedShare(requested=made.time_limit_seconds, used=run_seconds),
        cpu=CpuSummary(time=cpu_time, mean_cores=cores, peak_cores=cores, idle_tail_seconds=0.0),
        memory=MemorySummary(
            requested_bytes=8 * GIB,
            working_peak_bytes=6 * GIB,
            growth_ratio=1.0,
            is_bounded=True,
            oom_kills=0,
            coverage=coverage,
        ),
        nodes=tuple(NodeSummary(node=name, cpus=4.0, mean_cores=cores, limit_bytes=8 * GIB) for name in made.nodes),
        coverage=coverage,
        node_cpus=16.0,
        node_memory_bytes=32 * GIB,
    )
    summary = replace(summary, cpu=replace(summary.cpu, **(cpu or {})))
    summary = replace(summary, memory=replace(summary.memory, **(memory or {})))
    return replace(summary, **changed)


def with_gpus(count: int = 2, **gpu: Any) -> JobSummary:
    """Make a job that requested GPUs."""
    known = GpuSummary(requested=count, coverage=covered())
    return make_summary(record={"gres": (Gres(name="gpu", count=count),)}, gpu=replace(known, **gpu))


def with_io(**io: Any) -> JobSummary:
    """Make a job that reads and writes."""
    return make_summary(io=IoSummary(**io))


def in_kernel(user_seconds: float | None, system_seconds: float | None, calls: int) -> JobSummary:
    """Make a job that read 120,000 KiB in so many calls."""
    io = IoSummary(read_bytes=120_000 * 1024.0, write_bytes=0.0, reads=float(calls), writes=0.0)
    return make_summary(cpu={"user_seconds": user_seconds, "system_seconds": system_seconds}, io=io)


def with_nodes(*cores: float, **changed: Any) -> JobSummary:
    """Make a job with so many busy cores on each of its nodes."""
    names = tuple(f"n{index}" for index in range(len(cores)))
    return make_summary(
        record={"nodes": names, "node_count": len(cores), "cpus": 4 * len(cores), "memory_bytes": None},
        nodes=tuple(NodeSummary(node=n, cpus=4.0, mean_cores=c) for n, c in zip(names, cores, strict=True)),
        **changed,
    )


def with_cores(*seconds: float, **changed: Any) -> JobSummary:
    """Make a job with so much CPU time on each of its cores."""
    node = NodeSummary(node="n1", core_seconds={str(index): value for index, value in enumerate(seconds)})
    return make_summary(nodes=(node,), **changed)


def all_findings(summary: JobSummary, thresholds: Mapping[str, float] | None = None) -> list[Finding]:
    """Check a job with all rules, and return causes and consequences."""
    return [each for finding in judge(summary, thresholds) for each in finding.with_consequences]
