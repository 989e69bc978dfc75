# SPDX-License-Identifier: Apache-2.0
"""Show the help page, and answer health checks."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from slurmscope.portal.pages.context import Context
from slurmscope.portal.views.api_reference import list_errors, list_operations

router = APIRouter(include_in_schema=False)


@router.get("/help")
def show_help(context: Context) -> Response:
    """Explain the terms on the pages, access rules, and the API."""
    return context.page("help.html")


@router.get("/api")
def show_api(context: Context) -> Response:
    """Show the documentation of the API; the usual pages for this would load scripts from other hosts."""
    document = context.request.app.openapi()
    return context.page(
        "api.html", operations=list_operations(document), errors=list_errors(document), portal_url=context.public_url
    )


@router.get("/healthz")
async def check_health() -> Response:
    """Confirm that the portal is up; no sign-in is needed."""
    return PlainTextResponse("ok\n")
