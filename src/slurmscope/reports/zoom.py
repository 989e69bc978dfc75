# SPDX-License-Identifier: Apache-2.0
"""Read finer curves for a part of a run, once for all who request it.

Results are cached, and one is read at a time for each part: a page without scripts requests each of its charts. What is
not cached counts against the limits of the user who requests it.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from slurmscope.core.cache import Cache
from slurmscope.core.errors import SourceError
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.heat_maps import make_heat_maps
from slurmscope.jobs.queries import CURVES, PROFILED_CURVES, TRACED_BY_NODE, TRACED_CURVES
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.series import Curves, JobSpan, Measured, SeriesSource
from slurmscope.reports.lookup_limits import LookupLimits

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
