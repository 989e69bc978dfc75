# SPDX-License-Identifier: Apache-2.0
"""Show the help page, and answer health checks."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from slurmscope.portal.pages.context import Context

router = APIRouter(include_in_schema=False)


@router.get("/help")
def show_help(context: Context) -> Response:
    """Explain the terms on the pages, access rules, and the API."""
    return context.page("help.html")


@router.get("/healthz")
async def check_health() -> Response:
    """Confirm that the portal is up; no sign-in is needed."""
    return PlainTextResponse("ok\n")
