# SPDX-License-Identifier: Apache-2.0
"""Hold what the controller knows of its jobs at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.gres import Gres
from slurmscope.model.job_states import ENDED_STATES, WAITING_STATES

NOT_STARTED_STATES = WAITING_STATES | {"CANCELLED", "DEADLINE"}
"""States in which a job has not started, has to start again, or perhaps never did.

Slurm sets a start time on jobs that are cancelled while they wait. One that really started was seen running before.
"""

WAIT_BUCKETS_SECONDS = (
    1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 12 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0,
)  # fmt: skip
"""Upper bounds of the histogram of waits: from at once to a week."""


class JobGroup(NamedTuple):
    """Add up the jobs that have these names in common.

    ``jobs`` tells how many there are; a pending array of 1,000 tasks counts as 1,000. The numbers
    behind it are sums over all of them: what they hold, or what they ask for while they wait.
    ``partitions`` has more than one name when a pending job may start in any of them.

    A named tuple, because a large cluster has tens of thousands of groups at every reading and a
    frozen dataclass takes five times as long to make.
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
        """Tell whether the jobs neither hold nor want anything any more."""
        return self.state in ENDED_STATES


@dataclass(frozen=True, slots=True)
class JobStart:
    """Count jobs that started and had waited equally long."""

    partition: str
    qos: str
    wait_seconds: int
    jobs: int


@dataclass(frozen=True, slots=True)
class WaitTally:
    """Sum up waits since the exporter started; counts are per bucket, the last one is above every bound."""

    counts: tuple[int, ...]
    total_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Hold one snapshot of all jobs the controller still remembers.

    ``starts`` are the jobs that started in the window the snapshot was read for; ``waits`` sums them
    up by partition and QOS over all snapshots. ``unreadable_rows`` counts rows that did not have the
    expected columns; they are in no group.
    """

    groups: tuple[JobGroup, ...]
    taken_at_seconds: float
    starts: tuple[JobStart, ...] = ()
    waits: Mapping[tuple[str, str], WaitTally] = field(default_factory=dict)
    unreadable_rows: int = 0
