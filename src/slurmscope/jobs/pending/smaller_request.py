# SPDX-License-Identifier: Apache-2.0
"""Find where a pending job stands in its partitions, and a smaller request with which it would start sooner.

Only counts and numbers of other jobs leave this module: names of their users and jobs do not.

The smaller request is one that past runs of the same name would have been content with. What is free now, and how long
jobs of its shape waited in the last weeks, is said of it; neither makes a request of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from slurmscope.cluster.sinfo import Node, can_run_jobs
from slurmscope.jobs.pending.queue import JobPriorities, JobPriority, PendingJob, PendingQueue
from slurmscope.jobs.pending.reasons import NODES_DOWN
from slurmscope.jobs.report import ExpectedWait, RequestedSize
from slurmscope.jobs.suggestions import is_worthwhile, suggest_memory_bytes, suggest_time_seconds
from slurmscope.jobs.wait_times import WaitingTime, find_cores_class, find_limit_class


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """The position of a job among those that may start in a partition; an array counts as its pending tasks."""

    partition: str
    position: int
    jobs: int
    cores_ahead: int
    gpus_ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRow:
    """One factor of a job's priority, with that of others in the partition.

    None without such a job, and for a priority that Slurm calls infinite.
    """

    factor: str
    own: float | None
    median: float | None
    ahead: float | None
    behind: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityTable:
    """The priority of a job in one partition and its factors; the first row is their sum."""

    partition: str
    jobs: int
    rows: tuple[PriorityRow, ...]


def find_positions(queue: PendingQueue, job: PendingJob) -> Iterator[QueuePosition]:
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


def compare_priorities(priorities: JobPriorities, queue: PendingQueue, job: PendingJob) -> Iterator[PriorityTable]:
    """Yield the factors of a job in each partition, beside the median and the jobs next to it.

    The jobs are those among which the job has its position: held and dependent ones are left out.
    """
    for own in priorities.of(job):
        ranked = [
            each for each in priorities.in_partition(own.partition) if queue.is_considered(each.job_id, each.partition)
        ]
        if own not in ranked:
            continue
        place = ranked.index(own)
        near = (own, ranked[place - 1] if place else None, ranked[place + 1] if place + 1 < len(ranked) else None)
        mine, ahead, behind = ({"priority": each.total, **each.factors} if each else None for each in near)
        names = dict.fromkeys(name for factors in (mine, ahead, behind) if factors for name in factors)
        rows = (
            PriorityRow(
                factor=name,
                own=hide_infinite(mine.get(name, 0.0)) if mine else 0.0,
                median=hide_infinite(_median(ranked, name)),
                ahead=hide_infinite(ahead.get(name, 0.0)) if ahead else None,
                behind=hide_infinite(behind.get(name, 0.0)) if behind else None,
            )
            for name in names
        )
        found = queue.ahead_of(job, own.partition)
        yield PriorityTable(partition=own.partition, jobs=found.total if found else len(ranked), rows=tuple(rows))


def _median(ranked: Sequence[JobPriority], name: str) -> float:
    return statistics.median(each.total if name == "priority" else each.factors.get(name, 0.0) for each in ranked)


_NO_VALUE = 0xFFFFFFFE
"""Slurm's NO_VAL; INFINITE is the next number."""
NumberT = TypeVar("NumberT", int, float)


def hide_infinite(number: NumberT | None) -> NumberT | None:
    """Return None for the numbers by which Slurm means "no value" and "infinite"."""
    return None if number is None or number >= _NO_VALUE else number


RESOURCE_REASONS = frozenset({"None", "Priority", "Resources"})
"""Reasons of jobs that wait for free resources, and for nothing else."""
MIN_JOBS = 20
"""Waiting times of fewer jobs are chance."""
MIN_DIFFERENCE_RATIO = 1.5
MIN_DIFFERENCE_SECONDS = 60.0

WaitsByShape = Mapping[tuple[int, int], WaitingTime]


class FreeNode(NamedTuple):
    cores: int
    memory_bytes: int
    gpus: int


class PastRun(NamedTuple):
    """What a run of the same name and size needed; ``node_memory_bytes`` is None where no bound on it is known."""

    run_seconds: float
    node_memory_bytes: float | None
    state: str = "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRequest:
    """What would have been enough for past runs of a job, and is much less than it requests; None is unchanged.

    ``fits_now`` is whether that much is free at this moment, and the present request is not; ``waited`` is how long
    jobs of the new shape waited.
    """

    runs: int
    longest_seconds: float
    highest_memory_bytes: float | None
    time_limit_seconds: int | None
    node_memory_bytes: int | None
    fits_now: bool
    waited: WaitingTime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeResources:
    """What is free in the partitions of a job, and how many of its nodes would fit now."""

    nodes: int
    cores: int
    memory_bytes: int
    gpus: int
    fitting_nodes: int
    is_enough: bool


def find_free(nodes: Iterable[Node], partitions: Iterable[str]) -> tuple[FreeNode, ...]:
    """Return what is free on the nodes of some partitions on which Slurm can start jobs."""
    wanted = set(partitions)
    return tuple(
        FreeNode(node.cpus_idle, node.memory_bytes - node.allocated_memory_bytes, _free_gpus(node))
        for node in nodes
        if wanted.intersection(node.partitions) and can_run_jobs(node.base_state, node.flags) and node.cpus_idle > 0
    )


def summarize_free(job: PendingJob, free: tuple[FreeNode, ...]) -> FreeResources:
    """Compare a request with what is free."""
    need = _need(job)
    fitting = sum(_fits(node, need) for node in free)
    return FreeResources(
        nodes=len(free),
        cores=sum(node.cores for node in free),
        memory_bytes=sum(node.memory_bytes for node in free),
        gpus=sum(node.gpus for node in free),
        fitting_nodes=fitting,
        is_enough=fitting >= job.nodes,
    )


def waits_for_resources(job: PendingJob) -> bool:
    """Return whether a smaller request may start sooner."""
    return job.word in RESOURCE_REASONS or job.word.startswith(NODES_DOWN)


def suggest_smaller(
    job: PendingJob, past: Sequence[PastRun], free: tuple[FreeNode, ...] | None, waits: WaitsByShape
) -> SmallerRequest | None:
    """Return the request that past runs of this name needed, for a job that waits for resources and requests more.

    Those that completed: one that was ended at its time limit or OOM-killed needed an unknown amount more.
    """
    completed = [run for run in past if run.state == "COMPLETED"]
    if not completed or not waits_for_resources(job):
        return None
    ends = {run.state for run in past}
    longest = max(run.run_seconds for run in completed)
    highest = None if "OUT_OF_MEMORY" in ends else _highest_memory(completed)
    requested = job.memory_bytes / max(1, job.nodes) if job.memory_bytes else None
    limit = None if "TIMEOUT" in ends else _reduce(job.time_limit_seconds, suggest_time_seconds(longest))
    memory = None if highest is None else _reduce(requested, suggest_memory_bytes(highest))
    if limit is None and memory is None:
        return None
    smaller = job._replace(memory_bytes=memory * max(1, job.nodes)) if memory else job
    is_free = free is not None and summarize_free(smaller, free).is_enough and not summarize_free(job, free).is_enough
    return SmallerRequest(
        runs=len(completed),
        longest_seconds=longest,
        highest_memory_bytes=highest,
        time_limit_seconds=limit,
        node_memory_bytes=memory,
        fits_now=is_free,
        waited=waits.get((find_cores_class(job.cpus), find_limit_class(limit or job.time_limit_seconds))),
    )


def _highest_memory(past: Sequence[PastRun]) -> float | None:
    """Return the most memory that a run had in use on a node; None unless it is known of each."""
    known = [run.node_memory_bytes for run in past if run.node_memory_bytes is not None]
    return max(known) if len(known) == len(past) else None


def _reduce(requested: float | None, enough: int) -> int | None:
    return enough if requested is not None and is_worthwhile(requested, enough) else None


def _free_gpus(node: Node) -> int:
    return sum(gres.total - gres.used for gres in node.gres or () if gres.name == "gpu")


def _need(job: PendingJob) -> FreeNode:
    nodes = max(1, job.nodes)
    return FreeNode(-(-job.cpus // nodes), (job.memory_bytes or 0) // nodes, -(-job.gpus // nodes))


def _fits(node: FreeNode, need: FreeNode) -> bool:
    return node.cores >= need.cores and node.memory_bytes >= need.memory_bytes and node.gpus >= need.gpus


def find_wait(waits: WaitsByShape, size: RequestedSize) -> WaitingTime | None:
    """Return how long jobs of this size waited; None with too few of them."""
    found = waits.get((find_cores_class(size.cpus), find_limit_class(size.limit_seconds)))
    return found if found and found.jobs >= MIN_JOBS else None


def is_difference(one_seconds: float, other_seconds: float) -> bool:
    """Return whether two median waiting times differ by more than their uncertainty: each is right within a fifth."""
    shorter, longer = sorted((one_seconds, other_seconds))
    return longer - shorter >= MIN_DIFFERENCE_SECONDS and longer >= MIN_DIFFERENCE_RATIO * shorter


def compare_waits(waits: WaitsByShape, submitted: RequestedSize, suggested: RequestedSize) -> ExpectedWait | None:
    """Return both waiting times; None where one is unknown, or they differ by less than their uncertainty."""
    before, after = find_wait(waits, submitted), find_wait(waits, suggested)
    if before is None or after is None or not is_difference(before.median_seconds, after.median_seconds):
        return None
    return ExpectedWait(
        submitted_seconds=before.median_seconds,
        suggested_seconds=after.median_seconds,
        jobs=min(before.jobs, after.jobs),
    )
