# SPDX-License-Identifier: Apache-2.0
"""Export the counters of queries to Prometheus.

::

    slurmscope_series_queries_total{kind="curves"} 96
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.family import Family, counter, gauge
from slurmscope.sources.prometheus.query_counters import QueryCounts

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
