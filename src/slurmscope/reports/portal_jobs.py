# SPDX-License-Identifier: Apache-2.0
"""Read jobs for ``slurmscope report`` from a portal, which shows users what its pages show them.

The user needs no access to the archive, to accounting or to Prometheus.

Redirects are not followed, and nothing that proves who the user is leaves this host without TLS.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from slurmscope import __version__
from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import (
    AmbiguousName,
    CommandError,
    CommandMissing,
    ConfigError,
    ServerBusy,
    ServerError,
    ServerRefused,
)
from slurmscope.core.log import escape
from slurmscope.http.client.address import ServerAddress
from slurmscope.http.client.credentials import TokenFile
from slurmscope.http.client.request import ClientRequest, HttpAnswer, send, tls_context
from slurmscope.jobs.pending.blockers import PendingExplanation
from slurmscope.jobs.render.formatting import format_day
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.script import JobScript
from slurmscope.reports.local_jobs import ListedJobs, order_newest
from slurmscope.reports.page_paths import is_cluster, job_path
from slurmscope.reports.settings import ClientSettings, is_private
from slurmscope.slurm.munge import make_credential, make_payload

RESPONSE_LIMIT_BYTES = 64 << 20
_MESSAGE_LIMIT = 500

T = TypeVar("T")


class _Choice(msgspec.Struct):
    cluster: str


class _Choices(msgspec.Struct):
    choices: tuple[_Choice, ...]


class PortalClient:
    """Read responses of the API; every failure is a SlurmscopeError with what to do."""

    def __init__(self, address: ServerAddress, settings: ClientSettings, environment: Mapping[str, str]) -> None:
        """Choose how to authenticate; the portal is not called yet."""
        self.address = address
        self._settings = settings
        self._credentials = choose_credentials(address, settings, environment)
        self._tls = tls_context(settings.ca_file) if address.is_tls else None

    def get(self, path: str, decode: Callable[[bytes], T], *, job: str = "") -> T | None:
        """Return a decoded response; None if the portal has no such thing.

        Raises AmbiguousName if ``job``, whose ID the path names, exists in several clusters.
        """
        response = self._send(path)
        if response.status == 404:
            return None
        if response.status == 300 and (clusters := _find_choices(response.body)):
            raise AmbiguousName("job", job, clusters)
        if response.status != 200:
            raise self._refusal(response)
        try:
            return decode(response.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(response.body) from error

    def _send(self, path: str) -> HttpAnswer:
        headers = {"Accept": "application/json", **self._credentials()}
        return send(
            self.address,
            ClientRequest(path=path, headers=headers),
            deadline=time.monotonic() + self._settings.timeout,
            tls=self._tls,
            limit_bytes=RESPONSE_LIMIT_BYTES,
        )

    def _refusal(self, response: HttpAnswer) -> ServerError:
        reason = _find_reason(response.body)
        if 300 <= response.status < 400:
            return ServerRefused(
                f"{self.address} redirects to another address, which is not followed; set portal.url to the portal "
                "itself, whose /api/ must not require interactive sign-in"
            )
        if response.status == 401:
            return ServerRefused(f"{self.address} did not accept your identity: {reason}")
        if response.status in {429, 503}:
            return ServerBusy(f"{self.address} is busy: {reason}")
        return ServerRefused(f"{self.address} answered with status {response.status}: {reason}")

    def _unreadable(self, body: bytes) -> ServerError:
        if body.lstrip()[:1] not in {b"{", b"["}:
            return ServerError(
                f"{self.address} did not answer with JSON; set portal.url to a slurmscope portal, whose /api/ must not "
                "require interactive sign-in"
            )
        return ServerError(
            f"{self.address} runs another release of slurmscope, whose answer this one ({__version__}) cannot read; "
            "install the portal's release here"
        )


def choose_credentials(
    address: ServerAddress, settings: ClientSettings, environment: Mapping[str, str]
) -> Callable[[], Mapping[str, str]]:
    """Return what makes the headers of each request: with the token if there is a file, else with munge.

    A portal in local mode knows users on its own host without either.
    """
    is_safe = is_private(address) or settings.token_over_http
    try:
        path = settings.token_file.expanduser()
    except RuntimeError as error:
        raise ConfigError("your home directory is not known; set portal.token-file") from error
    if _is_there(path):
        if not is_safe:
            raise _clear_text(address, "token")
        check_private_file(path)
        token = TokenFile(path)
        return lambda: {"Authorization": f"Bearer {token.read()}"}
    if not is_safe:
        raise _clear_text(address, "munge credential")
    payload = make_payload(address)

    def sign() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Munge {make_credential(payload, environment)}"}
        except CommandError as error:
            if not address.is_tls:
                return {}
            if not isinstance(error, CommandMissing):
                raise
            raise ConfigError(
                f"there is neither a portal token in {path} nor the program munge on this host; put a token there, "
                "which the administrators of the portal create with slurmscope token create"
            ) from error

    return sign


def _is_there(path: Path) -> bool:
    """Return whether a file exists; one in a folder that the user may not enter does not."""
    try:
        return path.exists()
    except OSError:
        return False


def check_private_file(path: Path) -> None:
    """Raise ConfigError for a token file that others may read or write."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot read the token file {escape(str(path))}: {error.strerror}") from error
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"other users can access the token file {escape(str(path))}; run chmod 600 on it")


def _clear_text(address: ServerAddress, what: str) -> ConfigError:
    return ConfigError(
        f"your {what} would be sent to {address} in clear text; use https:// or set portal.token-over-http"
    )


def _find_choices(body: bytes) -> tuple[str, ...]:
    """Return the clusters that the portal offers to choose from."""
    try:
        found = msgspec.json.decode(body, type=_Choices).choices
    except msgspec.MsgspecError:
        return ()
    return tuple(each.cluster for each in found if is_cluster(each.cluster))


def _find_reason(body: bytes) -> str:
    """Return the sentence of the portal, made safe to show."""
    try:
        error = msgspec.json.decode(body, type=dict[str, object]).get("error")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = None
    return escape(error, _MESSAGE_LIMIT) if isinstance(error, str) and error else "it gave no reason"


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
_decode_explanation = msgspec.json.Decoder(PendingExplanation).decode
_decode_report = msgspec.json.Decoder(JobReport).decode


class PortalJobs:
    """Read jobs that the portal shows to the user."""

    def __init__(self, client: PortalClient) -> None:
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

    def explain_pending(self, report: JobReport, cluster: str = "") -> PendingExplanation | None:
        path = f"/api/v2{job_path(report.record.shown_id, cluster)}/waiting"
        return self._client.get(path, _decode_explanation, job=report.record.shown_id)

    def list_jobs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        return order_newest(self.list_runs(wanted, limit), limit)

    def list_runs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        found: list[JobRow] = []
        # No ID at all is one query without this filter.
        for first in range(0, max(1, len(wanted.shown_ids)), IDS_PER_REQUEST):
            some = wanted.shown_ids[first : first + IDS_PER_REQUEST]
            found += self._read_rows(replace(wanted, shown_ids=some), limit)
        return ListedJobs(rows=tuple(found))

    def read_array(self, array_id: int, cluster: str = "") -> ListedJobs:
        found = self.list_jobs(JobFilter(cluster=cluster, shown_ids=(str(array_id),)), MAX_TASKS)
        tasks = [row for row in found.rows if row.array_job_id == array_id]
        clusters = {row.cluster for row in tasks}
        if len(clusters) > 1:
            raise AmbiguousName("array", str(array_id), clusters)
        return ListedJobs(rows=tuple(sorted(tasks, key=lambda row: _task_number(row.shown_id))), is_cut=found.is_cut)

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
