# SPDX-License-Identifier: Apache-2.0
"""Check what a Prometheus server has about jobs now, for the doctor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmscope.model.series import NODE_LABEL
from slurmscope.sources.prometheus.client import Prometheus
from slurmscope.sources.prometheus.plan import RATE_SCRAPES
from slurmscope.sources.prometheus.promql import quote
from slurmscope.sources.prometheus.settings import PrometheusSettings

TIMEOUT_SECONDS = 30.0
KIND = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSamples:
    """Count the series that have enough samples for a rate; those of jobs that just started have one."""

    series: int
    series_with_rate: int
    window_seconds: float


def count_nodes(settings: PrometheusSettings, metric: str) -> int:
    """Count the nodes that have this metric now."""
    return _count(settings, metric, lambda selector: f"count by ({NODE_LABEL}) ({selector})")


def count_rate_samples(settings: PrometheusSettings, metric: str) -> RateSamples:
    """Count the series of this metric, and those with two samples within the window of a rate."""
    window_seconds = RATE_SCRAPES * settings.scrape_interval
    window = f"[{round(1000 * window_seconds)}ms]"
    return RateSamples(
        series=_count(settings, metric, lambda selector: selector),
        series_with_rate=_count(settings, metric, lambda selector: f"increase({selector}{window})"),
        window_seconds=window_seconds,
    )


def _count(settings: PrometheusSettings, metric: str, expression: Callable[[str], str]) -> int:
    """Count the series that an expression over all series of a metric has now."""
    matchers = ",".join(f"{label}={quote(value)}" for label, value in settings.matchers)
    query = f"count({expression(f'{metric}{{{matchers}}}')})"
    until = time.monotonic() + TIMEOUT_SECONDS
    reply = Prometheus(settings).query_instant(query, time.time(), kind=KIND, until=until)
    return int(reply.series[0].values[0]) if reply.points else 0
