# SPDX-License-Identifier: Apache-2.0
"""Bring together who asks, what is asked, and who can answer: every page starts from a visit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from slurmscope.model.archive import Archive, JobFilter
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.pages.audit_trail import audit_view
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queries import SHOWN_ID, render_query
from slurmscope.portal.web.rendering_cache import KeptRenderings
from slurmscope.portal.web.templating import PageMaker
from slurmscope.units import DAY_SECONDS

ABSENT = "There is nothing here: it does not exist, or it is not yours to see."


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Be one request of one person."""

    request: Request
    desk: PortalBackend
    viewer: Viewer
    pages: PageMaker
    renderings: KeptRenderings

    @property
    def archive(self) -> Archive:
        """Return the jobs of the past."""
        return self.desk.archive

    @property
    def public_url(self) -> str:
        """Return where people find the portal; without host where the site has not told."""
        return str(self.request.app.state.public_url)

    @property
    def query(self) -> dict[str, str]:
        """Return what stands behind the question mark, the last one of each name."""
        return dict(self.request.query_params)

    def find_report(self, shown_id: str) -> JobReport:
        """Return a job's report, written down where staff look; a foreign job is as absent as one that never was."""
        return self.check_report(shown_id, self.read_report(shown_id))

    def read_report(self, shown_id: str) -> JobReport | None:
        """Return a job's report as long as nobody sees it; a text that is no number names no job."""
        return self.desk.report(self.viewer, shown_id) if SHOWN_ID.match(shown_id) else None

    def check_report(self, shown_id: str, report: JobReport | None) -> JobReport:
        """Return a report that is there and now written down as seen by staff."""
        if report is None:
            raise absent()
        self.audit(f"job {shown_id}", owner=report.record.user)
        return report

    def audit(self, subject: str, *, owner: str = "") -> None:
        """Write down what staff look at."""
        route = self.request.scope.get("route")
        audit_view(self.desk, self.viewer, getattr(route, "path", ""), subject, owner=owner)

    def has_jobs(self, wanted: JobFilter) -> bool:
        """Tell whether the viewer may see any such job."""
        return bool(self.archive.list_jobs(self.viewer, wanted, limit=1).rows)

    def now(self) -> ClusterNow:
        """Return the state of the cluster; why nodes are away is for staff, who may have written anything there."""
        now = self.desk.now()
        return now if self.viewer.is_staff else replace(now, troubles=())

    def since(self, days: int) -> int:
        """Return the midnight from which so many days are shown, the current one included."""
        today = int(self.desk.clock()) // DAY_SECONDS * DAY_SECONDS
        return max(0, today - (days - 1) * DAY_SECONDS)

    def make_rule_link(self, wanted: JobFilter) -> Callable[[str], str]:
        """Return how to link from a rule to those of these jobs in which it found something."""
        return lambda rule: f"{self.desk.settings.base_path}/jobs{render_query(replace(wanted, rule=rule))}"

    def page(self, template: str, **context: object) -> HTMLResponse:
        """Make a page for this visit."""
        shown = {"problems": self.desk.problems(), **context}
        return HTMLResponse(self.pages.render(template, self.viewer, shown))

    def part(self, template: str, **context: object) -> str:
        """Make a part of a page that is the same for everybody who may see it."""
        return self.pages.render(template, None, context)


def open_visit(request: Request) -> Visit:
    """Find out who asks, or turn them away."""
    state = request.app.state
    desk: PortalBackend = state.desk
    viewer = desk.identifier.identify(request.scope)
    # Should something fail from here on, the error page knows that somebody was let in.
    request.state.viewer = viewer
    return Visit(request=request, desk=desk, viewer=viewer, pages=state.pages, renderings=state.renderings)


def is_let_in(request: Request) -> bool:
    """Tell whether a visit was opened: without one, nobody knows who reads the answer."""
    return getattr(request.state, "viewer", None) is not None


def absent() -> HTTPException:
    """Return the one answer for what does not exist and for what is not the viewer's to see."""
    return HTTPException(404, ABSENT)


Visiting = Annotated[Visit, Depends(open_visit)]
