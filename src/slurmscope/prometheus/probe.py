# SPDX-License-Identifier: Apache-2.0
"""Check what a Prometheus server has about jobs now, for the doctor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.series import NODE_LABEL
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.plan import RATE_SCRAPES
from slurmscope.prometheus.promql import quote
from slurmscope.prometheus.responses import Reply
from slurmscope.prometheus.settings import PrometheusSettings

TIMEOUT_SECONDS = 30.0
KIND = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSamples:
    """Count the series older than the window of a rate, and those of them that have enough samples for one."""

    series: int
    series_with_rate: int
    window_seconds: float


def count_nodes(settings: PrometheusSettings, metric: str) -> int:
    return _count(settings, metric, lambda selector: f"count by ({NODE_LABEL}) ({selector})")


def count_rate_samples(settings: PrometheusSettings, metric: str) -> RateSamples:
    """Count the series of this metric, and those with two samples within the window of a rate.

    Series of jobs that just started have one sample, and are not counted.
    """
    window_seconds = RATE_SCRAPES * settings.scrape_interval
    window = f"{round(1000 * window_seconds)}ms"

    def older(selector: str) -> str:
        return f"{selector} offset {window}"

    return RateSamples(
        series=_count(settings, metric, lambda selector: f"{selector} and {older(selector)}"),
        series_with_rate=_count(
            settings, metric, lambda selector: f"increase({selector}[{window}]) and {older(selector)}"
        ),
        window_seconds=window_seconds,
    )


def find_nodes(settings: PrometheusSettings, metric: str) -> frozenset[str]:
    """Return the names of the nodes that have this metric now."""
    reply = _query(settings, f"count by ({NODE_LABEL}) ({_selector(settings, metric)})")
    return frozenset(series.labels.get(NODE_LABEL, "") for series in reply.series) - {""}


def read_clock_skew(settings: PrometheusSettings) -> float:
    """Return by how many seconds the server's clock is ahead of ours, at least; negative if it is behind."""
    before = time.time()
    until = time.monotonic() + TIMEOUT_SECONDS
    reply = Prometheus(settings).query_instant("vector(time())", None, kind=KIND, until=until)
    after = time.time()
    if not reply.points:
        raise MalformedAnswer(f"{settings.url} does not know its own time")
    server = reply.series[0].values[0]
    return server - after if server > after else min(0.0, server - before)


def _count(settings: PrometheusSettings, metric: str, expression: Callable[[str], str]) -> int:
    reply = _query(settings, f"count({expression(_selector(settings, metric))})")
    return int(reply.series[0].values[0]) if reply.points else 0


def _selector(settings: PrometheusSettings, metric: str) -> str:
    matchers = ",".join(f"{label}={quote(value)}" for label, value in settings.matchers)
    return f"{metric}{{{matchers}}}"


def _query(settings: PrometheusSettings, query: str) -> Reply:
    until = time.monotonic() + TIMEOUT_SECONDS
    return Prometheus(settings).query_instant(query, time.time(), kind=KIND, until=until)
