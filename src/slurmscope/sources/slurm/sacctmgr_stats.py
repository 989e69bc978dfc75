# SPDX-License-Identifier: Apache-2.0
"""Read what slurmdbd says of its own work with one sacctmgr call.

slurmdbd answers this request to root, to SlurmUser and to administrators only (``AdminLevel=Admin``;
seen with 22.05: an operator is refused). The controller is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurmscope.errors import MalformedAnswer
from slurmscope.model.dbd import ClusterRollup, Dbd, Rollup, RollupTimes
from slurmscope.sources.slurm.statistics_text import (
    MESSAGES_HEADING,
    USERS_HEADING,
    Block,
    StatisticsValues,
    need_block,
    parse_messages,
    parse_timestamp,
    parse_users,
    split_blocks,
)

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
