# SPDX-License-Identifier: Apache-2.0
"""Make the charts of the cluster's last day from recorded metrics, at most once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from slurmscope.core.cache import Cache
from slurmscope.core.clock import Clock
from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.curves import align, sum_over
from slurmscope.jobs.report import Chart, ChartLine
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Aggregation, Series, SeriesQuery
from slurmscope.slurm.states import PENDING, RUNNING

logger = logging.getLogger(__name__)


MIN_POINTS = 3
"""A chart of fewer points shows no more than the current values."""

_STATE = ("state",)

CLUSTER_CURVES: Mapping[str, SeriesQuery] = MappingProxyType(
    {
        "jobs": SeriesQuery(metric="slurm_jobs", how=Aggregation.MEAN, each=_STATE, by=_STATE),
        "cores": SeriesQuery(metric="slurm_cpus", how=Aggregation.MEAN, each=_STATE, by=_STATE),
    }
)
"""Queries by the names of the charts that they are drawn in."""


def make_cluster_charts(curves: Mapping[str, Sequence[Series]]) -> tuple[Chart, ...]:
    made = (_draw(chart, labels, curves.get(chart.name, ())) for chart, labels in _CHARTS)
    return tuple(chart for chart in made if len(chart.times) >= MIN_POINTS)


def _draw(chart: Chart, labels: Mapping[str, str], curves: Sequence[Series]) -> Chart:
    aligned = align([series for series in curves if series.labels[0] in labels])
    lines = [
        ChartLine(label=label, values=aligned.rows[state,])
        for state, label in labels.items()
        if (state,) in aligned.rows
    ]
    if _ALL in labels:
        lines.append(ChartLine(label=labels[_ALL], values=sum_over(aligned)))
    return replace(chart, times=aligned.times, lines=tuple(lines))


_ALL = ""
"""Stands for the sum over states."""
_CHARTS = (
    (
        Chart(
            name="jobs", title="Jobs", unit="count", subject=Subject.NODES, times=(), lines=(),
            help="Running and pending jobs; each task of an array is a job.",
        ),
        {RUNNING: "running", PENDING: "pending"},
    ),
    (
        Chart(
            name="cores", title="Cores", unit="cores", subject=Subject.NODES, times=(), lines=(),
            help="Allocated cores, idle cores, and idle cores on nodes that take no jobs (unusable).",
        ),
        {"allocated": "allocated", "idle": "idle", "unusable": "unusable", _ALL: "all"},
    ),
)  # fmt: skip


READ_POINTS = 1440
"""One per minute, so that a recording of a few minutes has several. Charts are thinned when they are made."""
CACHE_SECONDS = 60.0
TIMEOUT_SECONDS = 5.0


class ClusterCharts:
    """Cache the charts of the last day; thread-safe."""

    def __init__(self, read_cluster: Callable[..., tuple[Series, ...]], clock: Clock | None = None) -> None:
        self._read_cluster = read_cluster
        self._clock = clock or Clock()
        self._cache = Cache[tuple[Chart, ...]](CACHE_SECONDS, clock=self._clock.monotonic)

    def get(self) -> tuple[Chart, ...]:
        """Return the charts; concurrent callers wait for one read."""
        return self._cache.get(None, self._read)

    def _read(self) -> tuple[Chart, ...]:
        now, until = self._clock.wall(), self._clock.monotonic() + TIMEOUT_SECONDS
        try:
            return make_cluster_charts(
                {
                    name: self._read_cluster(wanted, now - DAY_SECONDS, now, points=READ_POINTS, until=until)
                    for name, wanted in CLUSTER_CURVES.items()
                }
            )
        except SlurmscopeError as error:
            # The page shows current values even without charts.
            logger.warning("charts of the cluster could not be made", extra=fields(error=str(error)))
            return ()
