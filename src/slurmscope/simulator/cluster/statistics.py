# SPDX-License-Identifier: Apache-2.0
"""Generate the statistics that daemons of a simulated cluster report, and its tree of shares.

Everything follows from the cluster and its time. Totals only rise with time: those of the scheduler until midnight
UTC, all others for 30 days, as if the daemons were restarted then.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, SimulatedCluster, SimulatedJob, User
from slurmscope.slurm.states import WAITING_STATES

_DAY = 86_400
_UPTIME = 30 * _DAY
_STARS = "*" * 55
# Slurm's default_queue_depth.
_MAIN_DEPTH = 100


# Requests by name: number, how many come in 1,000 seconds, and how many microseconds one takes.
_Messages = Mapping[str, tuple[int, int, int]]
_CONTROLLER_MESSAGES: _Messages = {
    "REQUEST_PARTITION_INFO": (2009, 4_100, 180),
    "REQUEST_JOB_INFO": (2003, 1_900, 9_400),
    "REQUEST_NODE_INFO": (2007, 900, 4_200),
    "REQUEST_SUBMIT_BATCH_JOB": (4003, 240, 2_700),
    "REQUEST_COMPLETE_BATCH_SCRIPT": (5018, 220, 2_900),
    "MESSAGE_NODE_REGISTRATION_STATUS": (1002, 60, 300),
    "REQUEST_PING": (1008, 33, 190),
    "REQUEST_STATS_INFO": (2035, 33, 250),
    "REQUEST_KILL_JOB": (5032, 12, 600),
}
_DATABASE_MESSAGES: _Messages = {
    "DBD_STEP_START": (1442, 500, 900),
    "DBD_STEP_COMPLETE": (1441, 490, 2_600),
    "DBD_JOB_START": (1425, 240, 1_900),
    "DBD_JOB_COMPLETE": (1424, 220, 400),
    "DBD_GET_JOBS_COND": (1444, 90, 61_000),
    "DBD_FINI": (1401, 60, 2_600),
}

RESOURCES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu")

# Account, user, quality of service.
Owner = tuple[str, str, str]
Tally = Counter[str]


def make_diag(cluster: SimulatedCluster) -> str:
    """Write what sdiag 22.05 prints."""
    since = cluster.now - cluster.now % _DAY
    # Until there was a cycle, Slurm prints no means: here each had one at midnight.
    elapsed = max(60, cluster.now - since)
    lines = (
        _STARS,
        f"sdiag output at {_moment(cluster.now)}",
        f"Data since      {_moment(since)}",
        _STARS,
        *_load_lines(cluster),
        *_job_lines(cluster, elapsed),
        *_main_lines(cluster, elapsed),
        "",
        *_backfill_lines(cluster, elapsed),
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


def _main_lines(cluster: SimulatedCluster, elapsed: int) -> tuple[str, ...]:
    pending, cycles = _pending(cluster), elapsed // 2
    depth = min(pending, _MAIN_DEPTH)
    return (
        "Main schedule statistics (microseconds):",
        f"\tLast cycle:   {80 + 40 * depth}",
        f"\tMax cycle:    {9_000 + 80 * depth}",
        f"\tTotal cycles: {cycles}",
        f"\tMean cycle:   {90 + 40 * depth}",
        f"\tMean depth cycle:  {depth}",
        f"\tCycles per minute: {cycles // (elapsed // 60)}",
        f"\tLast queue length: {pending}",
    )


def _backfill_lines(cluster: SimulatedCluster, elapsed: int) -> tuple[str, ...]:
    pending = _pending(cluster)
    depth = min(pending, _MAIN_DEPTH)
    return (
        "Backfilling stats",
        f"\tTotal backfilled jobs (since last slurm start): {cluster.now % _UPTIME // 12}",
        f"\tTotal backfilled jobs (since last stats cycle start): {elapsed // 12}",
        f"\tTotal backfilled heterogeneous job components: {elapsed // 3000}",
        f"\tTotal cycles: {elapsed // 30}",
        f"\tLast cycle when: {_moment(cluster.now - cluster.now % 30)}",
        f"\tLast cycle: {700 + 150 * pending}",
        f"\tMax cycle:  {120_000 + 300 * pending}",
        f"\tMean cycle: {600 + 140 * pending}",
        f"\tLast depth cycle: {pending}",
        f"\tLast depth cycle (try sched): {depth}",
        f"\tDepth Mean: {pending}",
        f"\tDepth Mean (try depth): {depth}",
        f"\tLast queue length: {pending}",
        f"\tQueue length mean: {pending}",
        f"\tLast table size: {1 + depth}",
        f"\tMean table size: {1 + depth}",
    )


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


def _table_lines(cluster: SimulatedCluster, messages: _Messages, *, widths: tuple[int, int, int]) -> Iterator[str]:
    """Write requests by message and by user; the users' requests add up to the messages'."""
    up = cluster.now % _UPTIME
    message_width, user_width, uid_width = widths
    counts = {name: up * per_1000_seconds // 1000 for name, (_, per_1000_seconds, _) in messages.items()}
    yield "Remote Procedure Call statistics by message type"
    for name, (number, _, microseconds) in messages.items():
        yield f"\t{name:<{message_width}}({number:5}){_amounts(counts[name], microseconds)}"
    yield ""
    yield "Remote Procedure Call statistics by user"
    for user, count in _shares(cluster.users, sum(counts.values())):
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


def tally(cluster: SimulatedCluster) -> Mapping[Owner, Tally]:
    """Sum up the jobs of each owner.

    A tally counts jobs under ``jobs`` and ``submitted``, held resources under their names (memory in MiB), and seconds
    of CPU under ``used`` and ``left``; ``left`` is what running jobs may still use.
    """
    sums: defaultdict[Owner, Tally] = defaultdict(Counter)
    for job in cluster.jobs:
        if job.account is not None:
            sums[job.account, job.user.name, job.qos].update(_share_amounts(job, cluster.now))
    return sums


def roll_up(owners: Mapping[Owner, Tally], *places: int) -> Mapping[tuple[str, ...], Tally]:
    """Add up the owners that are alike in these places: 0 is the account, 1 the user, 2 the quality of service."""
    sums: defaultdict[tuple[str, ...], Tally] = defaultdict(Counter)
    for owner, each in owners.items():
        sums[tuple(owner[place] for place in places)].update(each)
    return sums


def tres_text(limits: Mapping[str, int], used: Mapping[str, int]) -> str:
    """Write limits with their use: cpu=16(3),mem=N(300),…"""
    return ",".join(f"{name}={limits.get(name, 'N')}({used.get(name, 0)})" for name in RESOURCES)


def _share_amounts(job: SimulatedJob, now: int) -> dict[str, int]:
    if job.state in WAITING_STATES:
        return {"submitted": job.rows}
    seconds = max(0, min(now, job.end_time or now) - (job.start_time or now))
    amounts = {"used": job.cpus * seconds}
    if job.state in CPU_HOLDING_STATES:
        held = {"cpu": job.cpus, "mem": job.memory_bytes // MIB, "node": job.nodes, "gres/gpu": job.gpus}
        left = job.cpus * max(0, (job.time_limit_seconds or 0) - seconds)
        amounts |= {**held, "billing": job.cpus, "jobs": job.rows, "submitted": job.rows, "left": left}
    return amounts


ShareRow = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """An account or a user beside its siblings."""

    name: str
    shares: int
    norm_shares: float
    effective_usage: float
    sums: Tally

    @property
    def level(self) -> float:
        """Return the level of use: 1 means the share is fully used, more means less used."""
        return self.norm_shares / self.effective_usage if self.effective_usage else math.inf


def make_rows(cluster: SimulatedCluster) -> Iterator[ShareRow]:
    """Yield the rows of sshare: the root, then each account with its users, the columns by their headers."""
    owners = tally(cluster)
    everything = roll_up(owners)[()]
    by_account, by_user = roll_up(owners, 0), roll_up(owners, 0, 1)
    accounts = _branches({name: (10 + place, by_account[name,]) for place, name in enumerate(cluster.accounts)})
    users = {
        account.name: _branches(
            {
                user.name: (1, by_user[account.name, user.name])
                for user in cluster.users
                if account.name in user.accounts
            }
        )
        for account in accounts
    }
    factors = _factors(accounts, users)
    yield {**_row("root", everything, cluster.name), "NormShares": "0.000000", "EffectvUsage": "1.000000"}
    for account in accounts:
        yield _branch_row(f" {account.name}", account, everything["used"], cluster.name)
        for user in users[account.name]:
            row = _branch_row(f"  {account.name}", user, everything["used"], cluster.name)
            yield {**row, "User": user.name, "FairShare": f"{factors[account.name, user.name]:.6f}"}


def _branches(siblings: Mapping[str, tuple[int, Tally]]) -> list[_Branch]:
    all_shares = sum(shares for shares, _ in siblings.values())
    used = sum(sums["used"] for _, sums in siblings.values())
    return [
        _Branch(
            name=name,
            shares=shares,
            norm_shares=shares / all_shares,
            effective_usage=sums["used"] / used if used else 0.0,
            sums=sums,
        )
        for name, (shares, sums) in siblings.items()
    ]


def _factors(accounts: list[_Branch], users: Mapping[str, list[_Branch]]) -> dict[tuple[str, str], float]:
    """Rank the users: first by the level of their account, then by their own."""
    ranked = [
        (account.name, user.name)
        for account in sorted(accounts, key=lambda branch: branch.level)
        for user in sorted(users[account.name], key=lambda branch: branch.level)
    ]
    return {who: (place + 1) / len(ranked) for place, who in enumerate(ranked)}


def _branch_row(account: str, branch: _Branch, used: int, cluster: str) -> dict[str, str]:
    return {
        **_row(account, branch.sums, cluster),
        "RawShares": str(branch.shares),
        "NormShares": f"{branch.norm_shares:.6f}",
        "NormUsage": f"{branch.sums['used'] / used if used else 0:.6f}",
        "EffectvUsage": f"{branch.effective_usage:.6f}",
        "LevelFS": f"{branch.level:.6f}",
    }


def _row(account: str, sums: Tally, cluster: str) -> dict[str, str]:
    return {
        "Account": account,
        "Cluster": cluster,
        "RawUsage": str(sums["used"]),
        "TRESRunMins": _minutes(sums["left"]),
        "GrpTRESRaw": _minutes(sums["used"]),
    }


def _minutes(cpu_seconds: int) -> str:
    """Write CPU time as a list of resources; of the others the simulation keeps no time."""
    minutes = {"cpu": cpu_seconds // 60, "billing": cpu_seconds // 60}
    return ",".join(f"{name}={minutes.get(name, 0)}" for name in RESOURCES)
