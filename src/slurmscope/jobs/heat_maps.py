# SPDX-License-Identifier: Apache-2.0
"""Make heat maps of a job: its nodes or cores over time, thinned so that a job of any size is one picture.

Charts with up to ``MAX_LINES`` lines hold every node; their heat maps are made from them when they are shown. Only
those of larger jobs are part of the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from slurmscope.core.hostlist import natural_order
from slurmscope.jobs.charts import MAX_LINES, align_chart
from slurmscope.jobs.curves import mean_known
from slurmscope.jobs.measured_run import MeasuredRun, prepare_run
from slurmscope.jobs.report import Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summary import JobSummary

MAX_POINTS = 60
MAX_ROWS = 64
DIFFERS = 0.15
"""A row differs from the others if its mean is this share of the scale away from the median row."""

Rows = Mapping[str, Sequence[float | None]]

_TITLES = {
    "cpu": ("Busy cores by node", "Share of the node's allocated cores that were busy."),
    "memory": ("Memory by node", "Memory in use on each node, as a share of its limit where that is known."),
    "gpu": ("GPU utilization by node", "Share of time in which the job's GPUs on the node were busy."),
    "cpu_core": ("Busy time by core", "Share of time in which each core was busy."),
}
_FOLDED = re.compile(r"(?:lowest|median|highest) of [0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """The mean, lowest and highest value of one row; None where nothing was measured."""

    label: str
    mean: float | None
    lowest: float | None
    highest: float | None
    differs: bool = False


def make_heat_maps(summary: JobSummary, measured: Measured) -> tuple[HeatMap, ...]:
    """Make the heat maps that charts cannot hold: those of more nodes or cores than a chart has lines."""
    if not any(
        len(measured.curves.get(name, ())) > MAX_LINES
        for name in ("cpu", "memory_anon", "memory_rss", "gpu", "cpu_core")
    ):
        return ()
    run = prepare_run(summary.record, measured, now_seconds=summary.end_seconds)
    made = (_from_curves(name, run, summary) for name in _TITLES)
    return tuple(heat_map for heat_map in made if heat_map is not None)


def find_heat_maps(report: JobReport) -> tuple[HeatMap, ...]:
    """Return every heat map of a report: stored ones, and those that its charts hold."""
    stored = {heat_map.name: heat_map for heat_map in report.heat_maps}
    charts = {chart.name: chart for chart in report.charts}
    found = (
        stored.get(name) or (_from_chart(charts[name], report.summary) if name in charts else None) for name in _TITLES
    )
    return tuple(heat_map for heat_map in found if heat_map is not None)


def find_differing(report: JobReport) -> tuple[HeatMap, ...]:
    """Return the heat maps in which a row differs: a chart shows as much of nodes that are alike."""
    return tuple(item for item in find_heat_maps(report) if any(row.differs for row in summarize_rows(item)))


def summarize_rows(heat_map: HeatMap) -> tuple[RowSummary, ...]:
    """Return the numbers of each row, and which of them differ from the others."""
    means = {line.label: mean_known(line.values) for line in heat_map.rows}
    known = [mean for mean in means.values() if mean is not None]
    middle = median(known) if known else 0.0
    reach = DIFFERS * (heat_map.full or max(known, default=0.0) or 1.0)
    return tuple(_summarize(line, means[line.label], middle, reach) for line in heat_map.rows)


def _from_curves(name: str, run: MeasuredRun, summary: JobSummary) -> HeatMap | None:
    aligned = align_chart(name, run, summary)
    if len(aligned.rows) <= MAX_LINES:
        return None
    rows = {" core ".join(labels): values for labels, values in aligned.rows.items()}
    return _make(name, aligned.times, rows, summary)


def _from_chart(chart: Chart, summary: JobSummary) -> HeatMap | None:
    if any(_FOLDED.fullmatch(line.label) for line in chart.lines):
        return None
    return _make(chart.name, chart.times, {line.label: line.values for line in chart.lines}, summary)


def _make(name: str, times: Sequence[float], rows: Rows, summary: JobSummary) -> HeatMap | None:
    if len(rows) < 2 or len(times) < 2:
        return None
    unit, scaled = _scale(name, rows, summary)
    width = -(-len(times) // MAX_POINTS)
    thin = {label: _thin(values, width) for label, values in scaled.items()}
    kept = _choose(thin)
    title, explained = _TITLES[name]
    # A point of a curve is of the step before it, a column begins at its time.
    step = (times[-1] - times[0]) / (len(times) - 1)
    return HeatMap(
        name=name,
        title=title,
        unit=unit,
        times=tuple(time - step for time in times[::width]),
        end_seconds=times[-1],
        rows=tuple(ChartLine(label=label, values=thin[label]) for label in kept),
        rows_left_out=len(thin) - len(kept),
        full=1.0 if unit == "ratio" else None,
        help=explained,
    )


def _scale(name: str, rows: Rows, summary: JobSummary) -> tuple[str, Rows]:
    """Return rows as shares of what each node had, where that is known for all of them."""
    if name in {"gpu", "cpu_core"}:
        return "ratio", rows
    nodes = {node.node: node for node in summary.nodes}
    sizes = {
        label: (node.cpus if name == "cpu" else node.limit_bytes) if (node := nodes.get(label)) else None
        for label in rows
    }
    if not all(sizes.values()):
        return ("cores" if name == "cpu" else "bytes"), rows
    return "ratio", {
        label: [None if value is None else value / (sizes[label] or 1.0) for value in values]
        for label, values in rows.items()
    }


def _thin(values: Sequence[float | None], width: int) -> tuple[float | None, ...]:
    """Return the mean of every ``width`` points, with three digits: a colour does not show more."""
    return tuple(_short(mean_known(values[index : index + width])) for index in range(0, len(values), width))


def _choose(rows: Rows) -> list[str]:
    """Return the labels to draw in their natural order; of too many those that differ most from the median row."""
    labels = sorted(rows, key=natural_order)
    if len(labels) <= MAX_ROWS:
        return labels
    means = {label: mean_known(rows[label]) for label in labels}
    middle = median([mean for mean in means.values() if mean is not None] or [0.0])
    far = sorted(labels, key=lambda label: -abs((means[label] or 0.0) - middle))
    return sorted(far[:MAX_ROWS], key=natural_order)


def _summarize(line: ChartLine, mean: float | None, middle: float, reach: float) -> RowSummary:
    known = [value for value in line.values if value is not None]
    return RowSummary(
        label=line.label,
        mean=mean,
        lowest=min(known, default=None),
        highest=max(known, default=None),
        differs=mean is not None and abs(mean - middle) > reach,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")
