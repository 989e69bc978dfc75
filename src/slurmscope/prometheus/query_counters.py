# SPDX-License-Identifier: Apache-2.0
"""Count queries to Prometheus, their duration, size and failures, and export the counters.

::

    slurmscope_series_queries_total{kind="curves"} 96
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slurmscope.metrics.family import Family, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCount:
    """The counters of one kind of query; ``seconds`` ends when the answer is parsed or the query has failed."""

    queries: int = 0
    retries: int = 0
    splits: int = 0
    """Number of queries that were split in two because the server rejected them as too large."""
    points: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of failures by the ``reason`` of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCounts:
    """The counters by kind of query, since the start of the process."""

    by_kind: Mapping[str, QueryCount] = field(default_factory=dict)
    is_up: bool | None = None
    """Whether the server answered the last query; None before the first one."""


class QueryCounters:
    """Keep the counters; safe to use from any thread."""

    def __init__(self) -> None:
        """Start all counters at zero."""
        self._lock = threading.Lock()
        self._counts: dict[str, QueryCount] = {}
        self._is_up: bool | None = None

    def note_answer(self, kind: str, seconds: float, *, points: int, received_bytes: int) -> None:
        """Count a query that was answered."""
        self._add(kind, is_up=True, queries=1, seconds=seconds, points=points, received_bytes=received_bytes)

    def note_failure(self, kind: str, seconds: float, reason: str, *, is_up: bool) -> None:
        """Count a query without a usable answer; ``is_up`` is whether the server is up nevertheless."""
        self._add(kind, reason, is_up=is_up, queries=1, seconds=seconds)

    def note_retry(self, kind: str) -> None:
        self._add(kind, retries=1)

    def note_split(self, kind: str) -> None:
        self._add(kind, splits=1)

    def _add(self, kind: str, reason: str = "", *, is_up: bool | None = None, **amounts: float) -> None:
        with self._lock:
            self._is_up = self._is_up if is_up is None else is_up
            old = self._counts.get(kind, QueryCount())
            sums: dict[str, Any] = {name: getattr(old, name) + amount for name, amount in amounts.items()}
            if reason:
                sums["failures"] = {**old.failures, reason: old.failures.get(reason, 0) + 1}
            self._counts[kind] = replace(old, **sums)

    def snapshot(self) -> QueryCounts:
        with self._lock:
            return QueryCounts(by_kind=dict(self._counts), is_up=self._is_up)


QUERIES = counter("slurmscope_series_queries_total", "Queries to Prometheus.", "kind")
QUERY_SECONDS = counter(
    "slurmscope_series_query_seconds_total", "Time spent on Prometheus queries, including failed ones.", "kind"
)
POINTS = counter("slurmscope_series_points_total", "Data points received from Prometheus.", "kind")
RECEIVED = counter("slurmscope_series_received_bytes_total", "Bytes received from Prometheus.", "kind")
RETRIES = counter("slurmscope_series_retries_total", "Prometheus queries retried after a failure.", "kind")
SPLITS = counter(
    "slurmscope_series_splits_total", "Prometheus queries split in two because they were too large.", "kind"
)
QUERY_FAILURES = counter(
    "slurmscope_series_failures_total",
    "Failed Prometheus queries by reason: timeout, refused, too_much, partial, failed or malformed.",
    "kind",
    "reason",
)
SERIES_UP = gauge(
    "slurmscope_series_up",
    "Whether Prometheus was reachable in the latest query (1) or not (0); absent until the first query.",
)

SERIES_METRICS = (QUERIES, QUERY_SECONDS, POINTS, RECEIVED, RETRIES, SPLITS, QUERY_FAILURES, SERIES_UP)


def series_families(counts: QueryCounts) -> Iterator[Family]:
    """Yield counters of Prometheus queries."""
    kinds = sorted(counts.by_kind.items())
    yield Family(QUERIES, {(kind,): count.queries for kind, count in kinds})
    yield Family(QUERY_SECONDS, {(kind,): count.seconds for kind, count in kinds})
    yield Family(POINTS, {(kind,): count.points for kind, count in kinds})
    yield Family(RECEIVED, {(kind,): count.received_bytes for kind, count in kinds})
    yield Family(RETRIES, {(kind,): count.retries for kind, count in kinds})
    yield Family(SPLITS, {(kind,): count.splits for kind, count in kinds})
    failures = {(kind, why): n for kind, count in kinds for why, n in sorted(count.failures.items())}
    yield Family(QUERY_FAILURES, failures)
    if counts.is_up is not None:
        yield Family(SERIES_UP, {(): float(counts.is_up)})
