# SPDX-License-Identifier: Apache-2.0
"""Export the statistics of slurmctld: threads, scheduling cycles, and requests by message and user.

::

    slurm_scheduler_cycles_total 163
    slurm_backfill_last_cycle_seconds 0.00072
    slurm_rpc_requests_total{message="REQUEST_JOB_INFO"} 42

Every user may run sdiag. Its text is parsed and not its JSON: Debian's 22.05 cannot print JSON, and the text has
changed by whole lines only from 22.05 to 25.05. A line that a release does not print is a value that was not measured.

Slurm resets most totals to 0 at midnight UTC, which is an ordinary counter reset, and all when slurmctld starts; ``Data
since`` is the time of the last reset. Slurm prints the mean duration of cycles but not their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.cluster.rpc import (
    MESSAGES_HEADING,
    USERS_HEADING,
    Block,
    MessageRpcs,
    RpcQueue,
    RpcSums,
    StatisticsValues,
    UserRpcs,
    declare_rpc_metrics,
    find_block,
    message_families,
    need_block,
    parse_counts,
    parse_messages,
    parse_number,
    parse_users,
    split_blocks,
    sum_rpcs,
    user_families,
)
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge

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
_MAIN_HEADING = "Main schedule statistics"
_MAIN_EXIT_HEADING = "Main scheduler exit"
_BACKFILL_HEADING = "Backfilling stats"
_BACKFILL_EXIT_HEADING = "Backfill exit"
_OUTGOING_HEADING = "Pending RPC statistics"


def parse_diag(answer: bytes) -> Diag:
    """Parse a complete answer; raise MalformedAnswer when it is truncated or something else."""
    blocks = split_blocks(answer, COMMAND)
    need_block(blocks, _BANNER, COMMAND)
    outgoing = need_block(blocks, _OUTGOING_HEADING, COMMAND)
    if not outgoing.rows:  # an empty table has a row that says so
        raise MalformedAnswer("sdiag: the answer ends before its last table")
    main, backfill = need_block(blocks, _MAIN_HEADING, COMMAND), need_block(blocks, _BACKFILL_HEADING, COMMAND)
    daemon = _daemon(blocks)
    return Diag(
        daemon=daemon,
        main=_cycles(main) if daemon.timestamp(_SINCE) else _cycles(main).without("Cycles per minute"),
        main_exits=_exits(find_block(blocks, _MAIN_EXIT_HEADING)),
        backfill=_cycles(backfill),
        backfill_exits=_exits(find_block(blocks, _BACKFILL_EXIT_HEADING)),
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


_Statistics = tuple[tuple[Metric, str], ...]
"""Metrics without labels, and the line of sdiag that each is read from."""


def _declare(prefix: str, *rows: tuple[str, str, str]) -> _Statistics:
    """Declare a metric for each line: the end of its name, the line, and the help."""
    return tuple(
        ((counter if end.endswith("_total") else gauge)(f"{prefix}_{end}", text), line) for end, line, text in rows
    )


_DAEMON: _Statistics = (
    *_declare(
        "slurm_scheduler",
        ("threads", "Server thread count", "Active threads of slurmctld."),
        ("agent_queue_size", "Agent queue size", "Messages to nodes waiting to be sent."),
        ("agents", "Agent count", "Agents sending messages to nodes."),
        ("agent_threads", "Agent thread count", "Threads of all agents."),
        (
            "dbd_queue_size",
            "DBD Agent queue size",
            "Messages waiting to be sent to slurmdbd; grows while slurmdbd is down.",
        ),
        (
            "gettimeofday_seconds",
            "Latency for 1000 calls to gettimeofday()",
            "Time slurmctld needs for 1000 calls of gettimeofday.",
        ),
    ),
    (gauge("slurm_rpc_queue_enabled", "1 if slurmctld processes requests by queue."), "RPC queue enabled"),
    (
        gauge(
            "slurm_scheduler_statistics_start_timestamp_seconds",
            "Unix time at which the slurmctld statistics were last reset.",
        ),
        "Data since",
    ),
    (compat_gauge("slurm_daemon_thread_count", "Active threads of slurmctld."), "Server thread count"),
    (compat_gauge("slurm_dbd_agent_queue_size", "Messages waiting to be sent to slurmdbd."), "DBD Agent queue size"),
    *_declare(
        "slurm_scheduler",
        ("jobs_submitted_total", "Jobs submitted", "Jobs submitted."),
        ("jobs_started_total", "Jobs started", "Jobs started."),
        ("jobs_completed_total", "Jobs completed", "Jobs completed."),
        ("jobs_canceled_total", "Jobs canceled", "Jobs canceled."),
        ("jobs_failed_total", "Jobs failed", "Jobs that failed due to internal problems of Slurm."),
        ("jobs_pending", "Jobs pending", "Pending jobs at the last count of slurmctld."),
        ("jobs_running", "Jobs running", "Running jobs at the last count of slurmctld."),
        ("job_states_timestamp_seconds", "Job states ts", "Unix time of the last job count of slurmctld."),
    ),
)
_MAIN = _declare(
    "slurm_scheduler",
    ("cycles_total", "Total cycles", "Cycles of the main scheduler."),
    ("last_cycle_seconds", "Last cycle", "Duration of the last cycle of the main scheduler."),
    ("max_cycle_seconds", "Max cycle", "Duration of the longest cycle of the main scheduler since the last reset."),
    ("mean_cycle_seconds", "Mean cycle", "Mean duration of cycles of the main scheduler since the last reset."),
    ("mean_depth", "Mean depth cycle", "Mean number of jobs examined per cycle of the main scheduler."),
    ("cycles_per_minute", "Cycles per minute", "Cycles of the main scheduler per minute since the last reset."),
    ("last_queue_length", "Last queue length", "Pending jobs in the last cycle of the main scheduler."),
)
_JOBS_LINE = "Total backfilled jobs (since last slurm start)"
_TRY_LINE = "Last depth cycle (try sched)"
_BACKFILL: _Statistics = (
    *_declare(
        "slurm_backfill",
        ("jobs_total", _JOBS_LINE, "Jobs started by backfill since slurmctld started."),
        (
            "jobs_since_reset",
            "Total backfilled jobs (since last stats cycle start)",
            "Jobs started by backfill since the last reset.",
        ),
        (
            "het_components_total",
            "Total backfilled heterogeneous job components",
            "Components of heterogeneous jobs started by backfill.",
        ),
        ("cycles_total", "Total cycles", "Cycles of the backfill scheduler."),
        ("last_cycle_timestamp_seconds", "Last cycle when", "Unix time at which the last backfill cycle started."),
        ("last_cycle_seconds", "Last cycle", "Duration of the last backfill cycle."),
        ("max_cycle_seconds", "Max cycle", "Duration of the longest backfill cycle since the last reset."),
        ("mean_cycle_seconds", "Mean cycle", "Mean duration of backfill cycles since the last reset."),
        # An older exporter has a metric of the same name and meaning.
        ("last_depth", "Last depth cycle", "Jobs examined in the last backfill cycle."),
        ("last_try_depth", _TRY_LINE, "Jobs that the last backfill cycle tried to start."),
        ("mean_depth", "Depth Mean", "Mean number of jobs examined per backfill cycle."),
        ("mean_try_depth", "Depth Mean (try depth)", "Mean number of jobs that a backfill cycle tried to start."),
        ("last_queue_length", "Last queue length", "Pending jobs in the last backfill cycle."),
        ("mean_queue_length", "Queue length mean", "Mean number of pending jobs per backfill cycle."),
        ("last_table_size", "Last table size", "Time slots considered in the last backfill cycle."),
        ("mean_table_size", "Mean table size", "Mean number of time slots considered per backfill cycle."),
    ),
    (compat_gauge("slurm_backfill_job_count", "Jobs started by backfill."), _JOBS_LINE),
    (compat_gauge("slurm_backfill_cycle_count", "Cycles of the backfill scheduler."), "Total cycles"),
    (compat_gauge("slurm_backfill_cycle_counter", "Cycles of the backfill scheduler."), "Total cycles"),
    (
        compat_gauge("slurm_backfill_last_depth_try_sched", "Jobs that the last backfill cycle tried to start."),
        _TRY_LINE,
    ),
)
ACTIVE = gauge("slurm_backfill_active", "1 while a backfill cycle is running.")

EXITS = counter("slurm_scheduler_exits_total", "Cycles of the main scheduler by the cause of their end.", "cause")
BACKFILL_EXITS = counter("slurm_backfill_exits_total", "Backfill cycles by the cause of their end.", "cause")
OUTGOING = gauge("slurm_rpc_outgoing_pending", "Messages to nodes waiting to be sent, by message.", "message")

RPC = declare_rpc_metrics("slurm_rpc", "slurmctld")
COMPAT_COUNT = compat_gauge("slurm_rpc_msg_type_count", "Requests to slurmctld by message.", "type")
COMPAT_AVG_TIME = compat_gauge(
    "slurm_rpc_msg_type_avg_time", "Mean time per request in microseconds, by message.", "type"
)
COMPAT_TOTAL_TIME = compat_gauge(
    "slurm_rpc_msg_type_total_time", "Total time of requests in microseconds, by message.", "type"
)
COMPAT_USER_COUNT = compat_gauge("slurm_rpc_user_count", "Requests to slurmctld by user.", "user")
COMPAT_USER_TIME = compat_gauge("slurm_rpc_user_total_time", "Total time of requests in microseconds, by user.", "user")

_QUEUE: tuple[tuple[Metric, Callable[[RpcQueue], int]], ...] = (
    (gauge("slurm_rpc_queued", "Requests waiting in the queue of slurmctld.", "message"), lambda q: q.queued),
    (counter("slurm_rpc_dropped_total", "Requests dropped by the queue of slurmctld.", "message"), lambda q: q.dropped),
    (
        gauge("slurm_rpc_queue_last_cycle_requests", "Requests processed in the last cycle of a queue.", "message"),
        lambda q: q.last_cycle_requests,
    ),
    (
        gauge("slurm_rpc_queue_max_cycle_requests", "Most requests processed in one cycle of a queue.", "message"),
        lambda q: q.max_cycle_requests,
    ),
)


def collect(options: NoOptions, *, diag: Diag) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield one family per statistic; values that were not measured are left out."""
    yield from _statistic_families(_DAEMON, diag.daemon)
    yield from _statistic_families(_MAIN, diag.main)
    yield Family(ACTIVE, {(): int(diag.is_backfill_active)})
    yield from _statistic_families(_BACKFILL, diag.backfill)
    yield Family(EXITS, _by_text(diag.main_exits))
    yield Family(BACKFILL_EXITS, _by_text(diag.backfill_exits))
    yield Family(OUTGOING, _by_text(diag.outgoing))
    yield from message_families(RPC, diag.messages)
    yield from _compat_message_families(diag.messages)
    for metric, amount in _QUEUE:
        yield Family(metric, {(row.message,): amount(row.queue) for row in diag.messages if row.queue is not None})
    yield from user_families(RPC, diag.users)
    yield from _compat_user_families(diag.users)


def _statistic_families(statistics: _Statistics, values: StatisticsValues) -> Iterator[Family]:
    """Yield the values of lines; the unit at the end of the metric's name is that of the line."""
    for metric, line in statistics:
        if metric.name.endswith("_timestamp_seconds"):
            value: float | None = values.timestamp(line)
        else:
            value = values.seconds(line) if metric.name.endswith("_seconds") else values.number(line)
        yield Family(metric, {} if value is None else {(): value})


def _by_text(counts: Mapping[str, int]) -> dict[Labels, int]:
    return {(text,): count for text, count in counts.items()}


def _compat_message_families(rows: Iterable[MessageRpcs]) -> Iterator[Family]:
    sums = sum_rpcs(((row.message,), row) for row in rows)
    microseconds = _microseconds(sums)
    yield Family(COMPAT_COUNT, sums.requests)
    yield Family(COMPAT_AVG_TIME, {key: microseconds[key] / count for key, count in sums.requests.items() if count})
    yield Family(COMPAT_TOTAL_TIME, microseconds)


def _compat_user_families(rows: Iterable[UserRpcs]) -> Iterator[Family]:
    """Yield users by name only; newer Slurm releases call every uid without a name ``nobody``."""
    sums = sum_rpcs(((row.user,), row) for row in rows)
    yield Family(COMPAT_USER_COUNT, sums.requests)
    yield Family(COMPAT_USER_TIME, _microseconds(sums))


def _microseconds(sums: RpcSums) -> dict[Labels, int]:
    return {labels: round(1e6 * seconds) for labels, seconds in sums.seconds.items()}


COLLECTOR = Collector(
    name="scheduler",
    role=Role.CLUSTER,
    help="Threads, scheduling cycles and requests of slurmctld, from one sdiag call.",
    needs=("diag",),
    metrics=(
        *(metric for metric, _ in (*_DAEMON, *_MAIN)),
        *(ACTIVE, *(metric for metric, _ in _BACKFILL)),
        *(EXITS, BACKFILL_EXITS, OUTGOING),
        *RPC.all,
        *(COMPAT_COUNT, COMPAT_AVG_TIME, COMPAT_TOTAL_TIME, COMPAT_USER_COUNT, COMPAT_USER_TIME),
        *(metric for metric, _ in _QUEUE),
    ),
    collect=collect,
)
