# SPDX-License-Identifier: Apache-2.0
"""Make the charts of the cluster's last day from recorded metrics, at most once a minute."""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Protocol

from slurmscope.analysis.cluster_charts import CLUSTER_CURVES, make_cluster_charts
from slurmscope.errors import SlurmscopeError
from slurmscope.log import fields
from slurmscope.model.report import Chart
from slurmscope.model.series import Series, SeriesQuery
from slurmscope.services.runtime.clock import Clock
from slurmscope.units import DAY_SECONDS

logger = logging.getLogger(__name__)

READ_POINTS = 1440
"""One per minute, so that a recording of a few minutes has several. Charts are thinned when they are made."""
CACHE_SECONDS = 60.0
TIMEOUT_SECONDS = 5.0


class ClusterSeries(Protocol):
    """Read metrics of the cluster; see ``store.recorder.series``."""

    def read_cluster(
        self, wanted: SeriesQuery, start_seconds: float, end_seconds: float, *, points: int, until: float
    ) -> tuple[Series, ...]:
        """Return curves of at most ``points`` points; raises ``SourceError``."""
        ...


class ClusterCharts:
    """Cache the charts of the last day; thread-safe."""

    def __init__(self, series: ClusterSeries, clock: Clock | None = None) -> None:
        self._series = series
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._charts: tuple[Chart, ...] = ()
        self._read_at = -inf

    def get(self) -> tuple[Chart, ...]:
        """Return the charts; concurrent callers wait for one read."""
        with self._lock:
            if self._clock.monotonic() - self._read_at >= CACHE_SECONDS:
                self._charts = self._read()
                self._read_at = self._clock.monotonic()
            return self._charts

    def _read(self) -> tuple[Chart, ...]:
        now, until = self._clock.wall(), self._clock.monotonic() + TIMEOUT_SECONDS
        try:
            return make_cluster_charts(
                {
                    name: self._series.read_cluster(wanted, now - DAY_SECONDS, now, points=READ_POINTS, until=until)
                    for name, wanted in CLUSTER_CURVES.items()
                }
            )
        except SlurmscopeError as error:
            # The page shows current values even without charts.
            logger.warning("charts of the cluster could not be made", extra=fields(error=str(error)))
            return ()
