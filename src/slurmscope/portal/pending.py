# SPDX-License-Identifier: Apache-2.0
"""Show one pending job, or the pending tasks of an array."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from slurmscope.archive.interface import JobFilter
from slurmscope.core.errors import ArchiveError
from slurmscope.core.units import format_bytes, format_seconds, format_some
from slurmscope.jobs.pending.facts import QueueFacts
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.pending.smaller_request import (
    RESOURCE_REASONS,
    FreeResources,
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
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.suggestions import is_worthwhile, suggest_time_seconds
from slurmscope.jobs.wait_times import WaitingTime, find_cores_class, find_limit_class
from slurmscope.portal.blockers import Blocker, explain, find_blockers, needed_facts
from slurmscope.portal.context import Context, FoundPending, RequestContext, not_found

PAST_RUNS = 20
_COMMAND = re.compile(r"\b(?:scontrol|scancel)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A smaller request; ``command`` changes the pending job, or is empty if it has to be submitted again."""

    text: str
    command: str = ""


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
    now_seconds: float,
    past_seconds: Sequence[float] = (),
) -> WaitingView:
    """Explain a job; ``queue`` is None if the job is known from accounting only.

    ``past_seconds`` is how long completed runs of the same name took.
    """
    blockers = find_blockers(job, facts)
    meaning, action = explain(job, blockers)
    others = queue or PendingQueue()
    free = find_free(facts.nodes.nodes, job.partitions) if facts.nodes else None
    smaller = suggest_smaller(job, free, others, waits, now_seconds) if free is not None and queue else ()
    realistic = [change for change in smaller if _is_realistic(job, change, past_seconds)]
    suggestions = [_describe(job, change) for change in realistic]
    if queue and not any(change.time_limit_seconds for change in realistic):
        suggestions += _suggest_past(job, past_seconds)
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
        priorities=tuple(compare_priorities(facts.priorities, job)) if facts.priorities else (),
        blockers=blockers,
        priority=hide_infinite(job.priority),
        free=None if free is None else summarize_free(job, free),
        waited=waits.get((find_cores_class(job.cpus), find_limit_class(job.time_limit_seconds))),
        suggestions=tuple(suggestions),
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


def _is_realistic(job: PendingJob, change: SmallerRequest, past_seconds: Sequence[float]) -> bool:
    """Return whether a shorter time limit may be enough: for past runs, or at least half of what was requested."""
    if change.time_limit_seconds is None:
        return True
    if past_seconds:
        return change.time_limit_seconds >= suggest_time_seconds(max(past_seconds))
    return job.time_limit_seconds is not None and change.time_limit_seconds >= job.time_limit_seconds / 2


def _suggest_past(job: PendingJob, past_seconds: Sequence[float]) -> Iterator[Suggestion]:
    """Yield the time limit that past runs needed, for a job that waits for its turn and requests much more."""
    if not past_seconds or job.word not in RESOURCE_REASONS or job.time_limit_seconds is None:
        return
    enough = suggest_time_seconds(max(past_seconds))
    if is_worthwhile(job.time_limit_seconds, enough):
        runs, longest = format_some(len(past_seconds), "completed run"), format_seconds(max(past_seconds))
        text = (
            f"The last {runs} of this name took at most {longest}: a time limit of {format_seconds(enough)} is enough."
        )
        yield Suggestion(text=text, command=_make_command(job, SmallerRequest(time_limit_seconds=enough)))


def _describe(job: PendingJob, change: SmallerRequest) -> Suggestion:
    parts = [
        format_some(change.nodes, "node") if change.nodes else "",
        format_some(change.cores, "core") if change.cores else "",
        f"{format_bytes(change.memory_bytes)} of memory" if change.memory_bytes else "",
        format_some(change.gpus, "GPU") if change.gpus else "",
        f"a time limit of {format_seconds(change.time_limit_seconds)}" if change.time_limit_seconds else "",
    ]
    shape = " and ".join(part for part in parts if part)
    text = f"{'Free now' if change.fits_now else 'Shorter wait'}: {shape}."
    if change.time_limit_seconds and change.fits_now:
        text += " What the job requests is free until the next planned start, so it could be backfilled."
    if change.waited:
        waited, jobs = format_seconds(change.waited.median_seconds), format_some(change.waited.jobs, "job")
        text += f" Jobs of this shape waited {waited} (median of {jobs} in four weeks)."
    return Suggestion(text=text, command=_make_command(job, change))


def _make_command(job: PendingJob, change: SmallerRequest) -> str:
    """Return a command that users may run for a pending job; only its time limit can be changed by one option."""
    if change.time_limit_seconds is None or change.cores or change.nodes or change.memory_bytes or change.gpus:
        return ""
    days, rest = divmod(change.time_limit_seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:00"
    return f"scontrol update JobId={_find_target(job)} TimeLimit={f'{days}-' if days else ''}{clock}"


def _find_target(job: PendingJob) -> int:
    """Return the ID that commands name to change a job with all its parts."""
    return job.array_job_id or job.het_job_id or job.job_id


router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/waiting")
def send_waiting(context: Context, shown_id: str) -> Response:
    """Send the part of the page that changes while the job is pending; reload the page once it has started."""
    pending = context.find_pending(shown_id)
    if pending is None:
        return _reload_started(context, shown_id)
    view = explain_as(context, shown_id, pending)
    return HTMLResponse(context.render_part("waiting_body.html", view=view, now=context.services.clock()))


def show_pending(context: RequestContext, shown_id: str, pending: FoundPending) -> Response:
    """Show a pending job under the ID that was requested: a task of an array, or the whole array."""
    view = explain_as(context, shown_id, pending)
    return context.page("waiting.html", view=view, now=context.services.clock())


def explain_as(context: RequestContext, shown_id: str, pending: FoundPending) -> WaitingView:
    """Explain a pending job under the ID that was requested, and audit the access."""
    view = replace(explain_pending(context, pending), shown_id=shown_id)
    context.audit(f"job {context.name_job(shown_id, view.cluster)}", owner=view.user)
    return view


def pending_of_report(report: JobReport | None) -> FoundPending | None:
    """Return the pending job of a report, for the seconds until the queue is read again; None if it has started."""
    if report is None or not report.record.is_pending:
        return None
    return FoundPending(make_pending_job(report.record), report.record.cluster)


def explain_pending(context: RequestContext, pending: FoundPending) -> WaitingView:
    """Explain a pending job with what is known now of its own cluster."""
    job, cluster = pending.job, pending.cluster or context.own_cluster
    services, live = context.services, context.find_live(cluster)
    view = make_waiting_view(
        job,
        pending.queue,
        QueueFacts() if live is None else services.live.facts(live, needed_facts(job)),
        services.wait_times.find(cluster, job.partitions[0] if job.partitions else ""),
        now_seconds=context.services.clock(),
        past_seconds=_read_past(context, job, cluster),
    )
    named = context.link_cluster(cluster)
    return replace(name_cluster(view, named) if named else view, cluster=cluster)


def _read_past(context: RequestContext, job: PendingJob, cluster: str) -> list[float]:
    """Return how long the last completed runs of the same name took."""
    wanted = JobFilter(cluster=cluster, user=job.user, name=job.name[:200], state="COMPLETED")
    with suppress(ArchiveError):  # the page is useful without them
        rows = context.archive.list_jobs(context.viewer, wanted, limit=PAST_RUNS).rows
        return [row.run_seconds for row in rows if row.name == job.name]
    return []


def _reload_started(context: RequestContext, shown_id: str) -> Response:
    if context.read_report(shown_id) is None:
        raise not_found()
    return Response(status_code=204, headers={"HX-Refresh": "true"})
