# SPDX-License-Identifier: Apache-2.0
"""Read the statistics of slurmctld with one sdiag call: threads, scheduling cycles, requests.

Every user may run it. The text is parsed and not the JSON: Debian's 22.05 cannot print JSON, and the
text has changed by whole lines only from 22.05 to 25.05. A line that a release does not print is a
value that was not measured.

Most totals are reset at midnight UTC, and all when slurmctld starts; ``Data since`` is the time of the last reset. None
is a value that slurmctld did not report or had not measured yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.cluster.rpc import (
    MESSAGES_HEADING,
    USERS_HEADING,
    Block,
    MessageRpcs,
    StatisticsValues,
    UserRpcs,
    find_block,
    need_block,
    parse_counts,
    parse_messages,
    parse_number,
    parse_users,
    split_blocks,
)
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import Reading

NOT_PRINTED = StatisticsValues({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Diag:
    """One snapshot of the statistics, by the names that sdiag gives them; ``daemon`` has those of the whole.

    A depth is the number of jobs examined in a cycle; ``try`` depths count only jobs that had a chance to start. The
    table size is the number of time slots considered in a cycle. Slurm prints means as integers: a sum made from them
    could decrease, so there is none. ``outgoing`` counts messages waiting to be sent to nodes, by type; slurmctld
    updates it every 30 seconds.
    """

    daemon: StatisticsValues = NOT_PRINTED
    main: StatisticsValues = NOT_PRINTED
    main_exits: Mapping[str, int] = field(default_factory=dict)
    backfill: StatisticsValues = NOT_PRINTED
    backfill_exits: Mapping[str, int] = field(default_factory=dict)
    is_backfill_active: bool = False
    messages: tuple[MessageRpcs, ...] = ()
    users: tuple[UserRpcs, ...] = ()
    outgoing: Mapping[str, int] = field(default_factory=dict)


COMMAND = "sdiag"
ARGUMENTS: tuple[str, ...] = ()

_BANNER = "sdiag output at"
_SINCE = "Data since"
_MAIN = "Main schedule statistics"
_MAIN_EXIT = "Main scheduler exit"
_BACKFILL = "Backfilling stats"
_BACKFILL_EXIT = "Backfill exit"
_OUTGOING = "Pending RPC statistics"


def parse_diag(answer: bytes) -> Diag:
    """Parse a complete answer; raise MalformedAnswer when it is truncated or something else."""
    blocks = split_blocks(answer, COMMAND)
    need_block(blocks, _BANNER, COMMAND)
    outgoing = need_block(blocks, _OUTGOING, COMMAND)
    if not outgoing.rows:  # an empty table has a row that says so
        raise MalformedAnswer("sdiag: the answer ends before its last table")
    main, backfill = need_block(blocks, _MAIN, COMMAND), need_block(blocks, _BACKFILL, COMMAND)
    daemon = _daemon(blocks)
    return Diag(
        daemon=daemon,
        main=_cycles(main) if daemon.timestamp(_SINCE) else _cycles(main).without("Cycles per minute"),
        main_exits=_exits(find_block(blocks, _MAIN_EXIT)),
        backfill=_cycles(backfill),
        backfill_exits=_exits(find_block(blocks, _BACKFILL_EXIT)),
        is_backfill_active="WARNING" in backfill.heading,
        messages=parse_messages(need_block(blocks, MESSAGES_HEADING, COMMAND).rows, COMMAND),
        users=parse_users(need_block(blocks, USERS_HEADING, COMMAND).rows, COMMAND),
        outgoing=parse_counts(outgoing.rows, COMMAND),
    )


def _daemon(blocks: Sequence[Block]) -> StatisticsValues:
    named = StatisticsValues.of(block.heading for block in blocks)
    values = StatisticsValues({**named.texts, _SINCE: need_block(blocks, _SINCE, COMMAND).heading})
    # A controller that has just started has not counted yet and prints 0 jobs as of 1970.
    return values if values.timestamp("Job states ts") else values.without("Jobs pending", "Jobs running")


def _cycles(block: Block) -> StatisticsValues:
    """Read the statistics of a scheduler; the 0 seconds of a cycle while there was none are no measurement."""
    values = StatisticsValues.of(block.rows)
    if values.number("Total cycles"):
        return values
    return values.without(*(name for name in ("Last cycle", "Max cycle") if not values.number(name)))


def _exits(block: Block | None) -> dict[str, int]:
    """Count the reasons why cycles ended, by Slurm's own names; 22.05 does not report them."""
    pairs = [row.rpartition(":") for row in block.rows] if block else []
    counts = {cause: parse_number(count.strip()) for cause, _, count in pairs}
    return {cause: count for cause, count in counts.items() if count is not None}


def read_diag(slurm: Sources) -> Diag:
    return parse_diag(slurm.run(COMMAND, ARGUMENTS))


DIAG = Reading(
    name="diag",
    read=read_diag,
    every_seconds=30.0,
    older_duration="slurm_diag_scrape_duration",
    older_errors=("slurm_diag_scrape_error",),
)
