# SPDX-License-Identifier: Apache-2.0
"""Show one pending job, or the pending tasks of an array."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.pending.blockers import QueueFacts, needed_facts
from slurmscope.jobs.pending.explanation import WaitingView, make_pending_job, make_waiting_view, name_cluster
from slurmscope.jobs.pending.queue import PendingJob
from slurmscope.jobs.pending.smaller_request import PastRun, waits_for_resources
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import is_memory_measured, needed_node_bytes
from slurmscope.portal.context import Context, FoundPending, RequestContext, not_found

PAST_RUNS = 20

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
        past=_read_past(context, job, cluster),
    )
    named = context.link_cluster(cluster)
    return replace(name_cluster(view, named) if named else view, cluster=cluster)


def _read_past(context: RequestContext, job: PendingJob, cluster: str) -> list[PastRun]:
    """Return the last runs of the same name and size, on no more cores than the job requests."""
    if not waits_for_resources(job):
        return []
    wanted = JobFilter(cluster=cluster, user=job.user, name=job.name[:200], is_running=False)
    size = (job.name, job.nodes, job.gpus)
    with suppress(ArchiveError):  # the page is useful without them
        rows = context.archive.list_jobs(context.viewer, wanted, limit=PAST_RUNS).rows
        same = [row for row in rows if (row.name, row.nodes, row.gpus) == size and (row.cpus or 0) <= job.cpus]
        return [PastRun(row.run_seconds, _read_memory(context, row), row.state) for row in same]
    return []


def _read_memory(context: RequestContext, row: JobRow) -> float | None:
    """Return the most memory on a node; None unless the kernel's own peak of every node is known.

    Rows of lists have a sum over nodes, and perhaps a peak that only samples have seen.
    """
    runs = context.archive.find(context.viewer, row.job_id, cluster=row.cluster) if row.state == "COMPLETED" else ()
    found = next((run.summary for run in runs if run.record.submit_seconds == row.submit_seconds), None)
    return needed_node_bytes(found) if found and is_memory_measured(found.memory) else None


def _reload_started(context: RequestContext, shown_id: str) -> Response:
    if context.read_report(shown_id) is None:
        raise not_found()
    return Response(status_code=204, headers={"HX-Refresh": "true"})
