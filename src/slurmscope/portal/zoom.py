# SPDX-License-Identifier: Apache-2.0
"""Show a part of a job's run, with finer data where there are any; works without scripts.

Finer curves are cached, and read once for all who request them, one at a time for each part: a page without scripts
requests each of its charts. What is not cached counts against the limits of the user who requests it.
"""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from statistics import median
from typing import NamedTuple

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.core.cache import Cache
from slurmscope.core.errors import SourceError
from slurmscope.core.units import format_seconds
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.heat_maps import find_heat_maps, make_heat_maps
from slurmscope.jobs.queries import CURVES, PROFILED_CURVES, TRACED_BY_NODE, TRACED_CURVES
from slurmscope.jobs.render.formatting import as_datetime
from slurmscope.jobs.render.svg.charts import fold
from slurmscope.jobs.render.svg.heat_map import make_frame
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.series import Curves, JobSpan, Measured, SeriesSource
from slurmscope.portal.charts import HEAT_WIDTH, make_data_table, show_heat_maps, to_json
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery
from slurmscope.reports.find import LookupLimits

_CURVES_OF: Mapping[str, tuple[str, ...]] = {
    "memory": ("memory_anon", "memory_shared", "memory_rss"),
    "cpu_split": ("cpu_user", "cpu_system"),
}
"""Curves of the charts that have another name than their curve."""
_WITHOUT = frozenset({*TRACED_CURVES, *TRACED_BY_NODE, *PROFILED_CURVES})
"""Curves of single processes and tasks, whose queries name them."""


class RunPart(NamedTuple):
    """A part of a run, as Unix times."""

    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomedReport:
    """A report whose charts and heat maps show only a part of the run."""

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


TIMEOUT_SECONDS = 20.0
FAILED_SECONDS = 10.0
"""How long a failure is returned before the curves are read again."""
MAX_KEPT = 64
MESSAGE = "too many parts of jobs were requested; try again in a few seconds"


class Zoomer:
    """Return parts of runs; thread-safe."""

    def __init__(
        self,
        series: SeriesSource | None,
        *,
        is_own: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Take the time series source, and whether its series of a job ID are those of a cluster's job.

        Without them, charts are cut from the report.
        """
        self._series = series
        self._is_own = is_own
        self._timeout_seconds = timeout_seconds
        self._limits = LookupLimits(clock, message=MESSAGE)
        self._cache = Cache[ZoomedReport](_keep_seconds, max_keys=MAX_KEPT, clock=clock)

    def zoom(self, user: str, report: JobReport, part: RunPart, points: int = MAX_CHART_POINTS) -> ZoomedReport:
        """Return the part of a run for a user who may see the job; raise TooManyLookups beyond the user's limit."""
        names = find_curves(report)
        series = self._series
        if series is None or not names or not self._is_own(report.record.cluster):
            return zoom_report(report, Measured(), part)

        def read() -> ZoomedReport:
            return self._read(series, report, names, part, points)

        key = (*_identity(report), part, points)
        if key in self._cache:
            return self._cache.get(key, read)
        with self._limits.turn(user):
            self._limits.count(user)
            return self._cache.get(key, read)

    def _read(
        self, series: SeriesSource, report: JobReport, names: tuple[str, ...], part: RunPart, points: int
    ) -> ZoomedReport:
        """Send one query for each curve; if one fails, only its own charts are not finer."""
        span, cluster = JobSpan(report.record.job_id, *part), report.record.cluster
        until = time.monotonic() + self._timeout_seconds

        def read(name: str) -> Curves | SourceError:
            try:
                return series.read_curves(replace(CURVES[name], cluster=cluster), [span], points=points, until=until)
            except SourceError as error:
                return error

        with ThreadPoolExecutor(series.max_concurrent_queries) as pool:
            results = dict(zip(names, pool.map(read, names), strict=True))
        curves = {
            name: result.by_job.get(span.job_id, ()) for name, result in results.items() if isinstance(result, Curves)
        }
        problem = next((str(result) for result in results.values() if isinstance(result, SourceError)), "")
        return zoom_report(report, Measured(curves=curves), part, problem=problem)


def _keep_seconds(zoomed: ZoomedReport) -> float:
    return FAILED_SECONDS if zoomed.problem else float("inf")


def _identity(report: JobReport) -> tuple[str, int, int, int]:
    """Return what identifies a run and the state of its report: a running job has a new one every few seconds."""
    record = report.record
    return record.cluster, record.job_id, record.submit_seconds, report.made_seconds


MAX_TEXT = 40
MIN_SECONDS = 10.0
"""Shortest part of a run: no agent is scraped more often."""
MIN_POINTS = 4
"""Points of a curve that a part must have for a picture."""
_UNIX_TIME = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,3})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomView:
    """The texts of the form, and the queries of the links to other parts; empty where there is none."""

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
        closer=_query(RunPart(first + length / 4, last - length / 4), run)
        if length >= max(4 * MIN_SECONDS, 2 * find_shortest(zoomed))
        else "",
        wider=_query(RunPart(first - length / 2, last + length / 2), run) if zoomed.part != run else "",
        earlier=_query(RunPart(first - length / 2, last - length / 2), run) if first > run.from_seconds else "",
        later=_query(RunPart(first + length / 2, last + length / 2), run) if last < run.to_seconds else "",
        note=describe_zoom(zoomed),
    )


def describe_zoom(zoomed: ZoomedReport) -> str:
    """Describe how fine the curves are, or why they are not finer."""
    if zoomed.problem:
        return f"Finer data could not be read: {zoomed.problem}"
    if zoomed.step_seconds is not None:
        return f"A point every {format_seconds(zoomed.step_seconds)}."
    step = kept_step(zoomed)
    if not step:
        return "The part has a single point."
    return f"A point every {format_seconds(step)}, as the report keeps them."


def kept_step(zoomed: ZoomedReport) -> float | None:
    """Return the time between two points of the report's own curves; None where the part has no two."""
    steps = [
        (chart.times[-1] - chart.times[0]) / (len(chart.times) - 1)
        for chart in zoomed.report.charts
        if len(chart.times) > 1
    ]
    return median(steps) if steps else None


def find_shortest(zoomed: ZoomedReport) -> float:
    """Return the shortest part that shows more than a few points; where finer curves are read, that is any."""
    if zoomed.finer or zoomed.problem:
        return MIN_SECONDS
    return max(MIN_SECONDS, MIN_POINTS * (kept_step(zoomed) or zoomed.part.to_seconds - zoomed.part.from_seconds))


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
        raise BadQuery(f"The parameter {name} must be a time such as 2026-09-21 14:30, or a Unix time.") from None


def _format_local(seconds: float, zone: tzinfo) -> str:
    moment = as_datetime(round(seconds))
    return "" if moment is None else moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def encode_zoomed(zoomed: ZoomedReport) -> bytes:
    """Encode a part of a run: its charts, how fine they are, and where the cells of its heat maps are."""
    return msgspec.json.encode(
        {
            "charts": [to_json(fold(chart), is_finer=chart.name in zoomed.finer) for chart in zoomed.report.charts],
            "note": describe_zoom(zoomed),
            "shortest_seconds": find_shortest(zoomed),
            "heat_maps": {
                heat_map.name: make_frame(heat_map, width=HEAT_WIDTH) for heat_map in find_heat_maps(zoomed.report)
            },
        }
    )


router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/zoom")
def show_zoom(context: Context, shown_id: str) -> Response:
    """Show the charts and heat maps of a part of the run; without a choice, of all of it."""
    report = context.find_report(shown_id)
    run = whole_run(report)
    part = parse_part(context.query, report, context.zone) or run
    zoomed = context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)
    charts = [fold(chart) for chart in zoomed.report.charts]
    return context.page(
        "zoom.html",
        report=zoomed.report,
        part=part,
        zoom=make_zoom_view(zoomed, run, context.zone, context.zone_name),
        charts=[(chart, make_data_table(chart)) for chart in charts],
        heat_maps=show_heat_maps(zoomed.report),
    )


def find_zoomed(context: RequestContext, shown_id: str) -> ZoomedReport | JobReport:
    """Return the report of a job, or the part of it that the query chooses."""
    report = context.find_report(shown_id)
    part = parse_part(context.query, report, context.zone)
    if part is None:
        return report
    return context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)


def find_charted(context: RequestContext, shown_id: str) -> JobReport:
    found = find_zoomed(context, shown_id)
    return found.report if isinstance(found, ZoomedReport) else found
