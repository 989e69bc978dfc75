# SPDX-License-Identifier: Apache-2.0
"""Find where a pending job stands in its partitions, and smaller requests with which it would start sooner.

Only counts and numbers of other jobs leave this module: names of their users and jobs do not.

They come from what is free on the nodes of its partitions now, from the gap before the next planned start (a job that
ends before it is backfilled), and from how long jobs of other shapes waited in the last weeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from slurmscope.cluster.sinfo import Node, can_run_jobs
from slurmscope.jobs.pending.queue import JobPriorities, PendingJob, PendingQueue
from slurmscope.jobs.pending.reasons import NODES_DOWN
from slurmscope.jobs.report import ExpectedWait, RequestedSize
from slurmscope.jobs.wait_times import LIMIT_BOUNDS_SECONDS, WaitingTime, find_cores_class, find_limit_class


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


def compare_priorities(priorities: JobPriorities, job: PendingJob) -> Iterator[PriorityTable]:
    """Yield the factors of a job in each partition, beside the median and the jobs next to it."""
    for own in priorities.of(job):
        others, place = priorities.in_partition(own.partition), priorities.place_of(own)
        near = (own, others[place - 1] if place else None, others[place + 1] if place + 1 < len(others) else None)
        mine, ahead, behind = ({"priority": each.total, **each.factors} if each else None for each in near)
        names = dict.fromkeys(name for factors in (mine, ahead, behind) if factors for name in factors)
        rows = (
            PriorityRow(
                factor=name,
                own=hide_infinite(mine.get(name, 0.0)) if mine else 0.0,
                median=hide_infinite(priorities.medians(own.partition)[name]),
                ahead=hide_infinite(ahead.get(name, 0.0)) if ahead else None,
                behind=hide_infinite(behind.get(name, 0.0)) if behind else None,
            )
            for name in names
        )
        yield PriorityTable(partition=own.partition, jobs=len(others), rows=tuple(rows))


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
BETTER_RATIO = 0.5
"""A shape is worth a change if its jobs waited at most this share."""
MIN_DIFFERENCE_RATIO = 1.5
MIN_DIFFERENCE_SECONDS = 60.0
MIN_GAP_SECONDS = 300
MIN_WAIT_SECONDS = 300.0
GIB = 1 << 30

WaitsByShape = Mapping[tuple[int, int], WaitingTime]


class FreeNode(NamedTuple):
    cores: int
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRequest:
    """One change that would let a job start sooner; None is unchanged, amounts are for the whole job.

    ``fits_now`` is whether that much is free at this moment; ``waited`` is how long jobs of the new shape waited.
    """

    cores: int | None = None
    nodes: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    time_limit_seconds: int | None = None
    fits_now: bool = False
    waited: WaitingTime | None = None


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


def suggest_smaller(
    job: PendingJob, free: tuple[FreeNode, ...], queue: PendingQueue, waits: WaitsByShape, now_seconds: float
) -> tuple[SmallerRequest, ...]:
    """Return changes that would let a job start sooner, those that fit now first; only if it waits for resources."""
    if job.word not in RESOURCE_REASONS and not job.word.startswith(NODES_DOWN):
        return ()
    shapes = tuple(_suggest_by_waits(job, waits))
    if summarize_free(job, free).is_enough:
        return (*_suggest_gap(job, queue, waits, now_seconds), *shapes)
    return (*(_with_waits(job, change, waits) for change in _suggest_fitting(job, free)), *shapes)


def _free_gpus(node: Node) -> int:
    return sum(gres.total - gres.used for gres in node.gres or () if gres.name == "gpu")


def _need(job: PendingJob) -> FreeNode:
    nodes = max(1, job.nodes)
    return FreeNode(-(-job.cpus // nodes), (job.memory_bytes or 0) // nodes, -(-job.gpus // nodes))


def _fits(node: FreeNode, need: FreeNode) -> bool:
    return node.cores >= need.cores and node.memory_bytes >= need.memory_bytes and node.gpus >= need.gpus


def _suggest_fitting(job: PendingJob, free: tuple[FreeNode, ...]) -> Iterator[SmallerRequest]:
    """Yield changes of one amount, each of which fits now; if none does, a change of several."""
    need, nodes = _need(job), max(1, job.nodes)
    fitting = sum(_fits(node, need) for node in free)
    found = [_scale(need, fitting)] if fitting and nodes > 1 else []
    if 0 < (cores := _most(free, need, "cores", nodes)) < need.cores:
        found.append(SmallerRequest(cores=cores * nodes, fits_now=True))
    if 0 < (memory_bytes := _most(free, need, "memory_bytes", nodes)) < need.memory_bytes:
        found.append(SmallerRequest(memory_bytes=memory_bytes * nodes, fits_now=True))
    if 0 < (gpus := _most(free, need, "gpus", nodes)) < need.gpus:
        found.append(SmallerRequest(gpus=gpus * nodes, fits_now=True))
    part = None if found else _largest_part(free, need)
    yield from [_scale(part, 1)] if part else found


def _scale(need: FreeNode, nodes: int) -> SmallerRequest:
    return SmallerRequest(
        nodes=nodes,
        cores=need.cores * nodes,
        memory_bytes=need.memory_bytes * nodes or None,
        gpus=need.gpus * nodes or None,
        fits_now=True,
    )


def _most(free: tuple[FreeNode, ...], need: FreeNode, name: str, nodes: int) -> int:
    """Return how much of one amount is free on enough nodes that have room for all others."""
    others = need._replace(**{name: 0})
    amounts = sorted((getattr(node, name) for node in free if _fits(node, others)), reverse=True)
    most = amounts[nodes - 1] if len(amounts) >= nodes else 0
    return most // GIB * GIB if name == "memory_bytes" else most


def _largest_part(free: tuple[FreeNode, ...], need: FreeNode) -> FreeNode | None:
    """Return the largest part of one node's request, all amounts in proportion, that fits one node."""
    shares = [
        min(
            1.0,
            node.cores / need.cores if need.cores else 1.0,
            node.memory_bytes / need.memory_bytes if need.memory_bytes else 1.0,
            node.gpus / need.gpus if need.gpus else 1.0,
        )
        for node in free
    ]
    share = max(shares, default=0.0)
    part = FreeNode(int(need.cores * share), int(need.memory_bytes * share) // GIB * GIB, int(need.gpus * share))
    is_complete = part.cores and (part.memory_bytes or not need.memory_bytes) and (part.gpus or not need.gpus)
    return part if is_complete else None


def _suggest_gap(
    job: PendingJob, queue: PendingQueue, waits: WaitsByShape, now_seconds: float
) -> Iterator[SmallerRequest]:
    """Yield a time limit that ends before the next planned start: what the job needs is free until then."""
    planned = [
        other.start_seconds
        for partition in job.partitions
        for other in queue.planned_in(partition)
        if other.start_seconds is not None and other.start_seconds > now_seconds and other.job_id != job.job_id
    ]
    gap = int(min(planned, default=now_seconds) - now_seconds) // 60 * 60
    if gap >= MIN_GAP_SECONDS and (job.time_limit_seconds is None or gap < job.time_limit_seconds):
        yield _with_waits(job, SmallerRequest(time_limit_seconds=gap, fits_now=True), waits)


def _suggest_by_waits(job: PendingJob, waits: WaitsByShape) -> Iterator[SmallerRequest]:
    """Yield a shorter time limit and fewer cores whose jobs waited much less, if there are any."""
    cores_class, limit_class = find_cores_class(job.cpus), find_limit_class(job.time_limit_seconds)
    current = waits.get((cores_class, limit_class))
    if current is None or current.jobs < MIN_JOBS or current.median_seconds < MIN_WAIT_SECONDS:
        return
    for shorter in range(limit_class - 1, -1, -1):
        found = waits.get((cores_class, shorter))
        if _is_better(found, current):
            yield SmallerRequest(time_limit_seconds=LIMIT_BOUNDS_SECONDS[shorter], waited=found)
            return


def _is_better(found: WaitingTime | None, current: WaitingTime) -> bool:
    return (
        found is not None and found.jobs >= MIN_JOBS and found.median_seconds <= BETTER_RATIO * current.median_seconds
    )


def _with_waits(job: PendingJob, change: SmallerRequest, waits: WaitsByShape) -> SmallerRequest:
    limit = job.time_limit_seconds if change.time_limit_seconds is None else change.time_limit_seconds
    return replace(change, waited=waits.get((find_cores_class(change.cores or job.cpus), find_limit_class(limit))))


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
