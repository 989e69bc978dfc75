# SPDX-License-Identifier: Apache-2.0
"""Show one pending job, or the pending tasks of an array."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from slurmscope.model.job_states import WAITING_STATES
from slurmscope.model.report import JobReport
from slurmscope.model.waiting import WaitingJob
from slurmscope.portal.pages.context import Context, RequestContext, not_found
from slurmscope.portal.views.queue_facts import QueueFacts
from slurmscope.portal.views.waiting import WaitingView, make_waiting_job, make_waiting_view, needed_facts
from slurmscope.reports.formatting import format_time

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/waiting")
def send_waiting(context: Context, shown_id: str) -> Response:
    """Send the part of the page that changes while the job is pending; reload the page once it has started."""
    job = context.find_waiting(shown_id)
    if job is None:
        return _reload_started(context, shown_id)
    view = replace(explain_waiting(context, job), shown_id=shown_id)
    context.audit(f"job {context.name_job(shown_id, view.cluster)}", owner=job.user)
    return HTMLResponse(context.render_part("waiting_body.html", view=view, now=context.backend.clock()))


def show_waiting(context: RequestContext, shown_id: str, job: WaitingJob, *, cluster: str = "") -> Response:
    """Show a pending job under the ID that was requested: a task of an array, or the whole array.

    ``cluster`` is that of the job, empty for jobs of the queue.
    """
    view = replace(explain_waiting(context, job, cluster=cluster), shown_id=shown_id)
    context.audit(f"job {context.name_job(shown_id, view.cluster)}", owner=job.user)
    return context.page("waiting.html", view=view, now=context.backend.clock())


def find_pending(report: JobReport | None) -> WaitingJob | None:
    """Return the pending job of a report, for the seconds until the queue is read again; None if it has started."""
    is_pending = report is not None and report.record.state in WAITING_STATES and not report.record.has_ended
    return make_waiting_job(report.record) if report and is_pending else None


def explain_waiting(context: RequestContext, job: WaitingJob, *, cluster: str = "") -> WaitingView:
    """Explain a pending job with what is known now; queue and nodes are known of this portal's own cluster only."""
    queue = context.backend.queue.waiting()
    own = queue.cluster if queue else ""
    is_own = cluster in {"", own} or not own
    view = make_waiting_view(
        job,
        queue if queue and any(job is known for known in queue.of_user(job.user)) else None,
        context.backend.queue.facts(needed_facts(job)) if is_own else QueueFacts(),
        context.backend.queue.waiting_times(cluster or own, job.partitions[0] if job.partitions else ""),
        now_seconds=context.backend.clock(),
        show_time=format_time,
    )
    return replace(view, cluster=cluster or own)


def _reload_started(context: RequestContext, shown_id: str) -> Response:
    if context.read_report(shown_id) is None:
        raise not_found()
    return Response(status_code=204, headers={"HX-Refresh": "true"})
