# SPDX-License-Identifier: Apache-2.0
"""Provide routes with the viewer, the services, and what all pages need."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from slurmscope.archive.interface import (
    NEWEST_FIRST,
    Archive,
    JobCount,
    JobFilter,
    JobPage,
    ListOrder,
    PagePosition,
)
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import AmbiguousName, ArchiveError, ServerBusy
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.record import JobRecord, is_one_job
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.paths import requested_cluster
from slurmscope.portal.pending_lists import count_pending, read_merged
from slurmscope.portal.queries import SHOWN_ID, render_query
from slurmscope.portal.web.slow_results import DocumentRenderer, RenderingCache, SharedResult, SharedResults, take_place
from slurmscope.portal.web.templates import ZONE_COOKIE, PageRenderer, choose_zone, load_zone
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.page_paths import name_job, shown_cluster
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.slurm.states import PENDING, REVOKED

if TYPE_CHECKING:
    from slurmscope.portal.services import Services

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?\Z")

T = TypeVar("T")


class FoundPending(NamedTuple):
    """A pending job with its cluster; ``queue`` is None if the job is known from accounting only."""

    job: PendingJob
    cluster: str
    queue: PendingQueue | None = None


NOT_FOUND = "This does not exist, or you do not have access to it."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    request: Request
    services: Services
    viewer: Viewer
    pages: PageRenderer
    rendering_cache: RenderingCache
    shared_results: SharedResults
    documents: DocumentRenderer

    @property
    def archive(self) -> Archive:
        return self.services.archive

    @property
    def base_path(self) -> str:
        return self.services.settings.base_path

    @property
    def public_url(self) -> str:
        """Return the public address of the portal: that of the settings, or the one that the request was sent to."""
        return str(self.request.app.state.public_url) or f"{_origin(self.request)}{self.base_path}"

    @property
    def query(self) -> dict[str, str]:
        """Return the query parameters; of repeated ones the last."""
        return dict(self.request.query_params)

    @property
    def cluster(self) -> str:
        """Return the cluster that the address names; empty for the short address, which may mean several."""
        return requested_cluster(self.request.scope)

    @property
    def own_cluster(self) -> str:
        """Return the cluster of the portal's host; empty while it is unknown."""
        return self.services.live.own()

    @property
    def zone_name(self) -> str:
        """Return the viewer's time zone where a cookie of the time zone switch names it, else that of the site."""
        return choose_zone(self.request.cookies.get(ZONE_COOKIE, ""), self.services.settings.time_zone)

    @property
    def zone(self) -> tzinfo:
        return load_zone(self.zone_name)

    def find_report(self, shown_id: str) -> JobReport:
        """Return the report of a job and audit the access; respond 404 if it is absent or not accessible."""
        return self.audit_report(shown_id, self.read_report(shown_id))

    def read_report(self, shown_id: str) -> JobReport | None:
        """Return the report of a job without auditing the access; it must not be shown yet."""
        return self.read_report_of(self.cluster, shown_id)

    def read_report_of(self, cluster: str, shown_id: str) -> JobReport | None:
        """Return the report of a job of a cluster, or of the only one that has it.

        Accounting has the pending tasks of an array, such as 12_[3-24%2], as job 12.
        """
        shown_id = shown_id.partition("_[")[0]
        return self.services.finder.report(self.viewer, shown_id, cluster) if SHOWN_ID.match(shown_id) else None

    def audit_report(self, shown_id: str, report: JobReport | None) -> JobReport:
        """Audit the access to a report and return it; respond 404 without one."""
        if report is None:
            raise not_found()
        self.audit(f"job {self.name_job(shown_id, report.record.cluster)}", owner=report.record.user)
        return report

    def add_resubmission(self, report: JobReport) -> JobReport:
        """Return the report with the header for the job's next run."""
        return add_resubmission(self.archive, self.services.wait_times, self.viewer, report)

    def audit(self, subject: str, *, owner: str = "") -> None:
        """Record that staff access data of other users; call this before anything is shown.

        ``owner`` is a user name, empty for data of many users. If the record cannot be written, nothing is shown: the
        ``ArchiveError`` is not caught here.
        """
        if self.viewer.is_staff and owner != self.viewer.name:
            route = getattr(self.request.scope.get("route"), "path", "")
            self.services.audit_log.audit(self.viewer, route, subject)

    def list_jobs(
        self, wanted: JobFilter, *, after: PagePosition | None = None, limit: int, order: ListOrder = NEWEST_FIRST
    ) -> JobPage:
        """Return one page of archived and pending jobs that the viewer has access to."""

        def read_archive() -> JobPage:
            return self.archive.list_jobs(self.viewer, wanted, after=after, limit=limit, order=order)

        return read_merged(self.list_queues(), read_archive, self.viewer, wanted, after=after, limit=limit, order=order)

    def count_jobs(self, wanted: JobFilter) -> JobCount:
        """Count archived and pending jobs that the viewer has access to; an array counts as its pending tasks."""
        pending = sum(count_pending(queue, self.viewer, wanted) for queue in self.list_queues())
        if wanted.state == PENDING and pending:
            return JobCount(pending)
        archived = self.archive.count(self.viewer, wanted)
        return archived._replace(jobs=archived.jobs + pending)

    def list_queues(self) -> tuple[PendingQueue, ...]:
        """Return the queues of all clusters, as far as they are known."""
        own = self.services.live.queue("")
        return (*((own,) if own else ()), *self.services.live.other_queues())

    def find_pending(self, shown_id: str, cluster: str = "") -> FoundPending | None:
        """Return a pending job that the viewer has access to, without auditing the access.

        ``cluster`` is by default the one in the address.
        """
        cluster = cluster or self.cluster
        found = [
            FoundPending(job, queue.cluster, queue)
            for queue in self._find_queues(cluster)
            if (job := queue.find(shown_id)) and self.viewer.sees(job.user, job.account, queue.cluster)
        ]
        if found and found[0].cluster and not cluster and len(self.services.clusters()) > 1:
            return self._choose_pending(shown_id, found)
        return found[0] if found else None

    def _choose_pending(self, shown_id: str, found: Sequence[FoundPending]) -> FoundPending | None:
        """Return the pending job that an ID without a cluster means; None if another cluster has started it since.

        Raises ``AmbiguousName`` if another cluster has another job or an array with this ID, which may not be archived
        yet.
        """
        named = {pending.cluster for pending in found}
        runs: list[JobRow | JobRecord] = list(self.archive.find_shown(self.viewer, shown_id))
        try:
            with suppress(ServerBusy, ArchiveError):
                report = self.read_report_of("", shown_id)
                runs += [report.record] if report else []
        except AmbiguousName as error:
            raise AmbiguousName(error.kind, error.name, named.union(error.clusters)) from None
        if shown_id.isdecimal():
            arrays = (
                JobFilter(cluster=name, array_job_id=int(shown_id))
                for name in self.services.clusters()
                if name not in named
            )
            runs += [row for wanted in arrays for row in self.list_jobs(wanted, limit=1).rows]
        named.update(run.cluster for run in runs)
        # A federated job is pending in several clusters until one starts it, and may have run in another before.
        if not is_one_job(shown_id, [*(pending.job.user for pending in found), *(run.user for run in runs)]):
            require_unambiguous("job", shown_id, named)
        elif any(_has_started(run, found[0].job) for run in runs):
            return None
        return found[0]

    def find_pending_array(self, array_job_id: int, cluster: str) -> tuple[FoundPending, ...]:
        """Return the pending tasks of an array that the viewer has access to, without auditing the access."""
        return tuple(
            FoundPending(job, queue.cluster, queue)
            for queue in self._find_queues(cluster)
            for job in queue.find_array(array_job_id)
            if self.viewer.sees(job.user, job.account, queue.cluster)
        )

    def _find_queues(self, cluster: str) -> tuple[PendingQueue, ...]:
        """Return the queue of a cluster, or those of all clusters without a name."""
        if not cluster:
            return self.list_queues()
        queue = self.services.live.queue(cluster)
        return (queue,) if queue and queue.cluster == cluster else ()

    def find_live(self, cluster: str) -> str | None:
        """Return the name by which services know a cluster: empty for that of the portal's host.

        None if its controller is not read, or if it is unknown which of several clusters is that of the portal's host.
        """
        live = self.services.live.names()
        if cluster and live:
            return ("" if cluster == self.own_cluster else cluster) if cluster in live else None
        known = self.services.clusters()
        return "" if len(known) < 2 and cluster in {"", *known} else None

    def link_cluster(self, cluster: str) -> str:
        """Return the cluster that a link to one of its jobs names: none while there is only one."""
        return shown_cluster(cluster, self.services.clusters())

    def name_job(self, shown_id: str, cluster: str) -> str:
        """Return the name of a job as it is audited and written in forms: with its cluster if there are several."""
        return name_job(shown_id, self.link_cluster(cluster))

    def name_file(self, shown_id: str, *parts: str) -> str:
        """Return the name of a file about a job, with the cluster of the address."""
        return "-".join(part for part in ("job", self.cluster, shown_id, *parts) if part)

    def has_jobs(self, wanted: JobFilter) -> bool:
        """Return whether the viewer has access to any matching job."""
        return bool(self.list_jobs(wanted, limit=1).rows)

    def now(self, cluster: str = "") -> ClusterNow:
        """Return the state of a cluster; reasons of down and drained nodes are for staff, who write them."""
        now = self.services.live.now(cluster)
        return now if self.viewer.is_staff else replace(now, troubles=())

    def since(self, days: int) -> int:
        """Return the midnight at which a period of so many days begins; today counts as one."""
        today = int(self.services.clock()) // DAY_SECONDS * DAY_SECONDS
        return max(0, today - (days - 1) * DAY_SECONDS)

    def make_rule_link(self, wanted: JobFilter) -> Callable[[str], str]:
        return lambda rule: f"{self.base_path}/jobs{render_query(replace(wanted, rule=rule))}"

    def share(self, key: Hashable, compute: Callable[[], T]) -> SharedResult[T]:
        """Compute sums once for concurrent requests: of all staff, who see the same, or of this viewer."""
        scope = "staff" if self.viewer.is_staff else self.viewer
        return self.shared_results.get((scope, key), compute)

    def page(self, template: str, **values: object) -> HTMLResponse:
        path = str(self.request.scope["path"]).removeprefix(self.base_path)
        common = {"problems": self.services.problems(), "path": path}
        return HTMLResponse(self.pages.render(template, self.viewer, {**common, **values}))

    def render_part(self, template: str, **values: object) -> str:
        return self.pages.render(template, None, values)


async def open_context(request: Request) -> RequestContext:
    """Identify the viewer, or reject the request; wait while the viewer has too many others."""
    state = request.app.state
    services: Services = state.services
    viewer = await run_in_threadpool(services.identify, request.scope)
    # If anything fails from here on, the error page knows that the viewer is signed in.
    request.state.viewer = viewer
    await take_place(request.scope, viewer.name)
    return RequestContext(
        request=request,
        services=services,
        viewer=viewer,
        pages=state.pages,
        rendering_cache=state.rendering_cache,
        shared_results=state.shared_results,
        documents=state.documents,
    )


def _origin(request: Request) -> str:
    """Return scheme and host of a request; the scheme is the proxy's, which ends TLS."""
    host = request.headers.get("host", "")
    named = request.headers.get("x-forwarded-proto", "")
    scheme = named if named in {"http", "https"} else request.url.scheme
    return f"{scheme}://{host}" if _HOST.match(host) else ""


def _has_started(run: JobRow | JobRecord, job: PendingJob) -> bool:
    """Return whether this is the run of a pending job, or a later one, and not a copy that was never run."""
    return bool(run.start_seconds) and run.submit_seconds >= job.submit_seconds and run.state != REVOKED


def is_signed_in(request: Request) -> bool:
    return getattr(request.state, "viewer", None) is not None


def not_found() -> HTTPException:
    """Return the one error for what does not exist and for what the viewer has no access to."""
    return HTTPException(404, NOT_FOUND)


Context = Annotated[RequestContext, Depends(open_context)]
