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
from slurmscope.archive.engine import Database
from slurmscope.archive.size import ArchiveSize, measure_size
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import run_periodically
from slurmscope.core.errors import ArchiveError, ConfigError, SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.portal import (
    about,
    api,
    api_figures,
    cluster,
    compare,
    compat,
    filesystems,
    histogram,
    home,
    hours,
    job,
    job_view,
    jobs,
    node_list,
    nodes,
    pending,
    savings,
    staff,
    users,
    waste,
    zoom,
)
from slurmscope.portal.checks import MixedClusters
from slurmscope.portal.errors import add_error_pages
from slurmscope.portal.metrics import ARCHIVE_SECONDS, CountedApp, PortalMetrics, RequestCounts, add_metrics_page
from slurmscope.portal.paths import ClusterPaths, add_cluster_operations
from slurmscope.portal.run import UpParts
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.services import Services, open_services
from slurmscope.portal.web.slow_results import DocumentRenderer, RenderingCache, SharedResults
from slurmscope.portal.web.templates import PageRenderer, StaticFiles
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT
from slurmscope.reporter.reporters import LeaderArchive, Reporters
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.carbon import EnergySettings
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import Reporting
from slurmscope.slurm.command import SlurmCommands, SlurmSettings

_PAGES = (
    home,
    jobs,
    node_list,
    nodes,
    histogram,
    job,
    zoom,
    job_view,
    pending,
    users,
    cluster,
    waste,
    savings,
    hours,
    staff,
    filesystems,
    compare,
    about,
    compat,
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
    reporters = _make_reporters(reporting, archive, environment)
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
        archive=SharedReading("archive", partial(_measure, archive.database), interval_seconds=ARCHIVE_SECONDS),
        suspects=services.suspects,
    )
    app = make_app(services, portal_url=config.of(MailSettings).portal_url, currency=config.of(EnergySettings).currency)
    add_metrics_page(app, lambda: (*metrics.families(), *up.families()))
    with (
        run_periodically("clusters", REFRESH_SECONDS, mixed_clusters.refresh),
        reporters.running() if reporters else nullcontext(),
    ):
        yield CountedApp(app, metrics.requests)


def _measure(database: Database) -> ArchiveSize:
    try:
        return measure_size(database)
    except ArchiveError as error:
        raise SourceError(str(error)) from error


def _make_reporters(reporting: Reporting, archive: SqlArchive, environment: Mapping[str, str]) -> Reporters | None:
    settings = reporting.config.of(ReporterSettings)
    if not settings.enabled:
        return None
    run = SlurmCommands(reporting.config.of(SlurmSettings), environment).run

    def open_for(role: str) -> LeaderArchive:
        election = Election(archive.database, role)
        return LeaderArchive(election, SqlArchive(election.database), Checkpoints(election.database))

    return Reporters(reporting.accounting, reporting.maker, open_for, settings, run=run)


def make_app(services: Services, *, portal_url: str = "", currency: str = "") -> FastAPI:
    """Build the application; ``web.middleware.protect`` adds the headers and limits that it needs outside tests.

    ``portal_url`` is the public address, for links in files and mails; without it, they have that of the request.
    ``currency`` is that of the cost of energy.
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
    app.state.pages = PageRenderer(
        services.settings, static, clusters=services.clusters, view_as=services.view_as, currency=currency
    )
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
