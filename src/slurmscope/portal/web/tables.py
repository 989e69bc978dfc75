# SPDX-License-Identifier: Apache-2.0
"""Send a long list of jobs as a file, without keeping it in memory as a whole.

The rows are rendered and compressed as they are read, and decompressed as they are sent: a slow reader of megabytes
takes a few hundred kilobytes. Nothing is sent before the last row is read, so that a failure has its own status.
"""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from slurmscope.archive.job_columns import JobRow
from slurmscope.core.units import round_number
from slurmscope.jobs.render.formatting import as_datetime
from slurmscope.jobs.report import Chart, ChartLine, HeatMap
from slurmscope.portal.cluster_now import WaitingTable
from slurmscope.reports.job_table import Cell, render_csv_rows

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")


def round_fields(item: T) -> T:
    """Return a dataclass with its floating-point numbers rounded."""
    rounded = {
        name: round_number(value)
        for name in _float_fields(type(item))
        if isinstance(value := getattr(item, name), float)
    }
    return dataclasses.replace(item, **rounded)


@cache
def _float_fields(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the fields that may hold such a number, by their annotation."""
    return tuple(field.name for field in dataclasses.fields(kind) if "float" in str(field.type))


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
    """Column names and rows of cells; names of numeric columns end in their unit."""

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
    return msgspec.json.encode([dict(zip(table.columns, row, strict=True)) for row in table.rows])


def make_table_response(table: Table, format: str, name: str) -> Response:
    """Send a table as a file; the file name says if rows were left out, because CSV has no place for that."""
    shown = f"{name}-first-{len(table.rows)}" if table.is_cut else name
    body = render_table_json(table) if format == "json" else render_csv(table)
    return Response(body, media_type=MEDIA_TYPES[format], headers=make_file_headers(shown, format))


def make_file_headers(name: str, format: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{_NOT_IN_FILE_NAME.sub("_", name)}.{format}"'}


def make_chart_table(chart: Chart) -> Table:
    """Make a table of a chart: one row per time, one column per line."""
    return _make_curve_table(chart.times, chart.lines, chart.unit)


def make_heat_table(heat_map: HeatMap) -> Table:
    """Make a table of a heat map: one row per time, one column per node or core."""
    return replace(_make_curve_table(heat_map.times, heat_map.rows, heat_map.unit), is_cut=heat_map.rows_left_out > 0)


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


def _make_curve_table(times: Sequence[float], lines: Sequence[ChartLine], unit: str) -> Table:
    rows = zip(times, *([_cell(value, unit) for value in line.values] for line in lines), strict=True)
    return Table(columns=("time_seconds", *(line.label for line in lines)), rows=tuple(rows))


def make_table(kind: type, items: Iterable[object], *, exclude: Sequence[str] = ()) -> Table:
    """Make a table of dataclasses of one kind: one column per field."""
    names = tuple(field.name for field in dataclasses.fields(kind) if field.name not in exclude)
    units = {name: name.rpartition("_")[2] for name in names}
    rows = tuple(tuple(_cell(getattr(item, name), units[name]) for name in names) for item in items)
    return Table(columns=names, rows=rows)


def _cell(value: object, unit: str) -> Cell:
    if isinstance(value, float):
        # A mean of bytes is no more exact than one of them.
        return round(value) if unit.startswith("bytes") and math.isfinite(value) else round_number(value)
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return value if value is None or isinstance(value, int) else str(value)


PART_ROWS = 500
_LEVEL = 1


def make_job_file(rows: Iterable[JobRow], format: str, name: str, *, limit: int) -> Response:
    """Send jobs up to the limit as CSV or JSON; if further ones are left out, the file name says so."""
    jobs = _LimitedRows(iter(rows), limit)
    render = _render_json if format == "json" else _render_csv
    packed, size = [], 0
    for text in render(jobs):
        packed.append(zlib.compress(text, _LEVEL))
        size += len(text)
    headers = make_file_headers(f"{name}-first-{jobs.count}" if jobs.is_cut else name, format)
    headers["Content-Length"] = str(size)
    return StreamingResponse(_unpack(packed), media_type=MEDIA_TYPES[format], headers=headers)


class _LimitedRows:
    """Read rows in parts up to a limit; afterwards ``is_cut`` says whether there were more."""

    def __init__(self, rows: Iterator[JobRow], limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self.count = 0
        self.is_cut = False

    def __iter__(self) -> Iterator[list[JobRow]]:
        while part := list(islice(self._rows, min(PART_ROWS, self._limit - self.count))):
            self.count += len(part)
            yield part
        self.is_cut = next(self._rows, None) is not None


def _render_csv(jobs: _LimitedRows) -> Iterator[bytes]:
    yield render_csv(make_table(JobRow, ())).encode()
    for part in jobs:
        yield render_csv_rows(add_times(make_table(JobRow, part)).rows).encode()


def _render_json(jobs: _LimitedRows) -> Iterator[bytes]:
    yield b'{"rows":['
    for part in jobs:
        is_first = jobs.count == len(part)
        yield (b"" if is_first else b",") + render_json_rows(make_table(JobRow, part))[1:-1]
    yield b'],"is_cut":true}' if jobs.is_cut else b'],"is_cut":false}'


async def _unpack(packed: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in packed:
        yield zlib.decompress(part)
