# SPDX-License-Identifier: Apache-2.0
"""Read jobs for ``slurmscope report`` from a portal, which shows users what its pages show them.

The user needs no access to the archive, to accounting or to Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

import msgspec

from slurmscope.errors import AmbiguousName, ServerError
from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.model.job_script import JobScript
from slurmscope.model.report import JobReport
from slurmscope.portal.views.page_paths import job_path
from slurmscope.reports.formatting import format_day
from slurmscope.services.report.job_source import JobList
from slurmscope.services.report.portal_client import PortalClient

PAGE_ROWS = 500
MAX_TASKS = 500
IDS_PER_REQUEST = 200
"""Web servers accept addresses of a few kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Me:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    jobs: tuple[JobRow, ...]
    next: str | None = None


_decode_me = msgspec.json.Decoder(_Me).decode
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_script = msgspec.json.Decoder(JobScript).decode
_decode_report = msgspec.json.Decoder(JobReport).decode


class PortalJobs:
    """Read jobs that the portal shows to the user."""

    def __init__(self, client: PortalClient) -> None:
        """Take the client of the portal."""
        self._client = client

    def user(self) -> str:
        """Return the name by which the portal knows the user."""
        me = self._client.get("/api/v2/me", _decode_me)
        if me is None:
            raise self._too_old()
        return me.name

    def clusters(self) -> tuple[str, ...]:
        """Return none: the portal's short addresses work as long as they worked for this request."""
        return ()

    def report(self, shown_id: str, cluster: str = "") -> JobReport | None:
        """Return the newest run of a job; another user's job is treated like one that does not exist."""
        return self._client.get(f"/api/v2{job_path(shown_id, cluster)}", _decode_report, job=shown_id)

    def list_jobs(self, wanted: JobFilter, limit: int) -> JobList:
        """Return the newest run of each matching job."""
        newest: dict[tuple[str, int], JobRow] = {}
        # No ID at all is one query without this filter.
        for first in range(0, max(1, len(wanted.shown_ids)), IDS_PER_REQUEST):
            some = wanted.shown_ids[first : first + IDS_PER_REQUEST]
            for row in self._read_rows(replace(wanted, shown_ids=some), limit):
                newest.setdefault((row.cluster, row.job_id), row)
        rows = sorted(newest.values(), key=lambda row: (row.submit_seconds, row.job_id), reverse=True)
        return JobList(rows=tuple(rows[:limit]), is_cut=len(rows) > limit)

    def read_array(self, array_id: int, cluster: str = "") -> JobList:
        """Return the newest run of each task of an array."""
        found = self.list_jobs(JobFilter(cluster=cluster, shown_ids=(str(array_id),)), MAX_TASKS)
        tasks = [row for row in found.rows if row.array_job_id == array_id]
        clusters = {row.cluster for row in tasks}
        if len(clusters) > 1:
            raise AmbiguousName("array", str(array_id), clusters)
        return JobList(rows=tuple(sorted(tasks, key=lambda row: _task_number(row.shown_id))), is_cut=found.is_cut)

    def array_reports(self, array_id: int, cluster: str = "") -> tuple[JobReport, ...]:
        """Return the reports of the tasks of an array, one request each."""
        found = (self.report(row.shown_id, cluster) for row in self.read_array(array_id, cluster).rows)
        return tuple(report for report in found if report is not None)

    def read_script(self, report: JobReport, cluster: str = "") -> JobScript | None:
        """Return the script of a job; the portal shows it to the owner of the job."""
        shown_id = report.record.shown_id
        return self._client.get(f"/api/v2{job_path(shown_id, cluster)}/script", _decode_script, job=shown_id)

    def _read_rows(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        """Return one row more than the limit, if there are so many."""
        query = {
            "cluster": wanted.cluster,
            "user": wanted.user,
            "state": wanted.state,
            "ids": ",".join(wanted.shown_ids),
            # The portal filters by day.
            "since": "" if wanted.since_seconds is None else format_day(wanted.since_seconds),
        }
        rows: list[JobRow] = []
        after: str | None = ""
        while after is not None and len(rows) <= limit:
            page = self._read_page({**query, "after": after, "limit": str(min(limit + 1, PAGE_ROWS))})
            since = wanted.since_seconds
            of_cluster = [row for row in page.jobs if wanted.cluster in {"", row.cluster}]
            rows += [row for row in of_cluster if since is None or row.submit_seconds >= since]
            after = page.next if page.jobs and page.next != after else None
        return rows

    def _read_page(self, query: dict[str, str]) -> _Page:
        kept = {name: value for name, value in query.items() if value}
        page = self._client.get(f"/api/v2/jobs?{urlencode(kept)}", _decode_page)
        if page is None:
            raise self._too_old()
        return page

    def _too_old(self) -> ServerError:
        return ServerError(
            f"{self._client.address} has no API for slurmscope report: it is not a slurmscope portal, or an old release"
        )


def _task_number(shown_id: str) -> int:
    task = shown_id.partition("_")[2]
    return int(task) if task.isdecimal() else PAGE_ROWS**3
