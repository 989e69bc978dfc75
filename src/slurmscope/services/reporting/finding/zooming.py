# SPDX-License-Identifier: Apache-2.0
"""Read finer curves for a part of a run, once for all who request it.

Results are cached, and one is read at a time for each part: a page without scripts requests each of its charts. What is
not cached counts against the limits of the person who requests it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from slurmscope.analysis.queries import CURVES
from slurmscope.analysis.zoom import RunPart, ZoomedReport, find_curves, zoom_report
from slurmscope.errors import SourceError
from slurmscope.model.report import MAX_CHART_POINTS, JobReport
from slurmscope.model.series import Curves, JobSpan, Measured, SeriesSource
from slurmscope.services.reporting.finding.lookup_limits import LookupLimits

TIMEOUT_SECONDS = 20.0
FAILED_SECONDS = 10.0
"""How long a failure is returned before the curves are read again."""
MAX_KEPT = 64
MESSAGE = "too many parts of jobs were requested; try again in a few seconds"

_Key = tuple[str, int, int, int, RunPart, int]


@dataclass(slots=True)
class _Kept:
    making: threading.Lock = field(default_factory=threading.Lock)
    zoomed: ZoomedReport | None = None
    made_at: float = 0.0


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
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._limits = LookupLimits(clock, message=MESSAGE)
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def zoom(self, person: str, report: JobReport, part: RunPart, points: int = MAX_CHART_POINTS) -> ZoomedReport:
        """Return the part of a run for a person who may see the job; raise TooManyLookups beyond the person's limit."""
        names = find_curves(report)
        if self._series is None or not names or not self._is_own(report.record.cluster):
            return zoom_report(report, Measured(), part)
        kept = self._place((*_identity(report), part, points))
        with kept.making:
            if kept.zoomed is None or (kept.zoomed.problem and self._clock() - kept.made_at > FAILED_SECONDS):
                with self._limits.turn(person):
                    self._limits.count(person)
                    kept.zoomed = self._read(self._series, report, names, part, points)
                kept.made_at = self._clock()
            return kept.zoomed

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

    def _place(self, key: _Key) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return kept


def _identity(report: JobReport) -> tuple[str, int, int, int]:
    """Return what identifies a run and the state of its report: a running job has a new one every few seconds."""
    record = report.record
    return record.cluster, record.job_id, record.submit_seconds, report.made_seconds
