# SPDX-License-Identifier: Apache-2.0
"""Explain a pending job: the reason in words, what is missing, its position, and one smaller request.

Pages, the API, mails and the terminal show the same explanation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurmscope.core.units import MIB, format_bytes, format_seconds, format_some
from slurmscope.jobs.pending.blockers import Blocker, QueueFacts, explain, find_blockers
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.pending.smaller_request import (
    FreeResources,
    PastRun,
    PriorityTable,
    QueuePosition,
    SmallerRequest,
    WaitsByShape,
    compare_priorities,
    find_free,
    find_positions,
    hide_infinite,
    suggest_smaller,
    summarize_free,
)
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.suggestions import format_time_limit
from slurmscope.jobs.wait_times import WaitingTime, find_cores_class, find_limit_class

_COMMAND = re.compile(r"\b(?:scontrol|scancel)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A smaller request, and the command that changes the pending job to it."""

    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """Explain a pending job; times are Unix times, None is unknown.

    ``start_seconds`` is the start that Slurm expects, ``estimated_seconds`` when its scheduler last considered the job.
    """

    shown_id: str
    name: str
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    meaning: str
    action: str
    submit_seconds: int
    eligible_seconds: int | None
    start_seconds: int | None
    estimated_seconds: int | None
    backfill_seconds: int | None
    planned_nodes: str
    taken_seconds: float | None
    array_job_id: int | None
    tasks: int
    nodes: int
    cores: int
    memory_bytes: int | None
    gpus: int
    time_limit_seconds: int | None
    priority: int | None
    features: str
    licenses: str
    positions: tuple[QueuePosition, ...]
    priorities: tuple[PriorityTable, ...]
    blockers: tuple[Blocker, ...]
    free: FreeResources | None
    waited: WaitingTime | None
    suggestions: tuple[Suggestion, ...]
    cluster: str = ""


_OF_JOB = (
    *("shown_id", "name", "user", "account", "partitions", "qos", "state", "reason", "submit_seconds"),
    *("eligible_seconds", "start_seconds", "planned_nodes", "array_job_id", "nodes", "memory_bytes", "gpus"),
    *("time_limit_seconds", "features", "licenses"),
)
"""What a view and its job have in common."""


def make_waiting_view(
    job: PendingJob,
    queue: PendingQueue | None,
    facts: QueueFacts,
    waits: WaitsByShape,
    *,
    past: Sequence[PastRun] = (),
) -> WaitingView:
    """Explain a job; ``queue`` is None if the job is known from accounting only.

    ``past`` are completed runs of the same name.
    """
    blockers = find_blockers(job, facts)
    meaning, action = explain(job, blockers)
    others = queue or PendingQueue()
    free = find_free(facts.nodes.nodes, job.partitions) if facts.nodes else None
    smaller = suggest_smaller(job, past, free, waits) if queue else None
    return WaitingView(
        **{name: getattr(job, name) for name in _OF_JOB},
        meaning=meaning,
        action=action.replace("JOBID", str(_find_target(job))),
        estimated_seconds=job.evaluated_seconds,
        backfill_seconds=facts.diag.backfill.timestamp("Last cycle when") if facts.diag else None,
        taken_seconds=queue.taken_at_seconds if queue else None,
        tasks=job.task_count,
        cores=job.cpus,
        positions=tuple(find_positions(others, job)),
        priorities=tuple(compare_priorities(facts.priorities, others, job)) if facts.priorities else (),
        blockers=blockers,
        priority=hide_infinite(job.priority),
        free=None if free is None else summarize_free(job, free),
        waited=waits.get((find_cores_class(job.cpus), find_limit_class(job.time_limit_seconds))),
        suggestions=() if smaller is None else (_describe(job, smaller),),
    )


def name_cluster(view: WaitingView, cluster: str) -> WaitingView:
    """Add -M to the commands of a view: another cluster may have jobs and partitions of the same names."""

    def name(text: str) -> str:
        return _COMMAND.sub(rf"\g<0> -M {cluster}", text)

    suggestions = tuple(replace(each, command=name(each.command)) for each in view.suggestions)
    return replace(view, action=name(view.action), suggestions=suggestions)


_OF_RECORD = (
    *("job_id", "name", "user", "account", "qos", "state", "reason", "submit_seconds", "eligible_seconds"),
    *("time_limit_seconds", "memory_bytes", "gpus", "array_job_id", "het_job_id", "het_offset"),
)


def make_pending_job(record: JobRecord) -> PendingJob:
    """Make a pending job from its accounting record, for the seconds until the queue is read again."""
    return PendingJob(
        **{name: getattr(record, name) for name in _OF_RECORD},
        partitions=tuple(record.partition.split(",")) if record.partition else (),
        nodes=record.node_count,
        cpus=record.cpus or 0,
        tasks=() if record.array_task_id is None else (range(record.array_task_id, record.array_task_id + 1),),
        tasks_text="" if record.array_task_id is None else str(record.array_task_id),
    )


def _describe(job: PendingJob, change: SmallerRequest) -> Suggestion:
    limit, memory = change.time_limit_seconds, change.node_memory_bytes
    enough = " and ".join(
        part
        for part in (
            f"a time limit of {format_seconds(limit)}" if limit else "",
            f"{format_bytes(memory)} of memory{' on each node' if job.nodes > 1 else ''}" if memory else "",
        )
        if part
    )
    text = f"{_describe_past(change)}: {enough} is enough."
    if change.fits_now:
        text += " That much is free now."
    if change.waited:
        waited, jobs = format_seconds(change.waited.median_seconds), format_some(change.waited.jobs, "job")
        text += f" Jobs of this shape waited {waited} (median of {jobs} in four weeks)."
    return Suggestion(text=text, command=_make_command(job, change))


def _describe_past(change: SmallerRequest) -> str:
    runs = "The last completed run" if change.runs == 1 else f"The last {change.runs} completed runs"
    parts = [f"took at most {format_seconds(change.longest_seconds)}" if change.time_limit_seconds else ""]
    if change.node_memory_bytes and change.highest_memory_bytes is not None:
        parts.append(f"used at most {format_bytes(change.highest_memory_bytes)} of memory on a node")
    return f"{runs} of this name {' and '.join(filter(None, parts))}"


def _make_command(job: PendingJob, change: SmallerRequest) -> str:
    """Return the command that users may run for a pending job."""
    limit, memory = change.time_limit_seconds, change.node_memory_bytes
    options = [f"TimeLimit={format_time_limit(limit)}"] if limit else []
    options += [f"MinMemoryNode={memory // MIB}"] if memory else []
    return f"scontrol update JobId={_find_target(job)} {' '.join(options)}"


def _find_target(job: PendingJob) -> int:
    """Return the ID that commands name to change a job with all its parts."""
    return job.array_job_id or job.het_job_id or job.job_id
