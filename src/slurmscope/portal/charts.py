# SPDX-License-Identifier: Apache-2.0
"""Prepare charts and heat maps for the pages: as JSON and as short tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from slurmscope.core.units import format_seconds
from slurmscope.jobs.heat_maps import find_differing, summarize_rows
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.render.svg.charts import fold, format_value
from slurmscope.jobs.render.svg.heat_map import HeatFrame, describe_heat_map, make_frame
from slurmscope.jobs.report import Chart, HeatMap, JobReport
from slurmscope.portal.context import not_found

TABLE_ROWS = 20
HEAT_WIDTH = 960
"""Heat maps fill the page."""


class DataTable(NamedTuple):
    """A chart as text, for users who cannot see it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


ChartT = TypeVar("ChartT", Chart, HeatMap)


def find_chart(charts: Iterable[ChartT], name: str) -> ChartT:
    """Return the chart or heat map of a name; respond 404 if there is none."""
    for chart in charts:
        if chart.name == name and chart.times:
            return chart
    raise not_found()


def encode_charts(charts: Sequence[Chart]) -> bytes:
    return msgspec.json.encode({"charts": [to_json(fold(chart)) for chart in charts], "note": ""})


def make_data_table(chart: Chart, *, is_run_time: bool = False) -> DataTable:
    """Make a table of at most twenty rows from a chart."""
    folded = fold(chart)
    format_moment = format_seconds if is_run_time else format_time
    rows = [
        (format_moment(folded.times[index]), *(format_value(line.values[index], chart.unit) for line in folded.lines))
        for index in _choose_rows(len(folded.times))
    ]
    first = "Run time" if is_run_time else "Time"
    return DataTable((first, *(line.label for line in folded.lines)), tuple(rows))


def _choose_rows(count: int) -> list[int]:
    """Choose evenly spaced rows, including the first and the last."""
    if count <= TABLE_ROWS:
        return list(range(count))
    return [round(index * (count - 1) / (TABLE_ROWS - 1)) for index in range(TABLE_ROWS)]


def _shorten(value: float | None) -> float | None:
    """Return a value with five digits, more than any chart shows."""
    return value if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def to_json(chart: Chart, *, is_finer: bool = False) -> dict[str, object]:
    return {
        "name": chart.name,
        "title": chart.title,
        "unit": chart.unit,
        "times": chart.times,
        "lines": [{"label": line.label, "values": [_shorten(value) for value in line.values]} for line in chart.lines],
        "reference": chart.reference,
        "reference_label": chart.reference_label,
        "is_finer": is_finer,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMapView:
    """What the page shows of a heat map; ``rows`` are label, mean, lowest and highest value."""

    name: str
    title: str
    help: str
    description: str
    unit: str
    first_column: str
    frame: HeatFrame
    rows: tuple[tuple[str, ...], ...]
    differing: frozenset[str]


def show_heat_maps(report: JobReport) -> tuple[HeatMapView, ...]:
    """Prepare the heat maps in which something differs."""
    return tuple(map(_show_heat_map, find_differing(report)))


def _show_heat_map(heat_map: HeatMap) -> HeatMapView:
    rows = summarize_rows(heat_map)
    return HeatMapView(
        name=heat_map.name,
        title=heat_map.title,
        help=heat_map.help,
        description=describe_heat_map(heat_map),
        unit=heat_map.unit,
        first_column="Core" if heat_map.name == "cpu_core" else "Node",
        frame=make_frame(heat_map, width=HEAT_WIDTH),
        rows=tuple(
            (row.label, *(format_value(value, heat_map.unit) for value in (row.mean, row.lowest, row.highest)))
            for row in rows
        ),
        differing=frozenset(row.label for row in rows if row.differs),
    )
