# SPDX-License-Identifier: Apache-2.0
"""Choose, in a demo only, with which rights pages are shown."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from slurmscope.portal.sign_in.csrf import check_site
from slurmscope.portal.sign_in.view_as import COOKIE, PATH, ViewAs


def make_router(view_as: ViewAs, base_path: str) -> APIRouter:
    """Return the route of the form that is on every page of a demo."""
    router = APIRouter(include_in_schema=False)

    @router.post(PATH)
    def choose_view(request: Request, view: Annotated[str, Form(max_length=40)]) -> Response:
        """Remember the choice until the browser is closed, and return to the page with the form."""
        view_as.check_local(request.scope)
        check_site(request.scope)
        response = RedirectResponse(_find_page(request) or f"{base_path}/", 303)
        response.set_cookie(COOKIE, view_as.find(view).name, path=f"{base_path}/", httponly=True, samesite="strict")
        return response

    return router


def _find_page(request: Request) -> str:
    """Return path and query of the page with the form, as the browser reports it; nothing for other sites."""
    try:
        page = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    is_own = page.netloc == request.headers.get("host") and page.path.startswith("/") and not page.path.startswith("//")
    return page._replace(scheme="", netloc="", fragment="").geturl() if is_own else ""
