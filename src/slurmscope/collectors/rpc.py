# SPDX-License-Identifier: Apache-2.0
"""Sum the RPC statistics of a daemon, for the collectors of slurmctld and slurmdbd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.family import Family, Labels, Metric, counter
from slurmscope.model.rpc import MessageRpcs, UserRpcs


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMetrics:
    """Hold the four RPC metrics of one daemon."""

    requests: Metric
    seconds: Metric
    user_requests: Metric
    user_seconds: Metric

    @property
    def all(self) -> tuple[Metric, ...]:
        """Return all four, for a collector to declare."""
        return self.requests, self.seconds, self.user_requests, self.user_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSums:
    """Hold the number of requests and the time spent on them, by label values."""

    requests: dict[Labels, int]
    seconds: dict[Labels, float]


def declare_rpc_metrics(prefix: str, daemon: str) -> RpcMetrics:
    """Declare the RPC metrics of one daemon."""
    seconds_help = f"Time {daemon} spent on requests"
    return RpcMetrics(
        requests=counter(f"{prefix}_requests_total", f"Requests to {daemon} by message.", "message"),
        seconds=counter(f"{prefix}_seconds_total", f"{seconds_help}, by message.", "message"),
        user_requests=counter(f"{prefix}_user_requests_total", f"Requests to {daemon} by user.", "user", "uid"),
        user_seconds=counter(f"{prefix}_user_seconds_total", f"{seconds_help}, by user.", "user", "uid"),
    )


def sum_rpcs(rows: Iterable[tuple[Labels, MessageRpcs | UserRpcs]]) -> RpcSums:
    """Sum rows with equal label values: slurmdbd gives all messages it does not know one name."""
    requests: defaultdict[Labels, int] = defaultdict(int)
    seconds: defaultdict[Labels, float] = defaultdict(float)
    for labels, row in rows:
        requests[labels] += row.requests
        seconds[labels] += row.seconds
    return RpcSums(requests=dict(requests), seconds=dict(seconds))


def message_families(metrics: RpcMetrics, rows: Iterable[MessageRpcs]) -> Iterator[Family]:
    """Yield requests by message."""
    sums = sum_rpcs(((row.message,), row) for row in rows)
    yield Family(metrics.requests, sums.requests)
    yield Family(metrics.seconds, sums.seconds)


def user_families(metrics: RpcMetrics, rows: Iterable[UserRpcs]) -> Iterator[Family]:
    """Yield requests by user."""
    sums = sum_rpcs(((row.user, str(row.uid)), row) for row in rows)
    yield Family(metrics.user_requests, sums.requests)
    yield Family(metrics.user_seconds, sums.seconds)
