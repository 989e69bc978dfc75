# SPDX-License-Identifier: Apache-2.0
"""Arrange what is known of a job as its page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.model.finding import Severity, Subject
from slurmscope.model.report import JobReport
from slurmscope.model.summary import Coverage, NodeSummary

CORE_WIDTH, CORE_HEIGHT = 5, 20
MOST_NODES = 100
"""Nodes in the table of the page; files have all of them."""
_MOST_CORES = 4096
"""Cores that are drawn, of all nodes together."""


class Compared(NamedTuple):
    """Set what was used beside what was asked for."""

    label: str
    asked: str
    used: str
    ratio: float | None
    note: str


class CoreStrip(NamedTuple):
    """Draw all cores of a node as one path, a bar for each; a thousand elements would make a page slow."""

    path: str
    cores: int
    idlest: float
    busiest: float


class NodeRow(NamedTuple):
    """Hold one node of the table."""

    node: NodeSummary
    cpu_ratio: float | None
    memory_ratio: float | None
    cores: CoreStrip | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """Hold what the page shows beside the report's own words."""

    is_live: bool
    compared: tuple[Compared, ...]
    nodes: tuple[NodeRow, ...]
    nodes_left_out: int
    subjects: dict[Subject, Severity]
    """The worst finding on each subject; its charts are marked with it."""
    runs: tuple[JobReport, ...]


def make_job_view(report: JobReport, runs: Sequence[JobReport]) -> JobView:
    """Arrange a report."""
    nodes = report.summary.nodes[:MOST_NODES]
    draws_cores = sum(len(node.core_seconds) for node in nodes) <= _MOST_CORES
    return JobView(
        is_live=not report.record.has_ended,
        compared=_compare(report),
        nodes=tuple(_node_row(node, report.summary.run_seconds, draws_cores=draws_cores) for node in nodes),
        nodes_left_out=len(report.summary.nodes) - len(nodes),
        subjects=_subjects(report),
        runs=tuple(runs),
    )


def _compare(report: JobReport) -> tuple[Compared, ...]:
    summary, record = report.summary, report.record
    cpu, memory, gpu = summary.cpu, summary.memory, summary.gpu
    cpu_note = "" if cpu.time.used is None else _covered(cpu.time.coverage)
    memory_note = ""
    if memory.best_peak_bytes is not None:
        memory_note = _covered(memory.coverage if memory.working_peak_bytes is not None else None)
    limit = "no limit" if summary.time.asked is None else format_seconds(summary.time.asked)
    rows = [
        Compared("Time", limit, format_seconds(summary.time.used), summary.time.ratio, ""),
        Compared("Nodes", f"{record.node_count:,}", _working_nodes(summary.nodes), None, ""),
        Compared("Cores", f"{record.cpus:,}", _cores(cpu.mean_cores), cpu.time.ratio, cpu_note),
        Compared(
            "CPU time",
            format_seconds(cpu.time.asked),
            format_seconds(cpu.time.used),
            cpu.time.ratio,
            "cores times run time was held",
        ),
        Compared(
            "Memory",
            format_bytes(memory.asked_bytes) if memory.asked_bytes is not None else "not known",
            format_bytes(memory.best_peak_bytes),
            memory.ratio,
            memory_note,
        ),
    ]
    if asked := max(gpu.asked, record.gpus):
        used = None if gpu.mean_utilization is None else gpu.mean_utilization * asked
        rows.append(Compared("GPUs", str(asked), _cores(used), gpu.mean_utilization, _covered(gpu.coverage)))
    return tuple(rows)


def _working_nodes(nodes: Sequence[NodeSummary]) -> str:
    """Count the nodes that did at least a hundredth of a core's work."""
    known = [node.mean_cores for node in nodes if node.mean_cores is not None]
    return f"{sum(cores >= 0.01 for cores in known):,} at work" if known else NOT_MEASURED


def _cores(busy: float | None) -> str:
    return NOT_MEASURED if busy is None else f"{format_count(busy)} busy on average"


def _covered(coverage: Coverage | None) -> str:
    if coverage is None:
        return "from Slurm's accounting"
    if not coverage.nodes_measured:
        return ""
    return (
        f"measured on {coverage.nodes_measured:,} of {format_some(coverage.nodes, 'node')}, "
        f"{format_ratio(coverage.run_ratio)} of the run"
    )


def _node_row(node: NodeSummary, run_seconds: float, *, draws_cores: bool) -> NodeRow:
    peak = node.working_peak_bytes
    return NodeRow(
        node=node,
        cpu_ratio=node.mean_cores / node.cpus if node.mean_cores is not None and node.cpus else None,
        memory_ratio=peak / node.limit_bytes if peak is not None and node.limit_bytes else None,
        cores=_draw_cores(node, run_seconds) if draws_cores and node.core_seconds and run_seconds > 0 else None,
    )


def _draw_cores(node: NodeSummary, run_seconds: float) -> CoreStrip:
    ordered = sorted(node.core_seconds.items(), key=_core_order)
    ratios = [min(1.0, seconds / run_seconds) for _, seconds in ordered]
    bars = (
        f"M{index * CORE_WIDTH} {CORE_HEIGHT}v-{ratio * CORE_HEIGHT:.1f}h{CORE_WIDTH - 1}V{CORE_HEIGHT}z"
        for index, ratio in enumerate(ratios)
    )
    return CoreStrip("".join(bars), len(ratios), min(ratios), max(ratios))


def _core_order(core: tuple[str, float]) -> tuple[int, str]:
    return (int(core[0]) if core[0].isdigit() else 0, core[0])


def _subjects(report: JobReport) -> dict[Subject, Severity]:
    ordered = sorted(report.findings, key=lambda finding: -finding.severity.rank)
    return {finding.subject: finding.severity for finding in ordered}
