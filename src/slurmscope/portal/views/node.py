# SPDX-License-Identifier: Apache-2.0
"""Prepare the page of a node: its state, its size, and the curves of the jobs that the viewer may see on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurmscope.analysis.charts import fold_lines
from slurmscope.analysis.curves import align
from slurmscope.figures import format_bytes
from slurmscope.model.nodes import Node, Nodes
from slurmscope.model.report import Chart, ChartLine, JobReport
from slurmscope.model.series import Series
from slurmscope.reports.contents import LabelledText

_CHARTS = ("cpu", "memory", "gpu")


def find_node(nodes: Nodes | None, name: str) -> Node | None:
    """Return a node as the controller reports it; None if it is not known now."""
    return next((node for node in nodes.nodes if node.name == name), None) if nodes else None


def list_node_facts(node: Node, *, is_staff: bool) -> tuple[LabelledText, ...]:
    """List state and size of a node; reasons of down and drained nodes are for staff."""
    reason = f"{node.reason} ({node.reason_user})" if node.reason_user else node.reason or ""
    load = "unknown" if node.load is None else f"{node.load:.2f}"
    free = "unknown" if node.free_memory_bytes is None else format_bytes(node.free_memory_bytes)
    rows = (
        LabelledText("State", node.state_text),
        LabelledText("Reason", reason if is_staff else ""),
        LabelledText("Partitions", ", ".join(node.partitions)),
        LabelledText("Cores", f"{node.cpus_allocated:,} of {node.cpus_total:,} allocated, {node.cpus_idle:,} idle"),
        LabelledText("Load", load),
        LabelledText(
            "Memory", f"{format_bytes(node.allocated_memory_bytes)} of {format_bytes(node.memory_bytes)} allocated"
        ),
        LabelledText("Free memory", free),
        *(
            LabelledText(f"{gres.name} {gres.model}".strip(), f"{gres.used:,} of {gres.total:,} allocated")
            for gres in node.gres or ()
        ),
    )
    return tuple(row for row in rows if row.text)


def make_node_charts(name: str, reports: Sequence[JobReport], node: Node | None) -> tuple[Chart, ...]:
    """Draw what each of these jobs used on the node, with the size of the node as limit.

    Jobs on very many nodes have no curve of a single one.
    """
    limits = {"cpu": float(node.cpus_total), "memory": float(node.memory_bytes)} if node else {}
    made = (_make_chart(chart, name, reports, limits.get(chart)) for chart in _CHARTS)
    return tuple(chart for chart in made if chart is not None)


def _make_chart(chart_name: str, name: str, reports: Sequence[JobReport], limit: float | None) -> Chart | None:
    found = [
        (report, chart, line)
        for report in reports
        for chart in report.charts
        for line in chart.lines
        if chart.name == chart_name and line.label == name
    ]
    if not found:
        return None
    aligned = align([_as_series(report, chart, line) for report, chart, line in found])
    lines = fold_lines([ChartLine(label=labels[0], values=values) for labels, values in aligned.rows.items()])
    first = found[0][1]
    return replace(
        first,
        title=f"{first.title} by job",
        times=aligned.times,
        lines=lines,
        reference=limit,
        reference_label="" if limit is None else "whole node",
        help="What each job used on this node; only jobs that you have access to.",
    )


def _as_series(report: JobReport, chart: Chart, line: ChartLine) -> Series:
    known = [(time, value) for time, value in zip(chart.times, line.values, strict=True) if value is not None]
    times, values = tuple(time for time, _ in known), tuple(value for _, value in known)
    return Series((f"job {report.record.shown_id}",), times, values)
