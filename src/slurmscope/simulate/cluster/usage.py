# SPDX-License-Identifier: Apache-2.0
"""Sum up what the jobs of a simulated cluster use, for its accounts, users and qualities of service."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from slurmscope.model.job_states import WAITING_STATES
from slurmscope.simulate.cluster.job_states import CPU_HOLDING_STATES
from slurmscope.simulate.cluster.records import SimulatedCluster, SimulatedJob
from slurmscope.simulate.cluster.texts import MIB

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
