# SPDX-License-Identifier: Apache-2.0
"""Write tables as CSV and JSON.

A cell of CSV that a spreadsheet would take for a formula gets a quote mark in front; JSON has the text as it is.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from slurmscope.log import escape
from slurmscope.model.archive import JobRow, UseTotal
from slurmscope.model.report import Chart
from slurmscope.model.summary import NodeSummary
from slurmscope.portal.views.cluster_now import PartitionNow

# The wide forms of these signs start formulas too, in East Asian versions of spreadsheets.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NOT_IN_FILE_NAME = re.compile(r"[^A-Za-z0-9_+.-]")

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Hold rows of cells under the names of their columns; names of numbers end in their unit."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    is_cut: bool = False
    """Whether there were more rows than may be had at once."""


def render_csv(table: Table) -> str:
    """Write a table for spreadsheets; what was not measured is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows([_neutral(cell) for cell in row] for row in (table.columns, *table.rows))
    return stream.getvalue()


def render_table_json(table: Table) -> bytes:
    """Write a table as a list of objects; what was not measured is null."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return msgspec.json.encode({"rows": rows, "is_cut": table.is_cut})


def make_table_response(table: Table, format: str, name: str) -> Response:
    """Send a table as a file of this name; the name of one that was cut tells so, which no line of CSV could."""
    shown = f"{name}-first-{len(table.rows)}" if table.is_cut else name
    headers = {"Content-Disposition": f'attachment; filename="{_NOT_IN_FILE_NAME.sub("_", shown)}.{format}"'}
    if format == "json":
        return Response(render_table_json(table), media_type="application/json", headers=headers)
    return Response(render_csv(table), media_type="text/csv; charset=utf-8", headers=headers)


def make_job_table(rows: Iterable[JobRow], *, is_cut: bool = False) -> Table:
    """Make the table of a list of jobs."""
    return _make_table(JobRow, rows, is_cut=is_cut)


def make_total_table(totals: Iterable[UseTotal]) -> Table:
    """Make the table of sums."""
    return _make_table(UseTotal, totals)


def make_node_table(nodes: Iterable[NodeSummary]) -> Table:
    """Make the table of a job's nodes; what single cores did is in the report."""
    return _make_table(NodeSummary, nodes, leave_out=("core_seconds",))


def make_chart_table(chart: Chart) -> Table:
    """Make the table of a chart: one row for each time, one column for each line."""
    rows = zip(chart.times, *(line.values for line in chart.lines), strict=True)
    return Table(columns=("time_seconds", *(line.label for line in chart.lines)), rows=tuple(rows))


def make_partition_table(partitions: Iterable[PartitionNow]) -> Table:
    """Make the table of partitions."""
    return _make_table(PartitionNow, partitions)


def _make_table(kind: type, things: Iterable[object], *, is_cut: bool = False, leave_out: Sequence[str] = ()) -> Table:
    names = tuple(field.name for field in dataclasses.fields(kind) if field.name not in leave_out)
    rows = tuple(tuple(_cell(getattr(thing, name)) for name in names) for thing in things)
    return Table(columns=names, rows=rows, is_cut=is_cut)


def _cell(value: object) -> Cell:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value if value is None or isinstance(value, int | float) else str(value)


def _neutral(cell: Cell) -> Cell:
    if not isinstance(cell, str):
        return cell
    return f"'{escape(cell)}" if _FORMULA.match(cell) else escape(cell)
