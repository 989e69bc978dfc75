# SPDX-License-Identifier: Apache-2.0
"""Export the statistics of slurmdbd: usage rollups, and requests by message and user.

::

    slurm_dbd_rpc_requests_total{message="DBD_JOB_START"} 32
    slurm_dbd_cluster_rollup_last_seconds{cluster_name="lab",period="hour"} 0.499091
    slurm_dbd_rollups_total{origin="internal"} 24

A rollup that has not run since slurmdbd started has no series. For rollups of a cluster, the time of the
last one is the time up to which usage has been summed: the hourly one should never be two hours old.

slurmdbd answers this request to root, to SlurmUser and to administrators only (``AdminLevel=Admin``;
seen with 22.05: an operator is refused). The controller is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmscope.cluster.rpc import (
    MESSAGES_HEADING,
    USERS_HEADING,
    Block,
    MessageRpcs,
    StatisticsValues,
    UserRpcs,
    declare_rpc_metrics,
    message_families,
    need_block,
    parse_messages,
    parse_timestamp,
    parse_users,
    split_blocks,
    user_families,
)
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, Metric, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupTimes:
    """The number and durations of usage rollups."""

    runs: int
    seconds: float
    last_seconds: float | None
    max_seconds: float | None
    last_timestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """The rollups of all clusters by origin: the daemon itself or a request."""

    origin: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRollup:
    """The rollups of one cluster into hours, days or months.

    The time of the last one is the time up to which usage has been summed.
    """

    cluster: str
    period: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dbd:
    """One snapshot of the statistics; rollups that never ran are left out."""

    since: int | None
    rollups: tuple[Rollup, ...]
    cluster_rollups: tuple[ClusterRollup, ...]
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]


COMMAND = "sacctmgr"
ARGUMENTS = ("--readonly", "show", "stats")

_NAME = "sacctmgr show stats"
_BANNER = "sacctmgr show stats output at"
_SINCE = "Data since"
_CLUSTER = re.compile(r"Cluster '(?P<cluster>.*)' rollup statistics\Z", re.DOTALL)
_LAST_RAN = " last ran "
_ORIGINS = {"Internal DBD rollup": "internal", "User RPC rollup call": "request"}


def parse_dbd(answer: bytes) -> Dbd:
    """Parse a complete answer; raise MalformedAnswer when it is truncated or something else."""
    blocks = split_blocks(answer, _NAME)
    need_block(blocks, _BANNER, _NAME)
    rollups = tuple(_rollups(blocks))
    return Dbd(
        since=parse_timestamp(need_block(blocks, _SINCE, _NAME).heading),
        rollups=tuple(rollup for rollup in rollups if isinstance(rollup, Rollup)),
        cluster_rollups=tuple(rollup for rollup in rollups if isinstance(rollup, ClusterRollup)),
        messages=parse_messages(need_block(blocks, MESSAGES_HEADING, _NAME).rows, _NAME),
        users=parse_users(need_block(blocks, USERS_HEADING, _NAME).rows, _NAME),
    )


def _rollups(blocks: Sequence[Block]) -> Iterator[Rollup | ClusterRollup]:
    """Yield the rollups in their order; those below a cluster's heading are the cluster's."""
    cluster: str | None = None
    for block in blocks:
        if match := _CLUSTER.match(block.heading):
            cluster = match["cluster"]
        name, is_rollup, _ = block.heading.partition(_LAST_RAN)
        if not is_rollup:
            continue
        if cluster is None:
            yield Rollup(origin=_ORIGINS.get(name, "unknown"), times=_times(block))
        else:
            yield ClusterRollup(cluster=cluster, period=name.strip().lower(), times=_times(block))


def _times(block: Block) -> RollupTimes:
    """Read the times of one rollup.

    Seen with 22.05: slurmdbd adds the first rollup of a cluster to the total time and to nothing
    else. The 0 it then prints for the last and the longest is no measurement.
    """
    values = StatisticsValues.of(block.rows)
    runs, total = values.number("Total cycles"), values.seconds("Total time")
    last, longest = values.seconds("Last cycle"), values.seconds("Max cycle")
    if runs is None or total is None or last is None or longest is None:
        raise MalformedAnswer(f"{_NAME}: the times of a rollup are not complete")
    return RollupTimes(
        runs=runs,
        seconds=total,
        last_seconds=last if runs else None,
        max_seconds=longest if runs else None,
        last_timestamp=parse_timestamp(block.heading),
    )


START = gauge(
    "slurm_dbd_statistics_start_timestamp_seconds", "Unix time at which the slurmdbd statistics were last reset."
)
RPC = declare_rpc_metrics("slurm_dbd_rpc", "slurmdbd")

_Rollups = tuple[tuple[Metric, str], ...]
"""Metrics with the field of RollupTimes that each exports."""


def _rollup_metrics(prefix: str, whose: str, *labels: str) -> _Rollups:
    return (
        (counter(f"{prefix}s_total", f"Usage rollups {whose}.", *labels), "runs"),
        (counter(f"{prefix}_seconds_total", f"Total duration of usage rollups {whose}.", *labels), "seconds"),
        (gauge(f"{prefix}_last_seconds", f"Duration of the last usage rollup {whose}.", *labels), "last_seconds"),
        (gauge(f"{prefix}_max_seconds", f"Duration of the longest usage rollup {whose}.", *labels), "max_seconds"),
        (
            gauge(f"{prefix}_last_timestamp_seconds", f"Unix time of the last usage rollup {whose}.", *labels),
            "last_timestamp",
        ),
    )


ROLLUPS = _rollup_metrics("slurm_dbd_rollup", "of all clusters, by origin", "origin")
# Not "cluster": servers that collect several clusters put a label of that name on everything.
CLUSTER_ROLLUPS = _rollup_metrics("slurm_dbd_cluster_rollup", "of one cluster", "cluster_name", "period")


def collect(options: NoOptions, *, dbd: Dbd) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield one family per statistic."""
    yield Family(START, {} if dbd.since is None else {(): dbd.since})
    yield from message_families(RPC, dbd.messages)
    yield from _rollup_families(ROLLUPS, {(one.origin,): one.times for one in dbd.rollups})
    yield from _rollup_families(CLUSTER_ROLLUPS, {(one.cluster, one.period): one.times for one in dbd.cluster_rollups})
    yield from user_families(RPC, dbd.users)


def _rollup_families(metrics: _Rollups, rollups: dict[tuple[str, ...], RollupTimes]) -> Iterator[Family]:
    for metric, field in metrics:
        values = ((labels, getattr(times, field)) for labels, times in rollups.items())
        yield Family(metric, {labels: value for labels, value in values if value is not None})


def read_dbd(slurm: Sources) -> Dbd:
    return parse_dbd(slurm.run(COMMAND, ARGUMENTS))


DBD = Reading(name="dbd", read=read_dbd, every_seconds=SLOW_SECONDS)
COLLECTOR = Collector(
    name="dbd",
    role=Role.CLUSTER,
    help="Rollups and requests of slurmdbd, from sacctmgr show stats; needs root, SlurmUser or a Slurm administrator.",
    needs=(DBD,),
    metrics=(START, *RPC.all, *(metric for metric, _ in (*ROLLUPS, *CLUSTER_ROLLUPS))),
    collect=collect,
    is_default=False,
)
