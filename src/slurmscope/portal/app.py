# SPDX-License-Identifier: Apache-2.0
"""Build the portal's web application from its services, routes, static files and error pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Route

from slurmscope import __version__
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import run_periodically
from slurmscope.core.errors import ConfigError
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
    pending,
    savings,
    seed_routes,
    staff,
    users,
    waste,
    zoom,
)
from slurmscope.portal.checks import MixedClusters
from slurmscope.portal.errors import add_error_pages
from slurmscope.portal.metrics import CountedApp, PortalMetrics, RequestCounts, add_metrics_page
from slurmscope.portal.paths import ClusterPaths, add_cluster_operations
from slurmscope.portal.run import UpParts
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.services import Services, open_services
from slurmscope.portal.web.documents import DocumentRenderer
from slurmscope.portal.web.shared_results import RenderingCache, SharedResults
from slurmscope.portal.web.templates import PageRenderer, StaticFiles
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT
from slurmscope.reporter.reporters import LeaderArchive, Reporters
from slurmscope.reporter.settings import ReporterSettings
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import Reporting

_PAGES = (
    jobs,
    nodes,
    histogram,
    job,
    zoom,
    job_script,
    pending,
    users,
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


REFRESH_SECONDS = 300.0


@contextmanager
def open_app(reporting: Reporting, environment: Mapping[str, str], up: UpParts) -> Iterator[CountedApp]:
    """Start the reporter, and build the application that serves its archive."""
    archive, config = reporting.archive, reporting.config
    if archive is None:
        raise ConfigError("the portal needs an archive: set it with --archive.url")
    reporters = _make_reporters(reporting, archive)
    mixed_clusters = MixedClusters(
        config.of(PrometheusSettings),
        reporting.accounting.clusters,
        partial(Checkpoints(archive.database).list_checkpoints, CLUSTER_CHECKPOINT),
    )
    services = open_services(reporting, archive, environment, up=up, reporters=reporters, mixed_clusters=mixed_clusters)
    services.live.request_first()
    readings = (*services.live.host.readings, *((services.filesystems,) if services.filesystems else ()))
    metrics = PortalMetrics(
        requests=RequestCounts(),
        reporters=reporters,
        query_counters=reporting.query_counters,
        readings={reading.name: reading for reading in readings},
    )
    app = make_app(services, portal_url=config.of(MailSettings).portal_url)
    add_metrics_page(app, lambda: (*metrics.families(), *up.families()))
    with (
        run_periodically("clusters", REFRESH_SECONDS, mixed_clusters.refresh),
        reporters.running() if reporters else nullcontext(),
    ):
        yield CountedApp(app, metrics.requests)


def _make_reporters(reporting: Reporting, archive: SqlArchive) -> Reporters | None:
    settings = reporting.config.of(ReporterSettings)

    def open_for(role: str) -> LeaderArchive:
        election = Election(archive.database, role)
        return LeaderArchive(election, SqlArchive(election.database), Checkpoints(election.database))

    return Reporters(reporting.accounting, reporting.maker, open_for, settings) if settings.enabled else None


def make_app(services: Services, *, portal_url: str = "") -> FastAPI:
    """Build the application; ``web.middleware.protect`` adds the headers and limits that it needs outside tests.

    ``portal_url`` is the public address, for links in files and mails; without it, they have that of the request.
    """
    app = FastAPI(
        title=services.settings.title,
        version=__version__,
        summary="What jobs on this cluster requested, and what they used",
        openapi_url="/api/openapi.json",
        # Their scripts come from other hosts.
        docs_url=None,
        redoc_url=None,
        # They would redirect clients of a TLS proxy to http://, and respond before sign-in.
        redirect_slashes=False,
    )
    app.root_path = services.settings.base_path
    static = StaticFiles()
    app.state.services = services
    app.state.public_url = portal_url.rstrip("/")
    app.state.pages = PageRenderer(services.settings, static, clusters=services.clusters, view_as=services.view_as)
    app.state.rendering_cache = RenderingCache()
    app.state.shared_results = SharedResults()
    app.state.documents = DocumentRenderer()
    app.router.routes.append(Route("/static/{address:path}", static.serve, name="static"))
    for page in _PAGES:
        app.include_router(page.router)
    if chosen := services.view_as:
        app.include_router(staff.make_router(chosen, services.settings.base_path))
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
