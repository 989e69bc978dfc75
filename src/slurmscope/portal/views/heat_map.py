# SPDX-License-Identifier: Apache-2.0
"""Prepare a heat map for the page of a job: its picture, which rows differ, and their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.analysis.heat_maps import summarise_rows
from slurmscope.model.report import HeatMap
from slurmscope.reports.svg.axes import format_value
from slurmscope.reports.svg.heat_map import HeatFrame, describe_heat_map, make_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMapView:
    """Hold what the page shows of a heat map; ``rows`` are label, mean, lowest and highest value."""

    name: str
    title: str
    help: str
    description: str
    unit: str
    first_column: str
    frame: HeatFrame
    rows: tuple[tuple[str, ...], ...]
    differing: frozenset[str]


def show_heat_map(heat_map: HeatMap) -> HeatMapView:
    """Prepare one heat map."""
    rows = summarise_rows(heat_map)
    return HeatMapView(
        name=heat_map.name,
        title=heat_map.title,
        help=heat_map.help,
        description=describe_heat_map(heat_map),
        unit=heat_map.unit,
        first_column="Core" if heat_map.name == "cpu_core" else "Node",
        frame=make_frame(heat_map),
        rows=tuple(
            (row.label, *(format_value(value, heat_map.unit) for value in (row.mean, row.lowest, row.highest)))
            for row in rows
        ),
        differing=frozenset(row.label for row in rows if row.differs),
    )
