# SPDX-License-Identifier: Apache-2.0
"""Read the statistics of slurmctld with one sdiag call: threads, scheduling cycles, requests.

Every user may run it. The text is parsed and not the JSON: Debian's 22.05 cannot print JSON, and the
text has changed by whole lines only from 22.05 to 25.05. A line that a release does not print is a
value that was not measured.

Most totals are reset at midnight UTC, and all when slurmctld starts; ``since`` is the time of the last reset. None is
a value that slurmctld did not report or had not measured yet.
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
    parse_timestamp,
    parse_users,
    split_blocks,
)
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The numbers of threads and of messages waiting to be sent."""

    threads: int | None = None
    is_rpc_queue_enabled: bool | None = None
    agent_queue_size: int | None = None
    agents: int | None = None
    agent_threads: int | None = None
    dbd_queue_size: int | None = None
    gettimeofday_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvents:
    """Job event counts, and the number of jobs at the last count of slurmctld."""

    submitted: int | None = None
    started: int | None = None
    completed: int | None = None
    canceled: int | None = None
    failed: int | None = None
    states_timestamp: int | None = None
    pending: int | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainScheduler:
    """The cycles of the main scheduler; a depth is the number of jobs examined in a cycle.

    Slurm prints means as integers. A sum made from them could decrease, so there is none.
    """

    cycles: int | None = None
    last_cycle_seconds: float | None = None
    max_cycle_seconds: float | None = None
    mean_cycle_seconds: float | None = None
    mean_depth: int | None = None
    cycles_per_minute: int | None = None
    last_queue_length: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The cycles of the backfill scheduler.

    ``try`` depths count only jobs that had a chance to start; the table size is the number of time slots considered
    in a cycle.
    """

    is_active: bool
    jobs: int | None = None
    jobs_since_reset: int | None = None
    het_components: int | None = None
    cycles: int | None = None
    last_cycle_timestamp: int | None = None
    last_cycle_seconds: float | None = None
    max_cycle_seconds: float | None = None
    mean_cycle_seconds: float | None = None
    last_depth: int | None = None
    last_try_depth: int | None = None
    mean_depth: int | None = None
    mean_try_depth: int | None = None
    last_queue_length: int | None = None
    mean_queue_length: int | None = None
    last_table_size: int | None = None
    mean_table_size: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diag:
    """One snapshot of the statistics.

    ``outgoing`` counts messages waiting to be sent to nodes, by type; slurmctld updates it every 30 seconds.
    """

    since: int | None
    load: Load
    job_events: JobEvents
    main: MainScheduler
    backfill: Backfill
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]
    outgoing: Mapping[str, int]


COMMAND = "sdiag"
ARGUMENTS: tuple[str, ...] = ()

_BANNER = "sdiag output at"
_SINCE = "Data since"
_MAIN = "Main schedule statistics"
_MAIN_EXIT = "Main scheduler exit"
_BACKFILL = "Backfilling stats"
_BACKFILL_EXIT = "Backfill exit"
_OUTGOING = "Pending RPC statistics"
_LATENCY = "Latency for 1000 calls to gettimeofday()"


def parse_diag(answer: bytes) -> Diag:
    """Parse a complete answer; raise MalformedAnswer when it is truncated or something else."""
    blocks = split_blocks(answer, COMMAND)
    need_block(blocks, _BANNER, COMMAND)
    outgoing = need_block(blocks, _OUTGOING, COMMAND)
    if not outgoing.rows:  # an empty table has a row that says so
        raise MalformedAnswer("sdiag: the answer ends before its last table")
    values = StatisticsValues.of(block.heading for block in blocks)
    since = parse_timestamp(need_block(blocks, _SINCE, COMMAND).heading)
    return Diag(
        since=since,
        load=_load(values),
        job_events=_job_events(values),
        main=_main(blocks, since),
        backfill=_backfill(blocks),
        messages=parse_messages(need_block(blocks, MESSAGES_HEADING, COMMAND).rows, COMMAND),
        users=parse_users(need_block(blocks, USERS_HEADING, COMMAND).rows, COMMAND),
        outgoing=parse_counts(outgoing.rows, COMMAND),
    )


def _load(values: StatisticsValues) -> Load:
    is_enabled = values.number("RPC queue enabled")
    return Load(
        threads=values.number("Server thread count"),
        is_rpc_queue_enabled=None if is_enabled is None else bool(is_enabled),
        agent_queue_size=values.number("Agent queue size"),
        agents=values.number("Agent count"),
        agent_threads=values.number("Agent thread count"),
        dbd_queue_size=values.number("DBD Agent queue size"),
        gettimeofday_seconds=values.seconds(_LATENCY),
    )


def _job_events(values: StatisticsValues) -> JobEvents:
    # A controller that has just started has not counted yet and prints 0 jobs as of 1970.
    counted_at = values.timestamp("Job states ts")
    return JobEvents(
        submitted=values.number("Jobs submitted"),
        started=values.number("Jobs started"),
        completed=values.number("Jobs completed"),
        canceled=values.number("Jobs canceled"),
        failed=values.number("Jobs failed"),
        states_timestamp=counted_at,
        pending=None if counted_at is None else values.number("Jobs pending"),
        running=None if counted_at is None else values.number("Jobs running"),
    )


def _main(blocks: Sequence[Block], since: int | None) -> MainScheduler:
    values = StatisticsValues.of(need_block(blocks, _MAIN, COMMAND).rows)
    return MainScheduler(
        cycles=values.number("Total cycles"),
        last_cycle_seconds=_cycle_seconds(values, "Last cycle"),
        max_cycle_seconds=_cycle_seconds(values, "Max cycle"),
        mean_cycle_seconds=values.seconds("Mean cycle"),
        mean_depth=values.number("Mean depth cycle"),
        cycles_per_minute=None if since is None else values.number("Cycles per minute"),
        last_queue_length=values.number("Last queue length"),
        exits=_exits(find_block(blocks, _MAIN_EXIT)),
    )


def _backfill(blocks: Sequence[Block]) -> Backfill:
    block = need_block(blocks, _BACKFILL, COMMAND)
    values = StatisticsValues.of(block.rows)
    return Backfill(
        is_active="WARNING" in block.heading,
        jobs=values.number("Total backfilled jobs (since last slurm start)"),
        jobs_since_reset=values.number("Total backfilled jobs (since last stats cycle start)"),
        het_components=values.number("Total backfilled heterogeneous job components"),
        cycles=values.number("Total cycles"),
        last_cycle_timestamp=values.timestamp("Last cycle when"),
        last_cycle_seconds=_cycle_seconds(values, "Last cycle"),
        max_cycle_seconds=_cycle_seconds(values, "Max cycle"),
        mean_cycle_seconds=values.seconds("Mean cycle"),
        last_depth=values.number("Last depth cycle"),
        last_try_depth=values.number("Last depth cycle (try sched)"),
        mean_depth=values.number("Depth Mean"),
        mean_try_depth=values.number("Depth Mean (try depth)"),
        last_queue_length=values.number("Last queue length"),
        mean_queue_length=values.number("Queue length mean"),
        last_table_size=values.number("Last table size"),
        mean_table_size=values.number("Mean table size"),
        exits=_exits(find_block(blocks, _BACKFILL_EXIT)),
    )


def _cycle_seconds(values: StatisticsValues, name: str) -> float | None:
    """Return how long a cycle took; a 0 is no measurement while there was no cycle."""
    seconds = values.seconds(name)
    return None if not seconds and not values.number("Total cycles") else seconds


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
