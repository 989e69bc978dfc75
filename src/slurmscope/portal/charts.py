# SPDX-License-Identifier: Apache-2.0
"""Prepare charts and heat maps for the pages: as JSON, as short tables, and zoomed to a part of a run."""

from __future__ import annotations

import bisect
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import NamedTuple

import msgspec

from slurmscope.core.units import format_seconds
from slurmscope.jobs.heat_maps import find_heat_maps, summarise_rows
from slurmscope.jobs.render.formatting import as_datetime, format_time
from slurmscope.jobs.render.svg.charts import fold, format_value
from slurmscope.jobs.render.svg.heat_map import HeatFrame, describe_heat_map, make_frame
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, ChartLine, HeatMap, JobReport
from slurmscope.portal.queries import BadQuery
from slurmscope.reports.page_paths import name_job, shown_cluster
from slurmscope.reports.zoom import RunPart, ZoomedReport

MAX_TEXT = 40
MIN_SECONDS = 10.0
"""Shortest part of a run: no agent is scraped more often."""
_UNIX_TIME = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,3})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomView:
    """Hold the texts of the form, and the queries of the links to other parts; empty where there is none."""

    zone: str
    from_text: str
    to_text: str
    query: str
    closer: str
    wider: str
    earlier: str
    later: str
    note: str


def whole_run(report: JobReport) -> RunPart:
    """Return the whole run; raise BadQuery for a job that has not started."""
    record = report.record
    if record.start_seconds is None:
        raise BadQuery("The job has not started.")
    end = report.made_seconds if record.end_seconds is None else record.end_seconds
    return RunPart(float(record.start_seconds), float(max(end, record.start_seconds + 1)))


def parse_part(given: Mapping[str, str], report: JobReport, zone: tzinfo) -> RunPart | None:
    """Parse the parameters ``from`` and ``to``, within the run; None if there are none.

    Both are Unix times or ISO 8601; without an offset, ISO 8601 is in ``zone``.
    """
    texts = {name: given.get(name, "").strip() for name in ("from", "to")}
    if not any(texts.values()):
        return None
    run = whole_run(report)
    first = max(run.from_seconds, _parse_time("from", texts["from"], zone) if texts["from"] else run.from_seconds)
    last = min(run.to_seconds, _parse_time("to", texts["to"], zone) if texts["to"] else run.to_seconds)
    if last <= first:
        raise BadQuery("The part must be within the run of the job, and end after it begins.")
    # A shorter part is widened, not refused: dragging in a browser can select any part.
    missing = max(0.0, MIN_SECONDS - (last - first)) / 2
    return RunPart(first - missing, last + missing)


def count_points(part: RunPart, step: float) -> int:
    """Return how many points a chart of this part has with this step."""
    if not step:
        return MAX_CHART_POINTS
    return max(1, min(MAX_CHART_POINTS, int((part.to_seconds - part.from_seconds) / step)))


def make_zoom_view(zoomed: ZoomedReport, run: RunPart, zone: tzinfo, zone_name: str) -> ZoomView:
    """Prepare the page: links move by half of what is shown."""
    first, last = zoomed.part
    length = last - first
    return ZoomView(
        zone=zone_name,
        from_text=_format_local(first, zone),
        to_text=_format_local(last, zone),
        query=_query(zoomed.part, run),
        closer=_query(RunPart(first + length / 4, last - length / 4), run) if length >= 4 * MIN_SECONDS else "",
        wider=_query(RunPart(first - length / 2, last + length / 2), run) if zoomed.part != run else "",
        earlier=_query(RunPart(first - length / 2, last - length / 2), run) if first > run.from_seconds else "",
        later=_query(RunPart(first + length / 2, last + length / 2), run) if last < run.to_seconds else "",
        note=describe_zoom(zoomed),
    )


def describe_zoom(zoomed: ZoomedReport) -> str:
    """Describe how fine the curves are, or why they are not finer."""
    if zoomed.problem:
        return f"Finer data could not be read: {zoomed.problem}"
    step = zoomed.step_seconds
    if step is None:
        return "There are no finer data for this part of the run: the charts show what the report has."
    return f"A point every {format_seconds(step)}."


def _query(part: RunPart, run: RunPart) -> str:
    first, last = max(part.from_seconds, run.from_seconds), min(part.to_seconds, run.to_seconds)
    return f"from={first:.0f}&to={last:.0f}"


def _parse_time(name: str, text: str, zone: tzinfo) -> float:
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        if _UNIX_TIME.match(text):
            return float(text)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadQuery(f"The parameter {name} must be a time such as 2026-09-21T14:30, or a Unix time.") from None


def _format_local(seconds: float, zone: tzinfo) -> str:
    moment = as_datetime(round(seconds))
    return "" if moment is None else moment.astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")


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
