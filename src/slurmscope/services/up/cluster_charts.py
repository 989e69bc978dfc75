# SPDX-License-Identifier: Apache-2.0
"""Draw the last day of the cluster from what was recorded, once a minute for everybody who looks."""

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
"""One for each minute: a recording of some minutes has a few of them already. Charts are thinned when they are made."""
KEPT_SECONDS = 60.0
PATIENCE_SECONDS = 5.0


class ClusterSeries(Protocol):
    """Know metrics that belong to no job; see ``store.recorder_series``."""

    def read_cluster(
        self, wanted: SeriesQuery, start_seconds: float, end_seconds: float, *, points: int, until: float
    ) -> tuple[Series, ...]:
        """Return curves of at most so many points; what goes wrong is a ``SourceError``."""
        ...


class ClusterCharts:
    """Keep the charts of the last day; any thread may ask."""

    def __init__(self, series: ClusterSeries, clock: Clock | None = None) -> None:
        self._series = series
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._charts: tuple[Chart, ...] = ()
        self._read_at = -inf

    def get(self) -> tuple[Chart, ...]:
        """Return the charts; whoever comes while they are read waits for that one reading."""
        with self._lock:
            if self._clock.monotonic() - self._read_at >= KEPT_SECONDS:
                self._charts = self._read()
                self._read_at = self._clock.monotonic()
            return self._charts

    def _read(self) -> tuple[Chart, ...]:
        now, until = self._clock.wall(), self._clock.monotonic() + PATIENCE_SECONDS
        try:
            return make_cluster_charts(
                {
                    name: self._series.read_cluster(wanted, now - DAY_SECONDS, now, points=READ_POINTS, until=until)
                    for name, wanted in CLUSTER_CURVES.items()
                }
            )
        except SlurmscopeError as error:
            # The page has the numbers of now; it is not worth losing for its charts.
            logger.warning("the last day of the cluster is not drawn", extra=fields(error=str(error)))
            return ()
