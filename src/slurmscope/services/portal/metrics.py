# SPDX-License-Identifier: Apache-2.0
"""Tell how the portal itself is doing: its answers, its archive, and what it asks others.

::

    slurmscope_portal_requests_total{route="/jobs/{shown_id}",status="2xx"} 412
    slurmscope_series_questions_total{kind="curves"} 96
    slurmscope_reporter_read_until_timestamp_seconds 1.7841024e+09
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope import __version__
from slurmscope.metrics.family import Family, counter, gauge
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.self_metrics import (
    BUILD_INFO,
    PROCESS_METRICS,
    READING_METRICS,
    process_families,
    reading_families,
)
from slurmscope.services.portal.request_metrics import REQUEST_METRICS, RequestCounts
from slurmscope.services.reporting.reporter import Progress
from slurmscope.sources.prometheus.query_counters import QueryCounters, QueryCounts

ARCHIVED = counter(
    "slurmscope_reporter_jobs_total", "Runs of jobs whose report was archived after their end, since the start."
)
ROUNDS = counter("slurmscope_reporter_rounds_total", "Looks at accounting that came to their end.")
FAILURES = counter("slurmscope_reporter_failures_total", "Looks at accounting that failed; the next one takes over.")
REPORTER_UP = gauge("slurmscope_reporter_up", "1 when the latest look at accounting came to its end, 0 when it failed.")
READ_UNTIL = gauge(
    "slurmscope_reporter_read_until_timestamp_seconds",
    "Every job that ended before this time is archived; absent until the first look at accounting.",
)

QUESTIONS = counter("slurmscope_series_questions_total", "Questions to the server of time series.", "kind")
QUESTION_SECONDS = counter(
    "slurmscope_series_question_seconds_total", "Seconds until questions were answered or given up.", "kind"
)
POINTS = counter("slurmscope_series_points_total", "Points that the server of time series answered with.", "kind")
RECEIVED = counter("slurmscope_series_received_bytes_total", "Bytes of its answers.", "kind")
RETRIES = counter("slurmscope_series_retries_total", "Questions that were put once more after a failure.", "kind")
SPLITS = counter(
    "slurmscope_series_splits_total", "Questions that were put again in two halves, being too much at once.", "kind"
)
QUESTION_FAILURES = counter(
    "slurmscope_series_failures_total",
    "Questions without a usable answer by reason: timeout, refused, too_much, failed or malformed.",
    "kind",
    "reason",
)
SERIES_UP = gauge(
    "slurmscope_series_up", "1 when the server of time series could answer the last time; absent until it was asked."
)

REPORTER_METRICS = (ARCHIVED, ROUNDS, FAILURES, REPORTER_UP, READ_UNTIL)
SERIES_METRICS = (QUESTIONS, QUESTION_SECONDS, POINTS, RECEIVED, RETRIES, SPLITS, QUESTION_FAILURES, SERIES_UP)
PORTAL_METRICS = (*REQUEST_METRICS, *REPORTER_METRICS, *SERIES_METRICS)
"""What only the portal tells."""
SHARED_METRICS = (BUILD_INFO, *READING_METRICS, *PROCESS_METRICS)
"""What it tells as the exporters do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalReport:
    """Gather what is told; ``ledger`` is None where no server of time series is asked."""

    requests: RequestCounts
    progress: Callable[[], Progress]
    ledger: QueryCounters | None
    readings: Mapping[str, SharedReading]

    def families(self) -> Iterator[Family]:
        """Yield everything, made anew."""
        yield Family(BUILD_INFO, {(__version__, platform.python_version()): 1.0})
        yield from self.requests.families()
        yield from reporter_families(self.progress())
        if self.ledger is not None:
            yield from series_families(self.ledger.snapshot())
        yield from reading_families(self.readings)
        yield from process_families()


def reporter_families(progress: Progress) -> Iterator[Family]:
    """Yield how far the archive is."""
    yield Family(ARCHIVED, {(): progress.jobs_archived})
    yield Family(ROUNDS, {(): progress.rounds})
    yield Family(FAILURES, {(): progress.failures})
    if progress.rounds or progress.failures:
        yield Family(REPORTER_UP, {(): float(not progress.problem)})
    if progress.read_until_seconds is not None:
        yield Family(READ_UNTIL, {(): progress.read_until_seconds})


def series_families(counts: QueryCounts) -> Iterator[Family]:
    """Yield what questions to the server of time series cost."""
    kinds = sorted(counts.by_kind.items())
    yield Family(QUESTIONS, {(kind,): count.queries for kind, count in kinds})
    yield Family(QUESTION_SECONDS, {(kind,): count.seconds for kind, count in kinds})
    yield Family(POINTS, {(kind,): count.points for kind, count in kinds})
    yield Family(RECEIVED, {(kind,): count.received_bytes for kind, count in kinds})
    yield Family(RETRIES, {(kind,): count.retries for kind, count in kinds})
    yield Family(SPLITS, {(kind,): count.splits for kind, count in kinds})
    failures = {(kind, why): n for kind, count in kinds for why, n in sorted(count.failures.items())}
    yield Family(QUESTION_FAILURES, failures)
    if counts.is_up is not None:
        yield Family(SERIES_UP, {(): float(counts.is_up)})
