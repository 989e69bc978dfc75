# SPDX-License-Identifier: Apache-2.0
"""Generate the statistics that the daemons of a simulated cluster report.

Everything follows from the cluster and its time. Totals only rise with time: those of the scheduler until midnight
UTC, all others for 30 days, as if the daemons were restarted then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmscope.simulator.cluster.records import SimulatedCluster, User
from slurmscope.slurm.states import WAITING_STATES

_DAY = 86_400
_UPTIME = 30 * _DAY
_STARS = "*" * 55
# Slurm's default_queue_depth.
_MAIN_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMessage:
    """Name a kind of request, how many come in 1,000 seconds and how long one takes."""

    name: str
    number: int
    per_1000_seconds: int
    microseconds: int


_CONTROLLER_MESSAGES = (
    RpcMessage(name="REQUEST_PARTITION_INFO", number=2009, per_1000_seconds=4_100, microseconds=180),
    RpcMessage(name="REQUEST_JOB_INFO", number=2003, per_1000_seconds=1_900, microseconds=9_400),
    RpcMessage(name="REQUEST_NODE_INFO", number=2007, per_1000_seconds=900, microseconds=4_200),
    RpcMessage(name="REQUEST_SUBMIT_BATCH_JOB", number=4003, per_1000_seconds=240, microseconds=2_700),
    RpcMessage(name="REQUEST_COMPLETE_BATCH_SCRIPT", number=5018, per_1000_seconds=220, microseconds=2_900),
    RpcMessage(name="MESSAGE_NODE_REGISTRATION_STATUS", number=1002, per_1000_seconds=60, microseconds=300),
    RpcMessage(name="REQUEST_PING", number=1008, per_1000_seconds=33, microseconds=190),
    RpcMessage(name="REQUEST_STATS_INFO", number=2035, per_1000_seconds=33, microseconds=250),
    RpcMessage(name="REQUEST_KILL_JOB", number=5032, per_1000_seconds=12, microseconds=600),
)
_DATABASE_MESSAGES = (
    RpcMessage(name="DBD_STEP_START", number=1442, per_1000_seconds=500, microseconds=900),
    RpcMessage(name="DBD_STEP_COMPLETE", number=1441, per_1000_seconds=490, microseconds=2_600),
    RpcMessage(name="DBD_JOB_START", number=1425, per_1000_seconds=240, microseconds=1_900),
    RpcMessage(name="DBD_JOB_COMPLETE", number=1424, per_1000_seconds=220, microseconds=400),
    RpcMessage(name="DBD_GET_JOBS_COND", number=1444, per_1000_seconds=90, microseconds=61_000),
    RpcMessage(name="DBD_FINI", number=1401, per_1000_seconds=60, microseconds=2_600),
)


def make_diag(cluster: SimulatedCluster) -> str:
    """Write what sdiag 22.05 prints."""
    since = cluster.now - cluster.now % _DAY
    lines = (
        _STARS,
        f"sdiag output at {_moment(cluster.now)}",
        f"Data since      {_moment(since)}",
        _STARS,
        *_load_lines(cluster),
        *_job_lines(cluster, cluster.now - since),
        *_main_lines(cluster, cluster.now - since),
        "",
        *_backfill_lines(cluster, cluster.now - since),
        "",
        "Latency for 1000 calls to gettimeofday(): 21 microseconds",
        "",
        *_table_lines(cluster, _CONTROLLER_MESSAGES, widths=(40, 16, 8)),
        "",
        "Pending RPC statistics",
        "\tNo pending RPCs",
    )
    return "\n".join(lines) + "\n"


def make_database_report(cluster: SimulatedCluster) -> str:
    """Write what ``sacctmgr show stats`` of 22.05 prints."""
    stars = "*" * 67
    up = cluster.now % _UPTIME
    hour = cluster.now - cluster.now % 3600
    rolled = [("Hour", hour, up // 3600), ("Day", cluster.now - cluster.now % _DAY, up // _DAY)]
    lines = (
        stars,
        f"sacctmgr show stats output at {_moment(cluster.now)}",
        f"Data since                    {_moment(cluster.now - up)}",
        "All statistics are in microseconds",
        stars,
        "",
        *_rollup_lines("Internal DBD rollup", hour, up // 3600, 210_000),
        "",
        f"Cluster '{cluster.name}' rollup statistics",
        *(line for name, moment, runs in rolled for line in _rollup_lines(f"{name:<5}", moment, runs, 180_000)),
        "",
        *_table_lines(cluster, _DATABASE_MESSAGES, widths=(25, 20, 10)),
    )
    return "\n".join(lines) + "\n"


def _load_lines(cluster: SimulatedCluster) -> tuple[str, ...]:
    return (
        f"Server thread count:  {2 + cluster.now // 30 % 7}",
        "Agent queue size:     0",
        f"Agent count:          {cluster.now // 30 % 3}",
        f"Agent thread count:   {3 * (cluster.now // 30 % 3)}",
        "DBD Agent queue size: 0",
        "",
    )


def _job_lines(cluster: SimulatedCluster, elapsed: int) -> tuple[str, ...]:
    running = sum(job.rows for job in cluster.jobs if job.state == "RUNNING")
    submitted = elapsed * 24 // 100
    return (
        f"Jobs submitted: {submitted}",
        f"Jobs started:   {submitted * 97 // 100}",
        f"Jobs completed: {submitted * 90 // 100}",
        f"Jobs canceled:  {submitted * 4 // 100}",
        f"Jobs failed:    {submitted // 1000}",
        "",
        f"Job states ts:  {_moment(cluster.now - cluster.now % 30)}",
        f"Jobs pending:   {_pending(cluster)}",
        f"Jobs running:   {running}",
        "",
    )


def _main_lines(cluster: SimulatedCluster, elapsed: int) -> Iterator[str]:
    pending, cycles = _pending(cluster), elapsed // 2
    depth = min(pending, _MAIN_DEPTH)
    yield "Main schedule statistics (microseconds):"
    yield f"\tLast cycle:   {80 + 40 * depth if cycles else 0}"
    yield f"\tMax cycle:    {9_000 + 80 * depth if cycles else 0}"
    yield f"\tTotal cycles: {cycles}"
    # Until there was a cycle, Slurm prints no means.
    if cycles:
        yield f"\tMean cycle:   {90 + 40 * depth}"
        yield f"\tMean depth cycle:  {depth}"
    if elapsed > 60:
        yield f"\tCycles per minute: {cycles // (elapsed // 60)}"
    yield f"\tLast queue length: {pending}"


def _backfill_lines(cluster: SimulatedCluster, elapsed: int) -> Iterator[str]:
    pending, cycles = _pending(cluster), elapsed // 30
    depth = min(pending, _MAIN_DEPTH)
    yield "Backfilling stats"
    yield f"\tTotal backfilled jobs (since last slurm start): {cluster.now % _UPTIME // 12}"
    yield f"\tTotal backfilled jobs (since last stats cycle start): {elapsed // 12}"
    yield f"\tTotal backfilled heterogeneous job components: {elapsed // 3000}"
    yield f"\tTotal cycles: {cycles}"
    yield f"\tLast cycle when: {_moment(cluster.now - cluster.now % 30)}"
    yield f"\tLast cycle: {700 + 150 * pending if cycles else 0}"
    yield f"\tMax cycle:  {120_000 + 300 * pending if cycles else 0}"
    if cycles:
        yield f"\tMean cycle: {600 + 140 * pending}"
    yield f"\tLast depth cycle: {pending}"
    yield f"\tLast depth cycle (try sched): {depth}"
    if cycles:
        yield f"\tDepth Mean: {pending}"
        yield f"\tDepth Mean (try depth): {depth}"
    yield f"\tLast queue length: {pending}"
    if cycles:
        yield f"\tQueue length mean: {pending}"
    yield f"\tLast table size: {1 + depth}"
    if cycles:
        yield f"\tMean table size: {1 + depth}"


def _rollup_lines(name: str, moment: int, runs: int, microseconds: int) -> tuple[str, ...]:
    if not runs:
        return ()
    return (
        f"{name} last ran {_moment(moment)}",
        f"\tLast cycle:   {microseconds}",
        f"\tMax cycle:    {3 * microseconds}",
        f"\tTotal time:   {runs * microseconds}",
        f"\tTotal cycles: {runs}",
        f"\tMean cycle:   {microseconds}",
    )


def _table_lines(
    cluster: SimulatedCluster, messages: Sequence[RpcMessage], *, widths: tuple[int, int, int]
) -> Iterator[str]:
    """Write requests by message and by user; the users' requests add up to the messages'."""
    up = cluster.now % _UPTIME
    message_width, user_width, uid_width = widths
    counts = [(message, up * message.per_1000_seconds // 1000) for message in messages]
    yield "Remote Procedure Call statistics by message type"
    for message, count in counts:
        yield f"\t{message.name:<{message_width}}({message.number:5}){_amounts(count, message.microseconds)}"
    yield ""
    yield "Remote Procedure Call statistics by user"
    for user, count in _shares(cluster.users, sum(count for _, count in counts)):
        yield f"\t{user.name:<{user_width}}({user.uid:{uid_width}}){_amounts(count, 2_000)}"


def _amounts(count: int, microseconds: int) -> str:
    mean = microseconds if count else 0
    return f" count:{count:<6} ave_time:{mean:<6} total_time:{count * mean}"


def _shares(users: Sequence[User], requests: int) -> Iterator[tuple[User, int]]:
    """Give each user a share, some ten times that of others, and root what is left."""
    weights = [1 + user.uid % 10 for user in users]
    shares = [requests * weight // (2 * sum(weights)) for weight in weights]
    yield User(name="root", uid=0, accounts=()), requests - sum(shares)
    yield from zip(users, shares, strict=True)


def _pending(cluster: SimulatedCluster) -> int:
    return sum(job.rows for job in cluster.jobs if job.state in WAITING_STATES)


def _moment(seconds: int) -> str:
    return f"{time.strftime('%a %b %d %H:%M:%S %Y', time.gmtime(seconds))} ({seconds})"
