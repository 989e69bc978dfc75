# SPDX-License-Identifier: Apache-2.0
"""Summarize the pending jobs of one person, and how long jobs of each shape waited."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.analysis.pending.pending_reasons import explain_reason
from slurmscope.model.waiting import WaitingJob, WaitingQueue
from slurmscope.model.waiting_times import (
    CORES_BOUNDS,
    LIMIT_BOUNDS_SECONDS,
    WaitingTime,
    label_cores,
    label_limit,
)

MAX_OWN = 5
LEVEL_BOUNDS_SECONDS = (60.0, 600.0, 3600.0, 6 * 3600.0, 86_400.0)
"""Bounds of the shades of the table of waiting times."""


class OwnJob(NamedTuple):
    """Hold one pending job with its reason in words and its cluster."""

    job: WaitingJob
    meaning: str
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWaiting:
    """Hold the pending jobs of one person that start first, and the number of all of them, each task counted."""

    jobs: tuple[OwnJob, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTable:
    """Hold how long jobs of one partition waited, by cores (rows) and time limit (columns)."""

    partition: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[WaitingTime | None, ...]], ...]
    jobs: int
    cluster: str = ""
    partitions: tuple[str, ...] = ()
    """Partitions to choose from."""


def summarize_own(queues: Sequence[WaitingQueue], user: str) -> OwnWaiting:
    """Return the pending jobs of a user in all clusters, those with the earliest expected start first."""
    own = [(job, queue.cluster) for queue in queues for job in queue.of_user(user)]
    ordered = sorted(own, key=lambda one: _start_order(one[0]))
    return OwnWaiting(
        jobs=tuple(OwnJob(job, explain_reason(job.reason).meaning, cluster) for job, cluster in ordered[:MAX_OWN]),
        count=sum(job.task_count for job, _ in own),
    )


def _start_order(job: WaitingJob) -> tuple[bool, int, int]:
    return job.start_seconds is None, job.start_seconds or 0, -job.submit_seconds


def make_waiting_table(partition: str, waits: Mapping[tuple[int, int], WaitingTime]) -> WaitingTable:
    """Arrange waiting times by shape; shapes without jobs are None."""
    limits = range(len(LIMIT_BOUNDS_SECONDS) + 1)
    rows = tuple(
        (label_cores(cores), tuple(waits.get((cores, limit)) for limit in limits))
        for cores in range(len(CORES_BOUNDS) + 1)
    )
    return WaitingTable(
        partition=partition,
        columns=tuple(map(label_limit, limits)),
        rows=rows,
        jobs=sum(wait.jobs for wait in waits.values()),
    )


def rate_wait(seconds: float) -> int:
    """Return the shade of a waiting time, from 0 to 5."""
    return bisect_right(LEVEL_BOUNDS_SECONDS, seconds)
