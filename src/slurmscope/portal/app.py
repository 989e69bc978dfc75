# SPDX-License-Identifier: Apache-2.0
"""Build the portal's web application from its routes, static files and error pages."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Route

from slurmscope import __version__
from slurmscope.portal import (
    about,
    api,
    api_figures,
    cluster,
    compare,
    filesystems,
    histogram,
    job,
    job_script,
    jobs,
    nodes,
    savings,
    seed_routes,
    staff,
    waste,
    zoom,
)
from slurmscope.portal import pending as waiting
from slurmscope.portal import staff as view_as
from slurmscope.portal import users as people
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.errors import add_error_pages
from slurmscope.portal.paths import ClusterPaths, add_cluster_operations
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.web.documents import DocumentRenderer
from slurmscope.portal.web.shared_results import RenderingCache, SharedResults
from slurmscope.portal.web.templates import PageRenderer, StaticFiles

_PAGES = (
    jobs,
    nodes,
    histogram,
    job,
    zoom,
    job_script,
    waiting,
    people,
    cluster,
    waste,
    savings,
    staff,
    filesystems,
    compare,
    about,
    seed_routes,
    api,
    api_figures,
)


def make_app(backend: PortalBackend, *, portal_url: str = "") -> FastAPI:
    """Build the application; ``web.middleware.protect`` adds the headers and limits that it needs outside tests.

    ``portal_url`` is the public address, for links in files and mails; without it, they have that of the request.
    """
    app = FastAPI(
        title=backend.settings.title,
        version=__version__,
        summary="What jobs on this cluster requested, and what they used",
        openapi_url="/api/openapi.json",
        # Their scripts come from other hosts.
        docs_url=None,
        redoc_url=None,
        # They would redirect clients of a TLS proxy to http://, and respond before sign-in.
        redirect_slashes=False,
    )
    app.root_path = backend.settings.base_path
    static = StaticFiles()
    app.state.backend = backend
    app.state.public_url = portal_url.rstrip("/")
    app.state.pages = PageRenderer(
        backend.settings, static, clusters=backend.jobs.clusters, view_as=backend.sign_in.view_as
    )
    app.state.rendering_cache = RenderingCache()
    app.state.shared_results = SharedResults()
    app.state.documents = DocumentRenderer()
    app.router.routes.append(Route("/static/{address:path}", static.serve, name="static"))
    for page in _PAGES:
        app.include_router(page.router)
    if chosen := backend.sign_in.view_as:
        app.include_router(view_as.make_router(chosen, backend.settings.base_path))
    app.router.default = _RedirectBasePath(app.router.default)
    app.openapi = partial(_describe, app)  # type: ignore[method-assign]
    add_error_pages(app)
    app.add_middleware(ClusterPaths)
    return app


def _describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = add_cluster_operations(FastAPI.openapi(app))
    return app.openapi_schema


class _RedirectBasePath:
    """Redirect the base path without a slash to the first page; no route can match that path."""

    def __init__(self, fallback: AsgiApp) -> None:
        self._fallback = fallback

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle requests that no route matches."""
        base_path = scope.get("root_path", "")
        is_base_path = base_path != "" and base_path == scope["path"]
        handler = RedirectResponse(f"{base_path}/") if is_base_path else self._fallback
        await handler(scope, receive, send)
