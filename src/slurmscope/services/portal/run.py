# SPDX-License-Identifier: Apache-2.0
"""Run the portal, and the reporter that fills its archive, in one process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from slurmscope.config import Config
from slurmscope.errors import ConfigError, MissingExtraError
from slurmscope.log import fields
from slurmscope.metrics.family import Family
from slurmscope.model.job_record import JobAccounting
from slurmscope.model.report import Chart
from slurmscope.model.series import SeriesSource
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.portal.sign_in.coordinated_accounts import CoordinatedAccounts
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.sign_in.limits import SignInLimits
from slurmscope.portal.web.server import make_server, open_listener
from slurmscope.services.exporter.exporter import configure_log
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.portal.backend import LivePortalBackend
from slurmscope.services.portal.metrics import PortalReport
from slurmscope.services.portal.request_metrics import CountedApp, RequestCounts
from slurmscope.services.reporting.opening import Reporting, open_reporting
from slurmscope.services.reporting.reporter import Reporter, ReporterSettings, open_reporter_loop
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.services.runtime.memory import PAGE_OBJECTS, settle_memory
from slurmscope.sources.slurm.backends import open_backend
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.sources.slurm.coordinators import read_coordinated
from slurmscope.sources.slurm.squeue import StartWindow

logger = logging.getLogger(__name__)

NOW_SECONDS = 30.0
"""How old queue and nodes on a page may be before they are asked for again."""
THREAD_TURN_SECONDS = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Tell how something else in this process does: by metrics, and by sentences for the banner of every page.

    ``charts`` draws the last day of the cluster where that is recorded.
    """

    families: Callable[[], Iterable[Family]] = tuple
    problems: Callable[[], Iterable[str]] = tuple
    charts: Callable[[], tuple[Chart, ...]] = tuple


def run_portal(
    config: Config,
    environment: Mapping[str, str],
    *,
    series: SeriesSource | None = None,
    accounting: JobAccounting | None = None,
    beside: Companion | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM or SIGINT; ``ready`` is called with the address when pages can be opened.

    ``beside`` is for whoever runs more in this process than the portal.
    """
    configure_log(config)
    require_portal()
    settle_memory(PAGE_OBJECTS)
    beside = beside or Companion()
    settings = config.of(PortalSettings)
    check_settings(settings)
    with (
        open_reporting(
            config,
            environment,
            series=series,
            accounting=accounting,
            may_create=True,
            archived_seconds=2 * config.of(ReporterSettings).interval,
        ) as reporting,
        open_desk(reporting, environment, beside) as desk,
        open_listener(settings.listen_address) as listener,
    ):
        # Short turns for threads: a page of a few milliseconds must not queue behind those that make a large report.
        sys.setswitchinterval(THREAD_TURN_SECONDS)
        app = _make_counted_app(desk, beside.families, config.of(MailSettings).portal_url)
        server = make_server(app, settings)
        shown = _shown_address(settings, listener.getsockname())
        logger.info("listening", extra=fields(address=shown))
        ready(shown)
        asyncio.run(server.serve(sockets=[listener]))
    logger.info("stopped")
    return 0


@contextmanager
def open_desk(reporting: Reporting, environment: Mapping[str, str], beside: Companion) -> Iterator[LivePortalBackend]:
    """Start the reporter, and return what stands behind the portal."""
    from slurmscope.store.archive.audit import AuditLog
    from slurmscope.store.archive.checkpoints import Checkpoints
    from slurmscope.store.archive.tokens import TokenStore

    archive, config = reporting.archive, reporting.config
    if archive is None:
        raise ConfigError("the portal needs an archive: name it with --archive.url")
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    coordinators = CoordinatedAccounts(lambda user: read_coordinated(commands.run, user))
    settings, rhythm = config.of(PortalSettings), config.of(ReporterSettings)
    database = archive.database
    checkpoints = Checkpoints(database)
    reporter = Reporter(reporting.accounting, reporting.maker, archive, checkpoints, rhythm)
    identifier = Identifier(settings, TokenStore(database), coordinators, SignInLimits())
    readings = _readings(config, commands)
    for reading in readings:
        reading.request()  # so that the first page has them
    metrics = PortalReport(
        requests=RequestCounts(),
        progress=lambda: reporter.progress,
        ledger=reporting.ledger,
        readings={reading.name: reading for reading in readings},
    )
    with open_reporter_loop(reporter, rhythm.interval):
        yield LivePortalBackend(
            settings=settings,
            identifier=identifier,
            archive=archive,
            letters=checkpoints,
            # A new secret at each start: a form from before is refused once, with the advice to load its page again.
            csrf=Csrf(secrets.token_bytes(32), is_by_token=identifier.is_by_token),
            desk=reporting.desk,
            audit_trail=AuditLog(database),
            readings=readings,
            metrics=metrics,
            problems=(
                reporting.troubles.sentences,
                coordinators.problems,
                beside.problems,
                lambda: [reporter.progress.problem] if reporter.progress.problem else [],
            ),
            charts=beside.charts,
        )


def require_portal() -> None:
    """Import what pages need, before a file is made or a thread started; say which extra is missing."""
    try:
        importlib.import_module("slurmscope.portal.app")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("slurmscope"):
            raise
        raise MissingExtraError("the portal", "portal") from error


def _make_counted_app(
    desk: LivePortalBackend, own_families: Callable[[], Iterable[Family]], portal_url: str
) -> CountedApp:
    from slurmscope.portal.app import make_app
    from slurmscope.services.portal.metrics_page import add_metrics_page

    app = make_app(desk, portal_url=portal_url)
    add_metrics_page(app, lambda: (*desk.metrics.families(), *own_families()))
    return CountedApp(app, desk.metrics.requests)


def _readings(config: Config, commands: SlurmCommands) -> tuple[SharedReading, SharedReading]:
    backend = open_backend(config.of(SlurmSettings), commands)
    nothing_new = StartWindow(0, 0)
    return (
        SharedReading("jobs", lambda: backend.read_jobs(nothing_new, time.time()), interval_seconds=NOW_SECONDS),
        SharedReading("nodes", backend.read_nodes, interval_seconds=NOW_SECONDS),
    )


def _shown_address(settings: PortalSettings, bound: object) -> str:
    address = settings.listen_address
    if address.socket_path:
        return str(address)
    port = bound[1] if isinstance(bound, tuple) else address.port
    host = address.host or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}/"
