# SPDX-License-Identifier: Apache-2.0
"""Show what is about the portal itself: its help, and whether it is alive."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from slurmscope.portal.pages.visit import Visiting

router = APIRouter(include_in_schema=False)


@router.get("/help")
def show_help(visit: Visiting) -> Response:
    """Explain the pages, the words on them, and the API."""
    return visit.page("help.html")


@router.get("/healthz")
async def tell_health() -> Response:
    """Say that the portal answers; it tells nothing else, so anybody may ask."""
    return PlainTextResponse("ok\n")
