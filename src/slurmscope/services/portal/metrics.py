# SPDX-License-Identifier: Apache-2.0
"""Provide metrics of the portal itself: requests, archiving, and Prometheus queries.

::

    slurmscope_portal_requests_total{route="/jobs/{shown_id}",status="2xx"} 412
    slurmscope_series_queries_total{kind="curves"} 96
    slurmscope_reporter_read_until_timestamp_seconds 1.7841024e+09
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from slurmscope import __version__
from slurmscope.metrics.family import Family, counter, gauge
from slurmscope.services.exporter.query_metrics import SERIES_METRICS, series_families
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.self_metrics import (
    BUILD_INFO,
    process_families,
    reading_families,
)
from slurmscope.services.portal.request_metrics import REQUEST_METRICS, RequestCounts
from slurmscope.services.reporting.archiving.reporter import ReporterProgress
from slurmscope.sources.prometheus.query_counters import QueryCounters

ARCHIVED = counter("slurmscope_reporter_jobs_total", "Ended job runs archived since the start.")
ROUNDS = counter("slurmscope_reporter_rounds_total", "Completed polls of accounting.")
FAILURES = counter("slurmscope_reporter_failures_total", "Failed polls of accounting; the next poll catches up.")
REPORTER_UP = gauge("slurmscope_reporter_up", "Whether the latest poll of accounting succeeded (1) or failed (0).")
READ_UNTIL = gauge(
    "slurmscope_reporter_read_until_timestamp_seconds",
    "Time up to which all ended jobs are archived; absent until the first poll, and where another process archives.",
)

ELECTED = gauge(
    "slurmscope_reporter_elected",
    "1 if this process archives the jobs of the cluster, 0 if it stands by.",
    "cluster",
)

REPORTER_METRICS = (ELECTED, ARCHIVED, ROUNDS, FAILURES, REPORTER_UP, READ_UNTIL)
PORTAL_METRICS = (*REQUEST_METRICS, *REPORTER_METRICS, *SERIES_METRICS)
"""Metrics of the portal only."""


class ReporterState(Protocol):
    """Report how far archiving is, and of which clusters this process is the reporter."""

    @property
    def progress(self) -> ReporterProgress:
        """Return the progress of all clusters together."""
        ...

    @property
    def elected(self) -> Mapping[str, bool]:
        """Return for each cluster whether this process is its reporter."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalMetrics:
    """Collect the metrics; ``query_counters`` is None without a Prometheus server, ``reporters`` with --no-reporter."""

    requests: RequestCounts
    reporters: ReporterState | None
    query_counters: QueryCounters | None
    readings: Mapping[str, SharedReading]

    def families(self) -> Iterator[Family]:
        """Yield all current metrics."""
        yield Family(BUILD_INFO, {(__version__, platform.python_version()): 1.0})
        yield from self.requests.families()
        if self.reporters is not None:
            yield from reporter_families(self.reporters.progress)
            yield Family(ELECTED, {(name,): float(is_ours) for name, is_ours in self.reporters.elected.items()})
        if self.query_counters is not None:
            yield from series_families(self.query_counters.snapshot())
        yield from reading_families(self.readings)
        yield from process_families()


def reporter_families(progress: ReporterProgress) -> Iterator[Family]:
    """Yield the progress of archiving."""
    yield Family(ARCHIVED, {(): progress.jobs_archived})
    yield Family(ROUNDS, {(): progress.rounds})
    yield Family(FAILURES, {(): progress.failures})
    if progress.rounds or progress.failures:
        yield Family(REPORTER_UP, {(): float(not progress.problem)})
    if progress.read_until_seconds is not None:
        yield Family(READ_UNTIL, {(): progress.read_until_seconds})
