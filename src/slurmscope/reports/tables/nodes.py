# SPDX-License-Identifier: Apache-2.0
"""Tabulate the nodes of a job, or the lowest, median and highest values where there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio
from slurmscope.model.report import JobReport
from slurmscope.model.summary import NodeSummary
from slurmscope.reports.formatting import show

MAX_NODE_ROWS = 20

_STATISTICS: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("lowest", min), ("median", median), ("highest", max)
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Hold rows of text, and a note about them where one is needed."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def make_node_table(report: JobReport) -> TextTable:
    """Make one row for each node, or three for all nodes."""
    nodes = report.summary.nodes
    head = ("Node", *(column for column, _, _ in _COLUMNS))
    if len(nodes) <= MAX_NODE_ROWS:
        return TextTable(head=head, rows=tuple((show(node.node, 64), *_cells([node], min)) for node in nodes))
    return TextTable(
        head=head,
        rows=tuple((name, *_cells(nodes, statistic)) for name, statistic in _STATISTICS),
        note=f"{len(nodes):,} nodes; each value is taken over all nodes, a row is not one node.",
    )


def _cells(nodes: Sequence[NodeSummary], statistic: Callable[[Sequence[float]], float]) -> tuple[str, ...]:
    cells = []
    for _, read, format_value in _COLUMNS:
        known = [value for value in map(read, nodes) if value is not None]
        text = format_value(statistic(known)) if known else NOT_MEASURED
        cells.append("–" if text == NOT_MEASURED else text)
    return tuple(cells)


def _cpu_ratio(node: NodeSummary) -> float | None:
    return node.mean_cores / node.cpus if node.mean_cores is not None and node.cpus else None


_COLUMNS: tuple[tuple[str, Callable[[NodeSummary], float | None], Callable[[float | None], str]], ...] = (
    ("CPU", _cpu_ratio, format_ratio),
    ("Busy cores", lambda node: node.mean_cores, format_count),
    ("Memory", lambda node: node.working_peak_bytes, format_bytes),
    ("Limit", lambda node: node.limit_bytes, format_bytes),
    ("GPU", lambda node: node.gpu_utilization, format_ratio),
    ("Read", lambda node: node.read_bytes, format_bytes),
    ("Written", lambda node: node.write_bytes, format_bytes),
)
