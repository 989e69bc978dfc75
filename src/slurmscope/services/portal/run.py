# SPDX-License-Identifier: Apache-2.0
"""Run the portal and the reporter, which archives ended jobs, in one process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import pwd
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from slurmscope.config import Config
from slurmscope.errors import ConfigError, MissingExtraError, SlurmscopeError
from slurmscope.log import fields
from slurmscope.metrics.family import Family
from slurmscope.model.job_record import JobAccounting, JobRecord
from slurmscope.model.job_script import JobScript
from slurmscope.model.report import Chart
from slurmscope.model.series import SeriesSource
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.portal.sign_in.bearer_token import SignInLimits
from slurmscope.portal.sign_in.coordinated_accounts import CoordinatedAccounts
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.web.server import make_server, open_listener
from slurmscope.services.exporter.exporter import configure_log
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.visible_jobs import require_all_jobs
from slurmscope.services.portal.cluster_state import ClusterState
from slurmscope.services.portal.filesystems import find_top_clients, make_reading
from slurmscope.services.portal.metrics import PortalMetrics
from slurmscope.services.portal.munge import open_munge
from slurmscope.services.portal.node_history import open_node_history
from slurmscope.services.portal.request_metrics import CountedApp, RequestCounts
from slurmscope.services.portal.waiting import make_waiting_readings
from slurmscope.services.reporting.opening import Reporting, open_reporting
from slurmscope.services.reporting.reporter import Reporter, ReporterSettings, open_reporter_loop
from slurmscope.services.reporting.resubmitting import add_resubmission
from slurmscope.services.reporting.scripts import ScriptReader
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.services.reporting.waiting_cache import WaitingTimesCache
from slurmscope.services.runtime.memory import PAGE_OBJECTS, settle_memory
from slurmscope.services.runtime.signals import ReloadRequest
from slurmscope.services.runtime.threads import shorten_thread_turns
from slurmscope.sources.slurm.backends import open_backend
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.sources.slurm.coordinators import read_coordinated
from slurmscope.sources.slurm.job_visibility import CONTROLLER, JobVisibility
from slurmscope.sources.slurm.squeue import StartWindow

logger = logging.getLogger(__name__)

NOW_SECONDS = 30.0
"""Minimum interval between reads of queue and nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Provide metrics and problem messages of other services in this process.

    ``charts`` returns charts of the cluster's last 24 hours, if they are recorded.
    """

    families: Callable[[], Iterable[Family]] = tuple
    problems: Callable[[], Iterable[str]] = tuple
    charts: Callable[[], tuple[Chart, ...]] = tuple
    scripts: Callable[[JobRecord], JobScript | None] | None = None
    """Return the script of a job; None where scripts come from Slurm."""


def run_portal(  # noqa: PLR0913 - every part can be replaced
    config: Config,
    environment: Mapping[str, str],
    *,
    series: SeriesSource | None = None,
    accounting: JobAccounting | None = None,
    beside: Companion | None = None,
    ready: Callable[[str], None] = lambda _: None,
    load: Callable[[], Config] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; ``ready`` is called with the address when pages can be opened.

    ``beside`` describes other services in this process. SIGHUP restarts the portal with the configuration that ``load``
    returns, on the same listening socket: clients wait and are not refused. Without ``load`` it changes nothing.
    """
    configure_log(config)
    require_portal()
    settle_memory(PAGE_OBJECTS)
    services = _Services(environment, series, accounting, beside or Companion())
    _check_settings(config)
    with ExitStack() as stack, ReloadRequest() as reload_request:
        listener: socket.socket | None = None
        is_running = True
        while is_running:
            settings = config.of(PortalSettings)
            with (
                services.open_reporting(config) as reporting,
                _open_app(reporting, environment, services.beside) as app,
            ):
                if listener is None:
                    listener = stack.enter_context(open_listener(settings.listen_address))
                    shown = _shown_address(settings, listener.getsockname())
                    logger.info("listening", extra=fields(address=shown))
                    ready(shown)
                _serve(app, settings, listener, reload_request)
            is_running = reload_request.take()
            if is_running:
                config = _load_again(config, load, services)
    logger.info("stopped")
    return 0


@dataclass(frozen=True, slots=True)
class _Services:
    """Hold what stays the same when the configuration is loaded again."""

    environment: Mapping[str, str]
    series: SeriesSource | None
    accounting: JobAccounting | None
    beside: Companion

    def open_reporting(self, config: Config) -> AbstractContextManager[Reporting]:
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
    open_munge(config, {})


def _load_again(config: Config, load: Callable[[], Config] | None, services: _Services) -> Config:
    """Return the new configuration, or the one in force if the new one cannot be used."""
    if load is None:
        logger.warning("SIGHUP does not reload the configuration here; restart to change it")
        return config
    try:
        loaded = load()
        _check_settings(loaded)
        with services.open_reporting(loaded):
            pass
    except SlurmscopeError as error:
        logger.error("configuration not reloaded", extra=fields(error=str(error)))
        return config
    configure_log(loaded)
    logger.info("configuration reloaded")
    if loaded.of(PortalSettings).listen_address != config.of(PortalSettings).listen_address:
        logger.warning("a change of portal.listen-address needs a restart")
    return loaded


@contextmanager
def _open_app(reporting: Reporting, environment: Mapping[str, str], beside: Companion) -> Iterator[CountedApp]:
    """Start the reporter, and build the application that serves its archive."""
    from slurmscope.store.archive.advice_reader import SqlAdviceReader
    from slurmscope.store.archive.audit import AuditLog
    from slurmscope.store.archive.checkpoints import Checkpoints
    from slurmscope.store.archive.staff import SqlSavedViews, SqlStaffNotes
    from slurmscope.store.archive.tokens import TokenStore

    archive, config = reporting.archive, reporting.config
    if archive is None:
        raise ConfigError("the portal needs an archive: set it with --archive.url")
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    coordinators = CoordinatedAccounts(lambda user: read_coordinated(commands.run, user))
    settings, reporter_settings = config.of(PortalSettings), config.of(ReporterSettings)
    checkpoints = Checkpoints(archive.database)
    reporter = Reporter(reporting.accounting, reporting.maker, archive, checkpoints, reporter_settings)
    identifier = Identifier(
        settings,
        TokenStore(archive.database).find,
        coordinators,
        SignInLimits(),
        munge=open_munge(config, environment),
    )
    visibility = JobVisibility(commands.run, CONTROLLER)
    readings = _make_readings(config, commands, visibility)
    cluster = ClusterState(*readings)
    waiting_times = WaitingTimesCache(archive)
    scripts = ScriptReader(commands.run)
    scripts.is_stored()  # for the first page
    waiting = make_waiting_readings(commands, visibility, *readings)
    for reading in (*readings, waiting.readings[0]):
        reading.request()  # for the first page
    top_clients = make_reading(reporting)
    find_problems = (
        reporting.outages.messages,
        coordinators.problems,
        beside.problems,
        lambda: _reporter_problems(reporter),
        cluster.problems,
        # A site that reads jobs from slurmrestd may have no commands here; lists then have archived jobs only.
        waiting.problems if config.of(SlurmSettings).backend != "rest" else tuple,
    )
    backend = PortalBackend(
        settings=settings,
        archive=archive,
        opt_outs=checkpoints,
        # A new secret at each start: older forms are rejected once, with the advice to reload the page.
        csrf=Csrf(secrets.token_bytes(32), is_by_token=identifier.is_by_token),
        identify=identifier.identify,
        find_report=reporting.finder.report,
        add_resubmission=partial(add_resubmission, archive, waiting_times),
        read_script=beside.scripts or scripts.read,
        stores_scripts=(lambda: True) if beside.scripts else scripts.is_stored,
        now=cluster.now,
        problems=lambda: tuple(dict.fromkeys(problem for find in find_problems for problem in find())),
        audit=AuditLog(archive.database).audit,
        find_uid=_find_uid,
        cluster_charts=beside.charts,
        top_clients=find_top_clients(top_clients),
        waiting=waiting.queue,
        waiting_times=waiting_times.find,
        queue_facts=waiting.facts,
        advice=SqlAdviceReader(archive.database),
        notes=SqlStaffNotes(archive.database),
        views=SqlSavedViews(archive.database),
        node_events=open_node_history(commands.run),
    )
    metrics = PortalMetrics(
        requests=RequestCounts(),
        progress=lambda: reporter.progress,
        query_counters=reporting.query_counters,
        readings={reading.name: reading for reading in (*readings, *waiting.readings, *filter(None, (top_clients,)))},
    )
    with open_reporter_loop(reporter, reporter_settings.interval):
        yield _make_app(backend, metrics, beside, config.of(MailSettings).portal_url)


def _reporter_problems(reporter: Reporter) -> Iterator[str]:
    if problem := reporter.progress.problem:
        yield f"Jobs are not being updated, and those shown as running may have ended: {problem}"


def require_portal() -> None:
    """Import the web packages, before files are created or threads started; raise if the extra is missing."""
    try:
        importlib.import_module("slurmscope.portal.app")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("slurmscope"):
            raise
        raise MissingExtraError("the portal", "portal") from error


def _make_app(backend: PortalBackend, metrics: PortalMetrics, beside: Companion, portal_url: str) -> CountedApp:
    from slurmscope.portal.app import make_app
    from slurmscope.services.portal.metrics_page import add_metrics_page

    app = make_app(backend, portal_url=portal_url)
    add_metrics_page(app, lambda: (*metrics.families(), *beside.families()))
    return CountedApp(app, metrics.requests)


def _make_readings(
    config: Config, commands: SlurmCommands, visibility: JobVisibility
) -> tuple[SharedReading, SharedReading]:
    backend = open_backend(config.of(SlurmSettings), commands)
    no_starts = StartWindow(0, 0)
    read_jobs = require_all_jobs(lambda: backend.read_jobs(no_starts, time.time()), visibility)
    return (
        SharedReading("jobs", read_jobs, interval_seconds=NOW_SECONDS),
        SharedReading("nodes", backend.read_nodes, interval_seconds=NOW_SECONDS),
    )


def _shown_address(settings: PortalSettings, bound: object) -> str:
    address = settings.listen_address
    if address.socket_path:
        return str(address)
    port = bound[1] if isinstance(bound, tuple) else address.port
    host = address.host or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}/"


def _find_uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None
