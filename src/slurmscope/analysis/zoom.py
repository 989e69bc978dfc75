# SPDX-License-Identifier: Apache-2.0
"""Make the charts and heat maps of a part of a run: from finer curves where there are any, else cut from the report."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.heat_maps import make_heat_maps
from slurmscope.analysis.queries import CURVES, PROFILED_CURVES, TRACED_BY_NODE, TRACED_CURVES
from slurmscope.model.report import Chart, ChartLine, HeatMap, JobReport
from slurmscope.model.series import Measured

_CURVES_OF: Mapping[str, tuple[str, ...]] = {
    "memory": ("memory_anon", "memory_shared", "memory_rss"),
    "cpu_split": ("cpu_user", "cpu_system"),
}
"""Curves of the charts that have another name than their curve."""
_WITHOUT = frozenset({*TRACED_CURVES, *TRACED_BY_NODE, *PROFILED_CURVES})
"""Curves of single processes and tasks, whose queries name them."""


class RunPart(NamedTuple):
    """Hold a part of a run, as Unix times."""

    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomedReport:
    """Hold a report whose charts and heat maps show only a part of the run."""

    report: JobReport
    part: RunPart
    finer: frozenset[str] = frozenset()
    """Names of the charts that have more points than the report has for this part."""
    problem: str = ""
    """Why finer curves could not be read."""

    @property
    def step_seconds(self) -> float | None:
        """Return the time between two points of the finer charts; None if there are none."""
        steps = [
            (chart.times[-1] - chart.times[0]) / (len(chart.times) - 1)
            for chart in self.report.charts
            if chart.name in self.finer and len(chart.times) > 1
        ]
        return median(steps) if steps else None


def find_curves(report: JobReport) -> tuple[str, ...]:
    """Return the names of the queries from which the charts of a report can be made again."""
    names = {chart.name for chart in report.charts}
    wanted = {curve for name in names for curve in _CURVES_OF.get(name, (name,))} - _WITHOUT
    return tuple(name for name in CURVES if name in wanted)


def zoom_report(report: JobReport, measured: Measured, part: RunPart, *, problem: str = "") -> ZoomedReport:
    """Return the report with finer charts; those that curves have no more points of are cut from the report."""
    cut = [_cut_chart(chart, part) for chart in report.charts]
    made = {chart.name: chart for chart in make_charts(report.summary, measured)}
    finer = frozenset(
        chart.name for chart in cut if chart.name in made and len(made[chart.name].times) > len(chart.times)
    )
    charts = (made[chart.name] if chart.name in finer else chart for chart in cut)
    heat_maps = (
        *(_cut_heat_map(heat_map, part) for heat_map in report.heat_maps if heat_map.name not in finer),
        *(heat_map for heat_map in make_heat_maps(report.summary, measured) if heat_map.name in finer),
    )
    zoomed = replace(
        report,
        charts=tuple(chart for chart in charts if chart.times),
        heat_maps=tuple(heat_map for heat_map in heat_maps if heat_map.times),
    )
    return ZoomedReport(report=zoomed, part=part, finer=finer, problem=problem)


def _cut_chart(chart: Chart, part: RunPart) -> Chart:
    points = _within(chart.times, part)
    return replace(chart, times=chart.times[points], lines=_cut_lines(chart.lines, points))


def _cut_heat_map(heat_map: HeatMap, part: RunPart) -> HeatMap:
    """Keep the cells that begin within the part."""
    cells = _within(heat_map.times, part)
    end = heat_map.times[cells.stop] if cells.stop < len(heat_map.times) else heat_map.end_seconds
    return replace(heat_map, times=heat_map.times[cells], end_seconds=end, rows=_cut_lines(heat_map.rows, cells))


def _cut_lines(lines: Sequence[ChartLine], points: slice) -> tuple[ChartLine, ...]:
    return tuple(replace(line, values=line.values[points]) for line in lines)


def _within(times: Sequence[float], part: RunPart) -> slice:
    return slice(bisect.bisect_left(times, part.from_seconds), bisect.bisect_right(times, part.to_seconds))
