# SPDX-License-Identifier: Apache-2.0
"""Generate the tree of shares of a simulated cluster."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, SimulatedCluster, SimulatedJob
from slurmscope.simulator.cluster.texts import MIB
from slurmscope.slurm.states import WAITING_STATES

RESOURCES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu")

# Account, user, quality of service.
Owner = tuple[str, str, str]
Tally = Counter[str]


def tally(cluster: SimulatedCluster) -> Mapping[Owner, Tally]:
    """Sum up the jobs of each owner.

    A tally counts jobs under ``jobs`` and ``submitted``, held resources under their names (memory in MiB), and seconds
    of CPU under ``used`` and ``left``; ``left`` is what running jobs may still use.
    """
    sums: defaultdict[Owner, Tally] = defaultdict(Counter)
    for job in cluster.jobs:
        if job.account is not None:
            sums[job.account, job.user.name, job.qos].update(_amounts(job, cluster.now))
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


def _amounts(job: SimulatedJob, now: int) -> dict[str, int]:
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
