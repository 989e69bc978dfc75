# SPDX-License-Identifier: Apache-2.0
"""Hold all jobs known to the controller, in groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.gres import Gres
from slurmscope.model.job_states import ENDED_STATES, WAITING_STATES

NOT_STARTED_STATES = WAITING_STATES | {"CANCELLED", "DEADLINE"}
"""States in which a job has not started, has to start again, or may never have started.

Slurm sets a start time on jobs that are cancelled while pending. One that really started was seen running before.
"""

WAIT_BUCKETS_SECONDS = (
    1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 12 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0,
)  # fmt: skip
"""Upper bounds of the wait time histogram: from a second to a week."""


class JobGroup(NamedTuple):
    """Hold sums over jobs that have account, user and so on in common.

    ``jobs`` is their number; a pending array of 1,000 tasks counts as 1,000. The numbers after it are sums over all of
    them: allocated resources, or requested ones while pending. ``partitions`` has more than one name if a pending job
    may start in any of them.

    A named tuple, because a large cluster has tens of thousands of groups at every reading and a frozen dataclass
    takes five times as long to make.
    """

    account: str
    user: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    features: tuple[str, ...]
    jobs: int
    nodes: int
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...]
    first_submit_seconds: int

    @property
    def has_ended(self) -> bool:
        """Return whether the jobs have ended."""
        return self.state in ENDED_STATES


@dataclass(frozen=True, slots=True)
class JobStart:
    """Hold a number of jobs that started after the same wait time."""

    partition: str
    qos: str
    wait_seconds: int
    jobs: int


@dataclass(frozen=True, slots=True)
class WaitTally:
    """Hold the wait time histogram since the exporter started; the last bucket has no upper bound."""

    counts: tuple[int, ...]
    total_seconds: float


class JobOwner(NamedTuple):
    """Hold who runs a job, and where."""

    account: str
    user: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Hold one snapshot of all jobs known to the controller.

    ``starts`` are the jobs that started in the time window of the snapshot; ``waits`` sums them by partition and QOS
    over all snapshots. ``unreadable_rows`` counts rows that could not be parsed; they are in no group. ``owners``
    holds jobs that started, by job ID and by the ID of their array; empty unless it was requested.
    """

    groups: tuple[JobGroup, ...]
    taken_at_seconds: float
    starts: tuple[JobStart, ...] = ()
    waits: Mapping[tuple[str, str], WaitTally] = field(default_factory=dict)
    unreadable_rows: int = 0
    owners: Mapping[int, JobOwner] = field(default_factory=dict)


class ListedJob(NamedTuple):
    """Hold one job, or all pending tasks of an array."""

    job_id: str
    array_job_id: str
    array_tasks: str
    het_job_id: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    node_list: str
    name: str
    cpus: int
    memory_bytes: int | None


class JobList(NamedTuple):
    """Hold every job known to the controller, newest submission first for each job ID."""

    jobs: tuple[ListedJob, ...]
    unreadable_rows: int = 0
