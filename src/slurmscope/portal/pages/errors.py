# SPDX-License-Identifier: Apache-2.0
"""Answer what went wrong with one sentence, as a page or as JSON, and never with a stack trace."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from slurmscope.errors import ArchiveError, MissingExtraError
from slurmscope.log import escape, fields
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.pages.visit import ABSENT, is_let_in
from slurmscope.portal.sign_in.errors import SignInError
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queries import BadQuery
from slurmscope.portal.web.templating import PageMaker

_logger = logging.getLogger(__name__)

_TITLES = {
    400: "This address cannot be understood",
    401: "Please sign in",
    403: "This is not for you",
    404: "Nothing here",
    405: "This cannot be done here",
    429: "Please wait",
    500: "Something broke",
    503: "The archive is away",
}
_ARCHIVE_AWAY = "Jobs of the past cannot be shown now, because their database does not answer. Try again in a minute."
_MAY_BE_MISSING = "Not everything that knows of jobs answers now, so a job of this moment may be missing."


def add_error_pages(app: FastAPI) -> None:
    """Let every kind of failure be answered."""
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_bad_request)
    app.add_exception_handler(BadQuery, _answer_bad_query)
    app.add_exception_handler(SignInError, _answer_sign_in_error)
    app.add_exception_handler(ArchiveError, _answer_archive_error)
    app.add_exception_handler(MissingExtraError, _answer_missing_extra)
    app.add_exception_handler(Exception, _answer_surprise)


def make_error(
    request: Request,
    status: int,
    sentence: str,
    *,
    headers: Mapping[str, str] | None = None,
    problems: tuple[str, ...] = (),
    now: ClusterNow | None = None,
) -> Response:
    """Make the answer in the form that was asked for; ``problems`` and ``now`` are for those who were let in."""
    if _wants_json(request):
        return JSONResponse({"error": " ".join((sentence, *problems))}, status, headers=headers)
    pages: PageMaker = request.app.state.pages
    context: dict[str, object] = {
        "title": _TITLES.get(status, "This did not work"),
        "sentence": sentence,
        "status": status,
        "now": now,
        "problems": problems,
    }
    return HTMLResponse(pages.render("error.html", None, context), status, headers=headers)


def _wants_json(request: Request) -> bool:
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return (
        path.startswith("/api/")
        or path.endswith(".json")
        or request.query_params.get("format") == "json"
        or request.headers.get("accept", "").startswith("application/json")
    )


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - how starlette types its handlers
    # A path that no route knows and a job that is not the viewer's read the same.
    sentence = ABSENT if error.detail == "Not Found" else error.detail
    problems = _problems(request) if error.status_code == 404 else ()
    if problems:
        sentence = f"{sentence.removesuffix('.')}. {_MAY_BE_MISSING}"
    return make_error(request, error.status_code, sentence, headers=error.headers, problems=problems)


def _problems(request: Request) -> tuple[str, ...]:
    """Return what is away, which is the same for every job; nothing to those who were not let in."""
    desk: PortalBackend = request.app.state.desk
    return desk.problems() if is_let_in(request) else ()


async def _answer_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0] if error.errors() else {"loc": (), "msg": "not understood"}
    place = ".".join(str(part) for part in first["loc"][1:])
    return make_error(request, 422, escape(f"{place or 'The request'}: {first['msg']}", 300))


async def _answer_bad_query(request: Request, error: Exception) -> Response:
    return make_error(request, 400, str(error))


async def _answer_sign_in_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SignInError)  # noqa: S101
    return make_error(request, error.status, error.reason, headers=error.headers)


def _answer_archive_error(request: Request, error: Exception) -> Response:
    # A thread of its own: the desk is asked for the cluster's state.
    _logger.warning("archive failed", extra=fields("archive", error=str(error)))
    desk: PortalBackend = request.app.state.desk
    # Tokens are in the archive too: without it, anybody may have sent any.
    now = desk.now() if is_let_in(request) and not _wants_json(request) else None
    return make_error(request, 503, _ARCHIVE_AWAY, headers={"Retry-After": "60"}, now=now)


async def _answer_missing_extra(request: Request, error: Exception) -> Response:
    _logger.warning("package missing", extra=fields("extra", error=str(error)))
    return make_error(request, 501, "This form of a report is not installed here. Ask those who run this portal.")


async def _answer_surprise(request: Request, _error: Exception) -> Response:
    # Whatever runs the application logs the error itself.
    return make_error(request, 500, "Something broke while this page was made. It has been written to the log.")
