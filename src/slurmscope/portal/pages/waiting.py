# SPDX-License-Identifier: Apache-2.0
"""Show one pending job, or the pending tasks of an array."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from slurmscope.model.job_states import WAITING_STATES
from slurmscope.model.report import JobReport
from slurmscope.portal.pages.context import Context, PendingJob, RequestContext, not_found
from slurmscope.portal.views.queue_facts import QueueFacts
from slurmscope.portal.views.waiting import (
    WaitingView,
    make_waiting_job,
    make_waiting_view,
    name_cluster,
    needed_facts,
)
from slurmscope.reports.formatting import format_time

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/waiting")
def send_waiting(context: Context, shown_id: str) -> Response:
    """Send the part of the page that changes while the job is pending; reload the page once it has started."""
    pending = context.find_waiting(shown_id)
    if pending is None:
        return _reload_started(context, shown_id)
    view = replace(explain_waiting(context, pending), shown_id=shown_id)
    context.audit(f"job {context.name_job(shown_id, view.cluster)}", owner=view.user)
    return HTMLResponse(context.render_part("waiting_body.html", view=view, now=context.backend.clock()))


def show_waiting(context: RequestContext, shown_id: str, pending: PendingJob) -> Response:
    """Show a pending job under the ID that was requested: a task of an array, or the whole array."""
    view = replace(explain_waiting(context, pending), shown_id=shown_id)
    context.audit(f"job {context.name_job(shown_id, view.cluster)}", owner=view.user)
    return context.page("waiting.html", view=view, now=context.backend.clock())


def find_pending(report: JobReport | None) -> PendingJob | None:
    """Return the pending job of a report, for the seconds until the queue is read again; None if it has started."""
    if report is None or report.record.state not in WAITING_STATES or report.record.has_ended:
        return None
    return PendingJob(make_waiting_job(report.record), report.record.cluster)


def explain_waiting(context: RequestContext, pending: PendingJob) -> WaitingView:
    """Explain a pending job with what is known now of its own cluster."""
    job, cluster = pending.job, pending.cluster or context.own_cluster
    services, live = context.backend.queue, context.find_live(cluster)
    view = make_waiting_view(
        job,
        pending.queue,
        QueueFacts() if live is None else services.facts(live, needed_facts(job)),
        services.waiting_times(cluster, job.partitions[0] if job.partitions else ""),
        now_seconds=context.backend.clock(),
        show_time=format_time,
    )
    named = context.link_cluster(cluster)
    return replace(name_cluster(view, named) if named else view, cluster=cluster)


def _reload_started(context: RequestContext, shown_id: str) -> Response:
    if context.read_report(shown_id) is None:
        raise not_found()
    return Response(status_code=204, headers={"HX-Refresh": "true"})
