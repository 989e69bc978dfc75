# SPDX-License-Identifier: Apache-2.0
"""Prepare charts for the pages: as JSON for the script, and as short tables."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from slurmscope.analysis.heat_maps import find_heat_maps
from slurmscope.analysis.zoom import ZoomedReport
from slurmscope.figures import format_seconds
from slurmscope.model.report import Chart, ChartLine, JobReport
from slurmscope.portal.views.page_paths import name_job, shown_cluster
from slurmscope.portal.views.zoom import describe_zoom
from slurmscope.reports.formatting import format_time
from slurmscope.reports.svg.axes import format_value
from slurmscope.reports.svg.charts import fold
from slurmscope.reports.svg.heat_map import make_frame

TABLE_ROWS = 20
_OVERLAY_POINTS = 200


class DataTable(NamedTuple):
    """Hold a chart as text, for users who cannot see it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def encode_charts(charts: Sequence[Chart]) -> bytes:
    """Encode charts for the script on the page."""
    return msgspec.json.encode({"charts": [_to_json(fold(chart)) for chart in charts], "note": ""})


def encode_zoomed(zoomed: ZoomedReport) -> bytes:
    """Encode a part of a run: its charts, how fine they are, and where the cells of its heat maps are."""
    return msgspec.json.encode(
        {
            "charts": [_to_json(fold(chart), is_finer=chart.name in zoomed.finer) for chart in zoomed.report.charts],
            "note": describe_zoom(zoomed),
            "heat_maps": {heat_map.name: make_frame(heat_map) for heat_map in find_heat_maps(zoomed.report)},
        }
    )


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


def overlay_charts(reports: Sequence[JobReport]) -> tuple[Chart, ...]:
    """Overlay the charts of several jobs, by seconds since each job's start.

    Charts per core are left out: core numbers of different jobs are unrelated.
    """
    names = dict.fromkeys(chart.name for report in reports for chart in report.charts if chart.times)
    names.pop("cpu_core", None)
    return tuple(_overlay(name, reports) for name in names)


def _overlay(name: str, reports: Sequence[JobReport]) -> Chart:
    found = [(report, chart) for report in reports for chart in report.charts if chart.name == name and chart.times]
    first = found[0][1]
    longest = max(chart.times[-1] - _start(report, chart) for report, chart in found)
    times = tuple(longest * index / (_OVERLAY_POINTS - 1) for index in range(_OVERLAY_POINTS))
    lines = tuple(
        ChartLine(label=f"job {_name(report, reports)}", values=_resample(chart, _start(report, chart), times))
        for report, chart in found
    )
    title = f"{first.title}, median node" if any(report.record.node_count > 1 for report, _ in found) else first.title
    explained = f"{first.help} For a job on several nodes, the median node is shown.".strip()
    return replace(first, title=title, times=times, lines=lines, reference=None, reference_label="", help=explained)


def _name(report: JobReport, compared: Sequence[JobReport]) -> str:
    clusters = sorted({each.record.cluster for each in compared})
    return name_job(report.record.shown_id, shown_cluster(report.record.cluster, clusters))


def _start(report: JobReport, chart: Chart) -> float:
    start = report.record.start_seconds
    return chart.times[0] if start is None else start


def _resample(chart: Chart, start: float, times: Sequence[float]) -> tuple[float | None, ...]:
    """Return the last value before each time, or a gap if that is older than two steps of the chart."""
    values = _merge_lines(chart)
    own = [moment - start for moment in chart.times]
    step = max((own[-1] - own[0]) / max(1, len(own) - 1), times[1] - times[0])
    resampled: list[float | None] = []
    for moment in times:
        index = bisect.bisect_right(own, moment) - 1
        is_near = index >= 0 and moment - own[index] <= 2 * step
        resampled.append(values[index] if is_near else None)
    return tuple(resampled)


def _merge_lines(chart: Chart) -> Sequence[float | None]:
    """Merge the lines of a job into one: the median of its nodes, which is comparable between jobs of any size.

    Jobs on many nodes already have a median line. User and system time are added up.
    """
    medians = [line.values for line in chart.lines if line.label.startswith("median of ")]
    if medians:
        return medians[0]
    columns = zip(*(line.values for line in chart.lines), strict=True)
    known = ([value for value in column if value is not None] for column in columns)
    join = sum if chart.name == "cpu_split" else statistics.median
    return [join(values) if values else None for values in known]


def _choose_rows(count: int) -> list[int]:
    """Choose evenly spaced rows, including the first and the last."""
    if count <= TABLE_ROWS:
        return list(range(count))
    return [round(index * (count - 1) / (TABLE_ROWS - 1)) for index in range(TABLE_ROWS)]


def _shorten(value: float | None) -> float | None:
    """Return a value with five digits, more than any chart shows."""
    return value if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _to_json(chart: Chart, *, is_finer: bool = False) -> dict[str, object]:
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
