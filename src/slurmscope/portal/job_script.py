# SPDX-License-Identifier: Apache-2.0
"""Show the script of a job to its owner: as Slurm stored it, and what to check in it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.core.errors import SourceError
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.script import JobScript, show_lines
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.settings import OFF, STAFF

router = APIRouter(include_in_schema=False)

_NOT_READ = "The job script could not be read from Slurm's accounting. Try again in a moment."


@router.get("/jobs/{shown_id}/script")
def show_script(context: Context, shown_id: str) -> Response:
    """Show the script and the environment of a job."""
    report, script = find_script(context, shown_id)
    lines = show_lines(script.text) if script else ()
    return context.page("job_script.html", record=report.record, script=script, lines=lines)


def may_see_script(context: RequestContext, report: JobReport) -> bool:
    """Return whether the viewer may see the script of a job: its owner, and staff if the settings allow it."""
    rule, viewer = context.services.settings.scripts, context.viewer
    return rule != OFF and (report.record.user == viewer.name or (viewer.is_staff and rule == STAFF))


def find_script(context: RequestContext, shown_id: str) -> tuple[JobReport, JobScript | None]:
    """Return the job and its script, None if Slurm did not store it; respond 404 if the viewer may not see it."""
    report = context.read_report(shown_id)
    if report is None or not may_see_script(context, report):
        raise not_found()
    context.audit(f"script of job {context.name_job(shown_id, report.record.cluster)}", owner=report.record.user)
    try:
        return report, context.services.scripts.read(report.record)
    except SourceError as error:
        raise HTTPException(503, _NOT_READ, {"Retry-After": "10"}) from error
