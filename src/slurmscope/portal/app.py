# SPDX-License-Identifier: Apache-2.0
"""Put the portal together: pages, files, the API, and what is said when something fails."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Route

from slurmscope import __version__
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.pages import api, seed_routes
from slurmscope.portal.pages import array as pages_array
from slurmscope.portal.pages import cluster as pages_cluster
from slurmscope.portal.pages import compare as pages_compare
from slurmscope.portal.pages import job as pages_job
from slurmscope.portal.pages import jobs as pages_jobs
from slurmscope.portal.pages import other as pages_other
from slurmscope.portal.pages import people as pages_people
from slurmscope.portal.pages.errors import add_error_pages
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.web.rendering_cache import KeptRenderings
from slurmscope.portal.web.static_files import StaticFiles
from slurmscope.portal.web.templating import PageMaker

_ROUTERS = (
    pages_jobs.router,
    pages_job.router,
    pages_array.router,
    pages_people.router,
    pages_cluster.router,
    pages_compare.router,
    pages_other.router,
    seed_routes.router,
    api.router,
)


def make_app(desk: PortalBackend, *, portal_url: str = "") -> FastAPI:
    """Make the application; ``web_server.protect`` wraps it in the headers and limits that it needs outside tests.

    ``portal_url`` is where people find it, for links that leave it. Behind a proxy, a request does not tell that.
    """
    app = FastAPI(
        title=desk.settings.title,
        version=__version__,
        summary="What jobs on this cluster asked for, and what they used",
        openapi_url="/api/openapi.json",
        # Their scripts come from other hosts.
        docs_url=None,
        redoc_url=None,
        # It would lead those behind a proxy with TLS to http://, and answer before anybody has signed in.
        redirect_slashes=False,
    )
    app.root_path = desk.settings.base_path
    static = StaticFiles()
    app.state.desk = desk
    app.state.public_url = portal_url.rstrip("/") or desk.settings.base_path
    app.state.pages = PageMaker(desk.settings, static)
    app.state.renderings = KeptRenderings()
    app.router.routes.append(Route("/static/{address:path}", static.serve, name="static"))
    for router in _ROUTERS:
        app.include_router(router)
    app.router.default = _BarePath(app.router.default)
    add_error_pages(app)
    return app


class _BarePath:
    """Lead from the portal's path to its first page, whose address has a slash more; no route can have that path."""

    def __init__(self, otherwise: AsgiApp) -> None:
        self._otherwise = otherwise

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer what no route knows."""
        base_path = scope.get("root_path", "")
        is_bare = base_path != "" and base_path == scope["path"]
        answer = RedirectResponse(f"{base_path}/") if is_bare else self._otherwise
        await answer(scope, receive, send)
