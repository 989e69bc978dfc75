# SPDX-License-Identifier: Apache-2.0
"""Run the portal and the reporter, which archives ended jobs, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import logging
import re
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, MissingExtraError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.process import PAGE_OBJECTS, ReloadRequest, settle_memory, shorten_thread_turns
from slurmscope.exporter.exporter import configure_log
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.series import SeriesSource
from slurmscope.lustre.use import TopClients
from slurmscope.metrics.family import Family
from slurmscope.portal.scope import AsgiApp
from slurmscope.portal.settings import PROXY, ListenAddress, PortalSettings, check_settings
from slurmscope.portal.sign_in.identity import DemoView
from slurmscope.portal.sign_in.munge import open_munge
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.reporter.retention import ReporterSettings, check_retention
from slurmscope.reports.scripts import JobScripts
from slurmscope.reports.sources import Reporting, open_reporting

if TYPE_CHECKING:
    import uvicorn

    from slurmscope.portal.metrics import CountedApp


logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
BACKLOG = 128
GRACEFUL_SECONDS = 8
OWN_SOCKET_MODE = 0o600
PROXY_SOCKET_MODE = 0o660
"""Everyone who can open the socket is trusted: the portal's user, and in proxy mode its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpParts:
    """What ``slurmscope up`` and ``slurmscope demo`` add to the portal that runs in their process."""

    families: Callable[[], Iterable[Family]] = tuple
    """Return metrics for the portal's metrics page."""
    problems: Callable[[], Iterable[str]] = tuple
    charts: ClusterCharts | None = None
    scripts: JobScripts | None = None
    """Simulated scripts; None where Slurm stores them."""
    filesystems: Callable[[], TopClients] | None = None
    """Simulated use of file systems; None where Prometheus has it, if anything does."""
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


def make_server(app: AsgiApp, settings: PortalSettings) -> uvicorn.Server:
    """Return a server; run it with ``await server.serve(sockets=[open_listener(settings.listen_address)])``.

    In proxy mode, this opens the unix socket to its group.
    """
    try:
        import uvicorn

        from slurmscope.portal.web.connections import HeadDeadline
        from slurmscope.portal.web.middleware import FRAMED, MAX_HEAD_BYTES, Framing, protect
    except ImportError as error:
        raise MissingExtraError("the portal", "portal") from error
    if settings.mode == PROXY and settings.listen_address.socket_path:
        Path(settings.listen_address.socket_path).chmod(PROXY_SOCKET_MODE)
    config = uvicorn.Config(
        protect(
            app,
            identity_header=settings.proxy_header,
            framing=Framing(paths=re.escape(settings.base_path) + FRAMED, parents=settings.frame_parents),
        ),
        # Trust depends on the peer address; by default uvicorn replaces it with the value of a header.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        http=HeadDeadline,
        # Our layers expect requests only.
        ws="none",
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        # Also how many connections are accepted before those that wait too long are closed.
        backlog=BACKLOG,
        h11_max_incomplete_event_size=2 * MAX_HEAD_BYTES,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    return uvicorn.Server(config)


def open_listener(address: ListenAddress) -> socket.socket:
    """Listen on a port or a unix socket; raise a ConfigError if that fails."""
    try:
        if address.socket_path:
            return _listen_on_path(Path(address.socket_path))
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"{address} is already in use; choose another address with --portal.listen-address"
            ) from error
        if address.socket_path and error.errno == errno.ENOENT:
            hint = "the unit slurmscope-portal creates it; elsewhere set --portal.listen-address"
            raise ConfigError(f"cannot listen on {address}: its folder does not exist; {hint}") from error
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error


def _listen_on_path(path: Path) -> socket.socket:
    _remove_stale_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Connections are possible only after listen(), when the mode is already set.
        path.chmod(OWN_SOCKET_MODE)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a portal that was killed; a socket in use is kept."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()
