# SPDX-License-Identifier: Apache-2.0
"""Find where a pending job stands in its partitions, and how its priority compares with that of others.

Only counts and numbers of other jobs leave this module: names of their users and jobs do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slurmscope.model.waiting import JobPriorities, JobPriority, WaitingJob, WaitingQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """Hold the position of a job among those that may start in a partition; an array counts as its pending tasks."""

    partition: str
    position: int
    jobs: int
    cores_ahead: int
    gpus_ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRow:
    """Hold one factor of a job's priority, beside that of others in the partition; None without such a job."""

    factor: str
    own: float
    median: float
    ahead: float | None
    behind: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityTable:
    """Hold the priority of a job in one partition and its factors; the first row is their sum."""

    partition: str
    jobs: int
    rows: tuple[PriorityRow, ...]


def find_positions(queue: WaitingQueue, job: WaitingJob) -> Iterator[QueuePosition]:
    """Yield the position in each partition, by falling priority; held and dependent jobs have none and do not count."""
    for partition in job.partitions:
        if (ahead := queue.ahead_of(job, partition)) is not None:
            yield QueuePosition(
                partition=partition,
                position=1 + ahead.jobs,
                jobs=ahead.total,
                cores_ahead=ahead.cores,
                gpus_ahead=ahead.gpus,
            )


def compare_priorities(priorities: JobPriorities, job: WaitingJob) -> Iterator[PriorityTable]:
    """Yield the factors of a job in each partition, beside the median and the jobs next to it."""
    for own in priorities.of(job):
        others, place = priorities.in_partition(own.partition), priorities.place_of(own)
        ahead = others[place - 1] if place else None
        behind = others[place + 1] if place + 1 < len(others) else None
        medians = priorities.medians(own.partition)
        names = dict.fromkeys(name for other in (own, ahead, behind) if other for name in other.factors)
        total = PriorityRow(
            factor="priority",
            own=own.total,
            median=medians["priority"],
            ahead=ahead.total if ahead else None,
            behind=behind.total if behind else None,
        )
        rows = (_make_row(name, medians[name], own, ahead, behind) for name in names)
        yield PriorityTable(partition=own.partition, jobs=len(others), rows=(total, *rows))


def _make_row(
    name: str, median: float, own: JobPriority, ahead: JobPriority | None, behind: JobPriority | None
) -> PriorityRow:
    return PriorityRow(
        factor=name,
        own=own.factors.get(name, 0.0),
        median=median,
        ahead=ahead.factors.get(name, 0.0) if ahead else None,
        behind=behind.factors.get(name, 0.0) if behind else None,
    )
