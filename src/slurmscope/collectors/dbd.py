# SPDX-License-Identifier: Apache-2.0
"""Export the statistics of slurmdbd: usage rollups, and requests by message and user.

::

    slurm_dbd_rpc_requests_total{message="DBD_JOB_START"} 32
    slurm_dbd_cluster_rollup_last_seconds{cluster_name="lab",period="hour"} 0.499091
    slurm_dbd_rollups_total{origin="internal"} 24

A rollup that has not run since slurmdbd started has no series. For rollups of a cluster, the time of the
last one is the time up to which usage has been summed: the hourly one should never be two hours old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slurmscope.collectors.rpc import declare_rpc_metrics, message_families, user_families
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Metric, counter, gauge
from slurmscope.model.dbd import Dbd, RollupTimes
from slurmscope.settings import setting

START = gauge(
    "slurm_dbd_statistics_start_timestamp_seconds", "Unix time at which the slurmdbd statistics were last reset."
)
RPC = declare_rpc_metrics("slurm_dbd_rpc", "slurmdbd")

_Rollups = tuple[tuple[Metric, Callable[[RollupTimes], float | None]], ...]


def _rollup_metrics(prefix: str, whose: str, *labels: str) -> _Rollups:
    return (
        (counter(f"{prefix}s_total", f"Usage rollups {whose}.", *labels), lambda times: times.runs),
        (
            counter(f"{prefix}_seconds_total", f"Total duration of usage rollups {whose}.", *labels),
            lambda times: times.seconds,
        ),
        (
            gauge(f"{prefix}_last_seconds", f"Duration of the last usage rollup {whose}.", *labels),
            lambda times: times.last_seconds,
        ),
        (
            gauge(f"{prefix}_max_seconds", f"Duration of the longest usage rollup {whose}.", *labels),
            lambda times: times.max_seconds,
        ),
        (
            gauge(f"{prefix}_last_timestamp_seconds", f"Unix time of the last usage rollup {whose}.", *labels),
            lambda times: times.last_timestamp,
        ),
    )


ROLLUPS = _rollup_metrics("slurm_dbd_rollup", "of all clusters, by origin", "origin")
# Not "cluster": servers that collect several clusters put a label of that name on everything.
CLUSTER_ROLLUPS = _rollup_metrics("slurm_dbd_cluster_rollup", "of one cluster", "cluster_name", "period")


@dataclass(frozen=True, slots=True, kw_only=True)
class DbdOptions:
    """Which slurmdbd statistics are exported."""

    user: bool = setting(True, help="Expose slurmdbd requests by user: two series per user.")


def collect(options: DbdOptions, *, dbd: Dbd) -> Iterator[Family]:
    """Yield one family per statistic."""
    yield Family(START, {} if dbd.since is None else {(): dbd.since})
    yield from message_families(RPC, dbd.messages)
    yield from _rollup_families(ROLLUPS, {(one.origin,): one.times for one in dbd.rollups})
    yield from _rollup_families(CLUSTER_ROLLUPS, {(one.cluster, one.period): one.times for one in dbd.cluster_rollups})
    if options.user:
        yield from user_families(RPC, dbd.users)


def _rollup_families(metrics: _Rollups, rollups: dict[tuple[str, ...], RollupTimes]) -> Iterator[Family]:
    for metric, measure in metrics:
        values = ((labels, measure(times)) for labels, times in rollups.items())
        yield Family(metric, {labels: value for labels, value in values if value is not None})


COLLECTOR = Collector(
    name="dbd",
    role=Role.CLUSTER,
    help="Rollups and requests of slurmdbd, from sacctmgr show stats; needs root, SlurmUser or a Slurm administrator.",
    needs=("dbd",),
    metrics=(
        START,
        *RPC.all,
        *(metric for metric, _ in ROLLUPS),
        *(metric for metric, _ in CLUSTER_ROLLUPS),
    ),
    collect=collect,
    options=DbdOptions,
    is_default=False,
)
