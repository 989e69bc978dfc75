# SPDX-License-Identifier: Apache-2.0
"""List the clusters of a job, array or node whose name alone means several: status 300, Multiple Choices.

Only clusters in which the viewer has access to it are known here; with one of them there is nothing to choose.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from slurmscope.archive.interface import NEWEST_FIRST, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import (
    AmbiguousName,
    ArchiveError,
    ArchiveSchemaError,
    LimitReached,
    MissingExtraError,
    ServerBusy,
)
from slurmscope.core.log import escape, fields
from slurmscope.jobs.render.formatting import format_day
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.context import NOT_FOUND, is_signed_in
from slurmscope.portal.queries import SHOWN_ID, BadQuery
from slurmscope.portal.services import Services
from slurmscope.portal.sign_in.errors import SignInError
from slurmscope.portal.web.templates import PageRenderer
from slurmscope.reports.page_paths import add_cluster, is_cluster, job_path

STATUS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the clusters, with the address of the requested page there.

    ``row`` is the job if it is archived, or the newest task of an array.
    """

    cluster: str
    url: str
    row: JobRow | None = None
    is_array: bool = False


def handle_ambiguous_name(request: Request, error: Exception) -> Response:
    """Offer the requested page in each of the clusters."""
    assert isinstance(error, AmbiguousName)  # noqa: S101 - how starlette types its handlers
    viewer: Viewer = request.state.viewer
    if viewer.is_staff:
        services: Services = request.app.state.services
        services.audit_log.audit(viewer, getattr(request.scope.get("route"), "path", ""), f"{error.kind} {error.name}")
    choices = _list_choices(request, error)
    if _wants_json(request):
        listed = [{"cluster": choice.cluster, "url": choice.url} for choice in choices]
        return JSONResponse({"error": f"{_sentence(error)} Choose one.", "choices": listed}, STATUS)
    pages: PageRenderer = request.app.state.pages
    values: dict[str, object] = {
        "title": _title(error),
        "sentence": _sentence(error),
        "choices": choices,
        "kind": error.kind,
        "problems": (),
    }
    return HTMLResponse(pages.render("ambiguous.html", viewer, values), STATUS)


def _title(error: AmbiguousName) -> str:
    return f"{error.kind.capitalize()} {error.name}"


def _sentence(error: AmbiguousName) -> str:
    return f"{_title(error)} exists in {len(error.clusters)} clusters."


def _list_choices(request: Request, error: AmbiguousName) -> list[Choice]:
    services: Services = request.app.state.services
    base: str = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(base)
    query = f"?{request.url.query}" if request.url.query else ""
    newest = _find_rows(services, request.state.viewer, error) if error.kind == "job" else {}
    return [
        Choice(
            cluster=cluster,
            url=base + (f"{page}{query}" if (page := add_cluster(path, cluster)) else job_path(error.name, cluster)),
            row=newest.get(cluster),
            is_array=cluster in newest and newest[cluster].shown_id != error.name,
        )
        for cluster in error.clusters
        if is_cluster(cluster)
    ]


def _find_rows(services: Services, viewer: Viewer, error: AmbiguousName) -> dict[str, JobRow]:
    """Return the newest archived run in each cluster; where an array has this ID, its newest task."""
    rows = services.archive.find_shown(viewer, error.name)
    newest = {row.cluster: row for row in sorted(rows, key=lambda row: row.submit_seconds)}
    for cluster in error.clusters:
        if cluster not in newest and error.name.isdecimal():
            wanted = JobFilter(cluster=cluster, array_job_id=int(error.name))
            newest |= {row.cluster: row for row in services.archive.list_jobs(viewer, wanted, limit=1).rows}
    return newest


_logger = logging.getLogger(__name__)

_TITLES = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Access denied",
    404: "Not found",
    405: "Method not allowed",
    429: "Too many requests",
    500: "Internal error",
    501: "Not installed",
    503: "Busy",
}
_ARCHIVE_TITLE = "Archive unreachable"
_ARCHIVE_UNREACHABLE = "Past jobs cannot be shown because the archive database is unreachable. Try again in a minute."
_JOB_PAGE = "/jobs/{shown_id}"
_SCHEMA_TITLE = "Archive of another release"
_TOO_MANY_JOBS = "You requested too many jobs that are not in the archive. Try again in a few seconds."
_MAY_BE_MISSING = "Not all jobs have been read, so a job may be missing."


def add_error_pages(app: FastAPI) -> None:
    """Register the handlers of all errors."""
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_parameter)
    app.add_exception_handler(AmbiguousName, handle_ambiguous_name)
    app.add_exception_handler(BadQuery, _handle_bad_query)
    app.add_exception_handler(SignInError, _handle_sign_in_error)
    app.add_exception_handler(ArchiveError, _handle_archive_error)
    app.add_exception_handler(ArchiveSchemaError, _handle_other_release)
    app.add_exception_handler(LimitReached, _handle_bad_query)
    app.add_exception_handler(ServerBusy, _handle_busy)
    app.add_exception_handler(MissingExtraError, _handle_missing_extra)
    app.add_exception_handler(Exception, _handle_unexpected_error)


def make_error(  # noqa: PLR0913 - the parts of an error page
    request: Request,
    status: int,
    message: str,
    *,
    title: str = "",
    headers: Mapping[str, str] | None = None,
    problems: tuple[str, ...] = (),
    now: ClusterNow | None = None,
) -> Response:
    """Make the response in the requested format; pass ``problems`` and ``now`` for signed-in viewers only."""
    if _wants_json(request):
        return JSONResponse({"error": " ".join((message, *problems))}, status, headers=headers)
    pages: PageRenderer = request.app.state.pages
    values: dict[str, object] = {
        "title": title or _TITLES.get(status, "Error"),
        "message": message,
        "now": now,
        "problems": problems,
    }
    viewer: Viewer | None = getattr(request.state, "viewer", None)
    return HTMLResponse(pages.render("error.html", viewer, values), status, headers=headers)


def _wants_json(request: Request) -> bool:
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return (
        path.startswith("/api/")
        or path.endswith(".json")
        or request.query_params.get("format") == "json"
        or request.headers.get("accept", "").startswith("application/json")
    )


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - how starlette types its handlers
    # A path without a route and a job without access get the same message.
    message = NOT_FOUND if error.detail == "Not Found" else error.detail
    if error.status_code == 404 and _names_job(request) and not _wants_json(request):
        message = await run_in_threadpool(_describe_missing_job, request)
    if error.status_code == 404 and not is_signed_in(request) and not _wants_json(request):
        await run_in_threadpool(_identify, request)
    problems = _find_problems(request) if error.status_code == 404 else ()
    if problems:
        message = f"{message.removesuffix('.')}. {_MAY_BE_MISSING}"
    return make_error(request, error.status_code, message, headers=error.headers, problems=problems)


def _identify(request: Request) -> None:
    """Identify who requested a path without a route, so that the page has the viewer's menu."""
    services: Services = request.app.state.services
    with suppress(SignInError, ArchiveError):
        request.state.viewer = services.identify(request.scope)


def _names_job(request: Request) -> bool:
    """Return whether a page of a job was requested, by what may be a job ID."""
    path = getattr(request.scope.get("route"), "path", "")
    return path == _JOB_PAGE and bool(SHOWN_ID.match(request.path_params.get("shown_id", ""))) and is_signed_in(request)


def _describe_missing_job(request: Request) -> str:
    """Name the job, and say since when there are jobs that the viewer may see; absent and inaccessible are alike."""
    services: Services = request.app.state.services
    viewer: Viewer = request.state.viewer
    sentence = f"Job {request.path_params['shown_id']} does not exist, or you do not have access to it."
    with suppress(ArchiveError):
        oldest = services.archive.list_jobs(viewer, JobFilter(), limit=1, order=NEWEST_FIRST.reversed).rows
        if oldest:
            whose = "The archive has jobs" if viewer.is_staff else "The archive has jobs that you may see"
            return f"{sentence} {whose} since {format_day(oldest[0].submit_seconds)}."
    return sentence


def _find_problems(request: Request) -> tuple[str, ...]:
    """Return which servers fail, which is the same for every job; nothing for viewers who are not signed in."""
    services: Services = request.app.state.services
    return services.problems() if is_signed_in(request) else ()


async def _handle_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0] if error.errors() else {"loc": (), "msg": "invalid"}
    place = ".".join(str(part) for part in first["loc"][1:])
    return make_error(request, 422, escape(f"{place or 'The request'}: {first['msg']}", 300))


async def _handle_bad_query(request: Request, error: Exception) -> Response:
    return make_error(request, 400, str(error))


async def _handle_sign_in_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SignInError)  # noqa: S101
    return make_error(request, error.status, error.reason, headers=error.headers)


def _handle_archive_error(request: Request, error: Exception) -> Response:
    # Not async, so that it runs in a thread: reading the state of the cluster may block.
    _logger.warning("archive failed", extra=fields("archive", error=str(error)))
    services: Services = request.app.state.services
    # Tokens are in the archive too: without it, a viewer with a token is not signed in.
    now = services.live.now("") if is_signed_in(request) and not _wants_json(request) else None
    headers = {"Retry-After": "60"}
    return make_error(request, 503, _ARCHIVE_UNREACHABLE, title=_ARCHIVE_TITLE, headers=headers, now=now)


async def _handle_other_release(request: Request, error: Exception) -> Response:
    _logger.warning("archive of another release", extra=fields("archive", error=str(error)))
    message = f"Jobs cannot be shown: {error}."
    return make_error(request, 503, message, title=_SCHEMA_TITLE, headers={"Retry-After": "60"})


async def _handle_busy(request: Request, _error: Exception) -> Response:
    return make_error(request, 429, _TOO_MANY_JOBS, headers={"Retry-After": "5"})


async def _handle_missing_extra(request: Request, error: Exception) -> Response:
    _logger.warning("package missing", extra=fields("extra", error=str(error)))
    message = "This report format is not installed. Contact the administrators of this portal."
    return make_error(request, 501, message)


async def _handle_unexpected_error(request: Request, _error: Exception) -> Response:
    # The server logs the error itself.
    return make_error(request, 500, "The page could not be created because of an internal error, which was logged.")
