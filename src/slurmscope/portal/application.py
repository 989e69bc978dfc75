# SPDX-License-Identifier: Apache-2.0
"""Build the portal's application from the configured services, and run the reporter in the same process."""

from __future__ import annotations

import logging
import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.archive.access import AuditLog, TokenStore
from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.core.clock import run_periodically
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, SourceError
from slurmscope.core.log import fields
from slurmscope.portal.app import make_app
from slurmscope.portal.backend import (
    ClusterServices,
    Companion,
    JobServices,
    PeopleServices,
    PortalBackend,
    QueueServices,
    SignIn,
)
from slurmscope.portal.checks import LateReporters
from slurmscope.portal.metrics import CountedApp, PortalMetrics, RequestCounts, add_metrics_page
from slurmscope.portal.nodes import open_node_history
from slurmscope.portal.readings import PortalReadings, find_top_clients, make_readings
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.coordinators import CoordinatedAccounts, CoordinatedClusters
from slurmscope.portal.sign_in.csrf import Csrf, FormKey
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.sign_in.munge import open_munge
from slurmscope.portal.sign_in.tokens import limit_failures
from slurmscope.portal.sign_in.view_as import ViewAs
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT
from slurmscope.reporter.reporters import Candidate, Reporters
from slurmscope.reporter.settings import ReporterSettings
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.scripts import ScriptReader
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import ADVICE, Reporting, find_active_clusters, find_mixed_clusters
from slurmscope.reports.zoom import Zoomer
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinated

logger = logging.getLogger(__name__)


REFRESH_SECONDS = 300.0


class MixedClusters:
    """Hold the warning, which ``refresh`` updates: no page waits for Slurm."""

    def __init__(
        self,
        settings: PrometheusSettings,
        read: Callable[[], Sequence[str]],
        list_checkpoints: Callable[[], Mapping[str, str]],
    ) -> None:
        """Take what reads the clusters of accounting, and the checkpoints of all archived clusters by name."""
        self._settings = settings
        self._read = read
        self._list_checkpoints = list_checkpoints
        self._names: Sequence[str] = ()
        self._logged = ""

    def refresh(self) -> None:
        """Read the clusters again, and log a warning if it is a new one; may raise ``ArchiveError``."""
        # First, so that a new archive is created also where Slurm does not answer.
        active = find_active_clusters(self._list_checkpoints(), time.time())
        with suppress(SourceError):  # the reporters, and pages that read jobs, report it
            self._names = self._read()
        mixed = find_mixed_clusters(self._settings, self._names, active)
        if mixed and mixed != self._logged:
            logger.warning("numbers may be wrong", extra=fields(reason=mixed, advice=ADVICE))
        self._logged = mixed

    def problems(self) -> Iterator[str]:
        """Yield a message for pages if jobs of several clusters are read here.

        Those that only the archive has may be measured by other portals, from a Prometheus of their own.
        """
        if mixed := find_mixed_clusters(self._settings, self._names):
            yield f"Numbers may be wrong: {mixed}; {ADVICE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Hold what the services of the pages are made of."""

    config: Config
    environment: Mapping[str, str]
    reporting: Reporting
    archive: SqlArchive
    commands: SlurmCommands
    coordinators: CoordinatedAccounts
    reporters: Reporters | None
    """None in a portal that only serves pages."""
    checkpoints: Checkpoints
    mixed_clusters: MixedClusters
    readings: PortalReadings
    waiting_times: WaitingTimesCache
    beside: Companion


@contextmanager
def open_app(reporting: Reporting, environment: Mapping[str, str], beside: Companion) -> Iterator[CountedApp]:
    """Start the reporter, and build the application that serves its archive."""
    parts = _open_parts(reporting, environment, beside)
    parts.readings.request_first()
    config, reporters = parts.config, parts.reporters
    metrics = PortalMetrics(
        requests=RequestCounts(),
        reporters=reporters,
        query_counters=reporting.query_counters,
        readings={reading.name: reading for reading in parts.readings.all()},
    )
    app = make_app(_make_backend(parts), portal_url=config.of(MailSettings).portal_url)
    add_metrics_page(app, lambda: (*metrics.families(), *beside.families()))
    with (
        run_periodically("clusters", REFRESH_SECONDS, parts.mixed_clusters.refresh),
        reporters.running() if reporters else nullcontext(),
    ):
        yield CountedApp(app, metrics.requests)


def _open_parts(reporting: Reporting, environment: Mapping[str, str], beside: Companion) -> _Parts:
    archive, config = reporting.archive, reporting.config
    if archive is None:
        raise ConfigError("the portal needs an archive: set it with --archive.url")
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    checkpoints = Checkpoints(archive.database)
    reporters = _make_reporters(reporting, archive)
    return _Parts(
        config=config,
        environment=environment,
        reporting=reporting,
        archive=archive,
        commands=commands,
        coordinators=CoordinatedAccounts(lambda user: read_coordinated(commands.run, user)),
        reporters=reporters,
        checkpoints=checkpoints,
        mixed_clusters=MixedClusters(
            config.of(PrometheusSettings),
            reporting.accounting.clusters,
            partial(checkpoints.list_checkpoints, CLUSTER_CHECKPOINT),
        ),
        readings=make_readings(reporting, commands, partial(_find_clusters, config, reporters)),
        waiting_times=WaitingTimesCache(archive),
        beside=beside,
    )


def _make_reporters(reporting: Reporting, archive: SqlArchive) -> Reporters | None:
    settings = reporting.config.of(ReporterSettings)

    def stand(role: str) -> Candidate:
        election = Election(archive.database, role)
        return Candidate(election, SqlArchive(election.database), Checkpoints(election.database))

    return Reporters(reporting.accounting, reporting.maker, stand, settings) if settings.enabled else None


def _find_clusters(config: Config, reporters: Reporters | None) -> tuple[str, ...]:
    """Return the clusters whose jobs are read, as far as they are known."""
    return reporters.clusters if reporters else config.of(AccountingSettings).clusters


def _make_backend(parts: _Parts) -> PortalBackend:
    live, database = parts.readings.clusters, parts.archive.database
    return PortalBackend(
        settings=parts.config.of(PortalSettings),
        archive=parts.archive,
        sign_in=_make_sign_in(parts),
        jobs=_make_job_services(parts),
        cluster=ClusterServices(
            now=live.now,
            names=live.names,
            own=live.own,
            nodes=live.nodes,
            charts=parts.beside.charts,
            top_clients=find_top_clients(parts.readings.top_clients),
            node_events=open_node_history(parts.commands.run),
        ),
        queue=QueueServices(
            waiting=live.queue,
            others=live.other_queues,
            facts=live.facts,
            waiting_times=parts.waiting_times.find,
        ),
        people=PeopleServices(
            opt_outs=parts.checkpoints,
            find_uid=_find_uid,
            notes=SqlStaffNotes(database),
            views=SqlSavedViews(database),
        ),
        problems=_make_problems(parts),
    )


def _make_sign_in(parts: _Parts) -> SignIn:
    database = parts.archive.database
    identifier = Identifier(
        parts.config.of(PortalSettings),
        TokenStore(database).find,
        parts.coordinators,
        limit_failures(),
        munge=open_munge(parts.config, parts.environment),
        coordinated_clusters=CoordinatedClusters(parts.reporting.accounting.clusters, parts.reporting.clusters),
    )
    views = parts.beside.demo_views
    view_as = ViewAs(views, identifier.identify) if views else None
    return SignIn(
        identify=view_as.identify if view_as else identifier.identify,
        view_as=view_as,
        csrf=Csrf(FormKey(parts.checkpoints.create_checkpoint).read, is_by_token=identifier.is_by_token),
        audit=AuditLog(database).audit,
    )


def _make_job_services(parts: _Parts) -> JobServices:
    scripts, known = ScriptReader(parts.commands.run), parts.beside.scripts
    scripts.is_stored()  # for the first page
    clusters = partial(_list_clusters, parts)
    parts.reporting.finder.know_clusters(clusters)
    return JobServices(
        find_report=parts.reporting.finder.report,
        zoom=Zoomer(parts.reporting.maker.series, is_own=partial(_has_own_series, parts)).zoom,
        clusters=clusters,
        add_resubmission=partial(add_resubmission, parts.archive, parts.waiting_times),
        read_script=known or scripts.read,
        stores_scripts=(lambda _: True) if known else scripts.is_stored,
        advice=SqlAdviceReader(parts.archive.database),
    )


def _list_clusters(parts: _Parts) -> tuple[str, ...]:
    """Return the clusters that have jobs in the archive or are read now; a new one has no job yet."""
    return tuple(sorted({*parts.reporting.clusters(), *parts.readings.clusters.names()}))


def _has_own_series(parts: _Parts, cluster: str) -> bool:
    """Return whether series of a job ID can only be those of this cluster's job; another cluster has the same IDs."""
    if parts.config.of(PrometheusSettings).cluster_label:
        return True
    try:
        return tuple(parts.reporting.accounting.clusters()) == (cluster,)
    except SourceError:
        return False


def _make_problems(parts: _Parts) -> Callable[[], tuple[str, ...]]:
    """Return a function that lists the messages of all failing servers, each once."""
    find_problems: tuple[Callable[[], Iterable[str]], ...] = (
        parts.reporting.outages.messages,
        parts.coordinators.problems,
        parts.beside.problems,
        _make_reporter_problems(parts),
        parts.mixed_clusters.problems,
        parts.readings.problems,
    )
    return lambda: tuple(dict.fromkeys(problem for find in find_problems for problem in find()))


def _make_reporter_problems(parts: _Parts) -> Callable[[], Iterable[str]]:
    """Return a function that says why jobs are not updated, whichever process should do so."""
    reporters = parts.reporters
    late = LateReporters(parts.checkpoints, parts.config.of(ReporterSettings))

    def find() -> Iterator[str]:
        problem = reporters.progress.problem if reporters else ""
        if not problem and not (reporters and all(reporters.elected.values())):
            problem = late.find_problem()
        if problem:
            yield f"Jobs are not being updated, and those shown as running may have ended: {problem}"
        elif reporters and (problem := reporters.progress.series_problem):
            yield f"Jobs are not being measured; they will be when the time series server answers: {problem}"

    return find


def _find_uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None
