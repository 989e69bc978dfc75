# SPDX-License-Identifier: Apache-2.0
"""Write tables as CSV and JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
from starlette.responses import Response

from slurmscope.figures import round_number
from slurmscope.model.advice import AdviceTotal
from slurmscope.model.archive import JobRow, UseTotal
from slurmscope.model.report import Chart, ChartLine, HeatMap
from slurmscope.model.summary import NodeSummary
from slurmscope.portal.views.cluster_now import PartitionNow, QueueRow
from slurmscope.portal.views.waiting_summary import WaitingTable
from slurmscope.reports.csv_rows import Cell, render_csv_rows
from slurmscope.reports.formatting import as_datetime

_NOT_IN_FILE_NAME = re.compile(r"[^A-Za-z0-9_+.-]")

_TIMES = {
    "submit_seconds": "submit_time",
    "start_seconds": "start_time",
    "end_seconds": "end_time",
    "time_seconds": "time",
}
"""Columns with Unix times, and what their times in ISO 8601 are called."""

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Hold column names and rows of cells; names of numeric columns end in their unit."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    is_cut: bool = False
    """Whether rows beyond the limit were left out."""


def render_csv(table: Table) -> str:
    """Render a table as CSV; values that were not measured are empty cells, and times are also in ISO 8601."""
    timed = add_times(table)
    return render_csv_rows((timed.columns, *timed.rows))


def add_times(table: Table) -> Table:
    """Append a column with the time in ISO 8601 for each column with a Unix time."""
    found = [(index, _TIMES[name]) for index, name in enumerate(table.columns) if name in _TIMES]
    if not found:
        return table
    rows = [(*row, *(_format_iso(row[index]) for index, _ in found)) for row in table.rows]
    return Table(columns=(*table.columns, *(name for _, name in found)), rows=rows, is_cut=table.is_cut)


def _format_iso(seconds: Cell) -> str | None:
    moment = as_datetime(seconds) if isinstance(seconds, int | float) else None
    return moment.isoformat(timespec="seconds") if moment else None


def render_table_json(table: Table) -> bytes:
    """Render a table as a list of objects; values that were not measured are null."""
    return msgspec.json.encode({"rows": msgspec.Raw(render_json_rows(table)), "is_cut": table.is_cut})


def render_json_rows(table: Table) -> bytes:
    """Render the rows of a table as a list of objects."""
    return msgspec.json.encode([dict(zip(table.columns, row, strict=True)) for row in table.rows])


def make_table_response(table: Table, format: str, name: str) -> Response:
    """Send a table as a file; the file name says if rows were left out, because CSV has no place for that."""
    shown = f"{name}-first-{len(table.rows)}" if table.is_cut else name
    body = render_table_json(table) if format == "json" else render_csv(table)
    return Response(body, media_type=MEDIA_TYPES[format], headers=make_file_headers(shown, format))


def make_file_headers(name: str, format: str) -> dict[str, str]:
    """Return the headers of a downloaded file."""
    return {"Content-Disposition": f'attachment; filename="{_NOT_IN_FILE_NAME.sub("_", name)}.{format}"'}


def make_job_table(rows: Iterable[JobRow]) -> Table:
    """Make a table of jobs."""
    return _make_table(JobRow, rows)


def make_total_table(totals: Iterable[UseTotal]) -> Table:
    """Make a table of totals."""
    return _make_table(UseTotal, totals)


def make_advice_table(totals: Iterable[AdviceTotal]) -> Table:
    """Make a table of what became of advice."""
    return _make_table(AdviceTotal, totals)


def make_node_table(nodes: Iterable[NodeSummary]) -> Table:
    """Make a table of a job's nodes; values per core are in the report."""
    return _make_table(NodeSummary, nodes, exclude=("core_seconds",))


def make_chart_table(chart: Chart) -> Table:
    """Make a table of a chart: one row per time, one column per line."""
    return _make_curve_table(chart.times, chart.lines)


def make_heat_table(heat_map: HeatMap) -> Table:
    """Make a table of a heat map: one row per time, one column per node or core."""
    return replace(_make_curve_table(heat_map.times, heat_map.rows), is_cut=heat_map.rows_left_out > 0)


def make_partition_table(partitions: Iterable[PartitionNow]) -> Table:
    """Make a table of partitions."""
    return _make_table(PartitionNow, partitions)


def make_queue_table(rows: Iterable[QueueRow]) -> Table:
    """Make a table of pending jobs by partition and reason."""
    return _make_table(QueueRow, rows)


def make_shape_table(table: WaitingTable) -> Table:
    """Make a table of waiting times: one row per shape that had jobs."""
    found = [
        (table.partition, cores, limit, cell.jobs, cell.median_seconds, cell.p90_seconds, table.cluster)
        for cores, cells in table.rows
        for limit, cell in zip(table.columns, cells, strict=True)
        if cell is not None
    ]
    columns = ("partition", "cores", "time_limit", "jobs", "median_seconds", "p90_seconds", "cluster")
    return Table(columns=columns, rows=found)


def _make_curve_table(times: Sequence[float], lines: Sequence[ChartLine]) -> Table:
    rows = zip(times, *(map(_cell, line.values) for line in lines), strict=True)
    return Table(columns=("time_seconds", *(line.label for line in lines)), rows=tuple(rows))


def _make_table(kind: type, items: Iterable[object], *, exclude: Sequence[str] = ()) -> Table:
    names = tuple(field.name for field in dataclasses.fields(kind) if field.name not in exclude)
    rows = tuple(tuple(_cell(getattr(item, name)) for name in names) for item in items)
    return Table(columns=names, rows=rows)


def _cell(value: object) -> Cell:
    if isinstance(value, float):
        return round_number(value)
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return value if value is None or isinstance(value, int) else str(value)
