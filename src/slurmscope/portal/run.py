# SPDX-License-Identifier: Apache-2.0
"""Run the portal and the reporter, which archives ended jobs, in one process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmscope.core.config import Config
from slurmscope.core.errors import MissingExtraError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.process import PAGE_OBJECTS, ReloadRequest, settle_memory, shorten_thread_turns
from slurmscope.exporter.exporter import configure_log
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.series import SeriesSource
from slurmscope.metrics.family import Family
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.portal.sign_in.munge import open_munge
from slurmscope.portal.sign_in.view_as import DemoView
from slurmscope.portal.web.server import make_server, open_listener
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.reporter.settings import ReporterSettings, check_retention
from slurmscope.reports.scripts import JobScripts
from slurmscope.reports.sources import Reporting, open_reporting

if TYPE_CHECKING:
    from slurmscope.portal.metrics import CountedApp

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpParts:
    """What ``slurmscope up`` and ``slurmscope demo`` add to the portal that runs in their process."""

    families: Callable[[], Iterable[Family]] = tuple
    """Return metrics for the portal's metrics page."""
    problems: Callable[[], Iterable[str]] = tuple
    charts: ClusterCharts | None = None
    scripts: JobScripts | None = None
    """Simulated scripts; None where Slurm stores them."""
    demo_views: tuple[DemoView, ...] = ()
    """Viewers to choose from in a demo; none in any other portal."""


def run_portal(  # noqa: PLR0913 - every part can be replaced
    config: Config,
    environment: Mapping[str, str],
    *,
    series: SeriesSource | None = None,
    accounting: JobAccounting | None = None,
    up: UpParts | None = None,
    ready: Callable[[str], None] = lambda _: None,
    load: Callable[[], Config] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; ``ready`` is called with the address when pages can be opened.

    ``up`` is what ``slurmscope up`` adds. SIGHUP restarts the portal with the configuration that ``load``
    returns, on the same listening socket: clients wait and are not refused. Without ``load`` it changes nothing.
    """
    configure_log(config)
    require_portal()
    from slurmscope.portal.app import open_app

    settle_memory(PAGE_OBJECTS)
    sources = _Sources(environment, series, accounting)
    _check_settings(config)
    with ExitStack() as stack, ReloadRequest() as reload_request:
        listener: socket.socket | None = None
        is_running = True
        while is_running:
            settings = config.of(PortalSettings)
            with (
                sources.open(config) as reporting,
                open_app(reporting, environment, up or UpParts()) as app,
            ):
                if listener is None:
                    listener = stack.enter_context(open_listener(settings.listen_address))
                    shown = _shown_address(settings, listener.getsockname())
                    logger.info("listening", extra=fields(address=shown))
                    ready(shown)
                _serve(app, settings, listener, reload_request)
            is_running = reload_request.take()
            if is_running:
                config = _load_again(config, load, sources)
    logger.info("stopped")
    return 0


@dataclass(frozen=True, slots=True)
class _Sources:
    """What stays the same when the configuration is loaded again."""

    environment: Mapping[str, str]
    series: SeriesSource | None
    accounting: JobAccounting | None

    def open(self, config: Config) -> AbstractContextManager[Reporting]:
        return open_reporting(
            config,
            self.environment,
            series=self.series,
            accounting=self.accounting,
            is_archiving=True,
            archived_seconds=2 * config.of(ReporterSettings).interval,
        )


def _serve(app: CountedApp, settings: PortalSettings, listener: socket.socket, reload_request: ReloadRequest) -> None:
    """Serve until a signal; the server closes a copy of the listener, not the listener itself."""
    shorten_thread_turns()  # a page of a few milliseconds must not wait for those that make a large report
    server = make_server(app, settings)

    def stop() -> None:
        server.should_exit = True

    reload_request.watch(stop)
    asyncio.run(server.serve(sockets=[listener.dup()]))


def _check_settings(config: Config) -> None:
    check_settings(config.of(PortalSettings))
    check_retention(config.of(ReporterSettings))
    open_munge(config, {})


def _load_again(config: Config, load: Callable[[], Config] | None, sources: _Sources) -> Config:
    """Return the new configuration, or the one in force if the new one cannot be used."""
    if load is None:
        logger.warning("SIGHUP does not reload the configuration here; restart to change it")
        return config
    try:
        loaded = load()
        _check_settings(loaded)
        with sources.open(loaded):
            pass
    except SlurmscopeError as error:
        logger.error("configuration not reloaded", extra=fields(error=str(error)))
        return config
    configure_log(loaded)
    logger.info("configuration reloaded")
    if loaded.of(PortalSettings).listen_address != config.of(PortalSettings).listen_address:
        logger.warning("a change of portal.listen-address needs a restart")
    return loaded


def require_portal() -> None:
    """Import the web packages, before files are created or threads started; raise if the extra is missing."""
    try:
        importlib.import_module("slurmscope.portal.app")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("slurmscope"):
            raise
        raise MissingExtraError("the portal", "portal") from error


def _shown_address(settings: PortalSettings, bound: object) -> str:
    address = settings.listen_address
    if address.socket_path:
        return str(address)
    port = bound[1] if isinstance(bound, tuple) else address.port
    host = address.host or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}/"
