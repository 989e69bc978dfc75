# SPDX-License-Identifier: Apache-2.0
"""Prepare curves for the screen: few enough lines to tell apart, few enough rows to read."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from slurmscope.figures import format_seconds
from slurmscope.model.report import Chart, ChartLine, JobReport
from slurmscope.reports.axes import say_value
from slurmscope.reports.charts_svg import fold
from slurmscope.reports.words import format_time

TABLE_ROWS = 20
_OVERLAY_POINTS = 200


class DataTable(NamedTuple):
    """Hold a chart in words, for those who cannot see it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def encode_charts(charts: Sequence[Chart]) -> bytes:
    """Write charts as the script on the page reads them."""
    return msgspec.json.encode({"charts": [_plain(fold(chart)) for chart in charts]})


def make_data_table(chart: Chart, *, is_run_time: bool = False) -> DataTable:
    """Put a chart into at most twenty rows of words."""
    few = fold(chart)
    show_time = format_seconds if is_run_time else format_time
    rows = [
        (show_time(few.times[index]), *(say_value(line.values[index], chart.unit) for line in few.lines))
        for index in _spread(len(few.times))
    ]
    first = "Run time" if is_run_time else "Time"
    return DataTable((first, *(line.label for line in few.lines)), tuple(rows))


def overlay_charts(reports: Sequence[JobReport]) -> tuple[Chart, ...]:
    """Lay the charts that several jobs have over each other, on an axis of seconds since each job's start.

    Cores of different jobs have nothing in common but their numbers.
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
        ChartLine(label=f"job {report.record.shown_id}", values=_resample(chart, _start(report, chart), times))
        for report, chart in found
    )
    title = f"{first.title}, median node" if any(report.record.node_count > 1 for report, _ in found) else first.title
    explained = f"{first.help} Of a job on several nodes, their median.".strip()
    return replace(first, title=title, times=times, lines=lines, reference=None, reference_label="", help=explained)


def _start(report: JobReport, chart: Chart) -> float:
    start = report.record.start_seconds
    return chart.times[0] if start is None else start


def _resample(chart: Chart, start: float, times: Sequence[float]) -> tuple[float | None, ...]:
    """Take for each time the last value before it, unless that is older than two steps of the chart: then a gap."""
    values = _one_line(chart)
    own = [moment - start for moment in chart.times]
    step = max((own[-1] - own[0]) / max(1, len(own) - 1), times[1] - times[0])
    taken: list[float | None] = []
    for moment in times:
        index = bisect.bisect_right(own, moment) - 1
        is_near = index >= 0 and moment - own[index] <= 2 * step
        taken.append(values[index] if is_near else None)
    return tuple(taken)


def _one_line(chart: Chart) -> Sequence[float | None]:
    """Make one line of a job: the median of its nodes, which jobs of any size can be compared by.

    A job on many nodes comes with its median ready. User and system time are parts of one whole.
    """
    ready = [line.values for line in chart.lines if line.label.startswith("median of ")]
    if ready:
        return ready[0]
    columns = zip(*(line.values for line in chart.lines), strict=True)
    known = ([value for value in column if value is not None] for column in columns)
    join = sum if chart.name == "cpu_split" else statistics.median
    return [join(values) if values else None for values in known]


def _spread(count: int) -> list[int]:
    """Choose rows over the whole length, the first and the last among them."""
    if count <= TABLE_ROWS:
        return list(range(count))
    return [round(index * (count - 1) / (TABLE_ROWS - 1)) for index in range(TABLE_ROWS)]


def _plain(chart: Chart) -> dict[str, object]:
    return {
        "name": chart.name,
        "title": chart.title,
        "unit": chart.unit,
        "times": chart.times,
        "lines": [{"label": line.label, "values": line.values} for line in chart.lines],
        "reference": chart.reference,
        "reference_label": chart.reference_label,
    }
