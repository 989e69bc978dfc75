# SPDX-License-Identifier: Apache-2.0
"""Open what the pages use: archive, reports, clusters, sign-in, and what is stored for users and staff."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.archive.access import AuditLog, TokenStore
from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.interface import Archive
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.cluster.backends import open_backend
from slurmscope.core.errors import SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.jobs.findings import judge
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.checks import LateReporters, MixedClusters
from slurmscope.portal.filesystems import make_reading
from slurmscope.portal.live import LiveClusters
from slurmscope.portal.node_list import make_suspects_reading
from slurmscope.portal.nodes import NodeHistory, open_node_history
from slurmscope.portal.run import UpParts
from slurmscope.portal.scope import Scope
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.coordinators import CoordinatedAccounts, CoordinatedClusters
from slurmscope.portal.sign_in.csrf import Csrf, FormKey
from slurmscope.portal.sign_in.identity import Identifier, ViewAs, find_uid, limit_failures
from slurmscope.portal.sign_in.munge import open_munge
from slurmscope.portal.zoom import Zoomer
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.reporter.reporters import Reporters
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.find import KnownClusters, ReportFinder
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import Judge
from slurmscope.reports.scripts import JobScripts, ScriptReader
from slurmscope.reports.sources import Reporting
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinated


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the pages use, from any thread; everything that reads or writes the archive may raise ``ArchiveError``."""

    settings: PortalSettings
    archive: Archive
    archived_clusters: KnownClusters
    finder: ReportFinder
    zoomer: Zoomer
    wait_times: WaitingTimesCache
    scripts: JobScripts
    judge: Judge = judge
    """Return what the rules find in a job, with the thresholds of the site."""
    advice: SqlAdviceReader
    live: LiveClusters
    node_history: NodeHistory
    suspects: SharedReading
    """Nodes on which jobs fail or are slow."""
    filesystems: SharedReading | None
    """Who uses each shared file system most; None without Prometheus."""
    charts: ClusterCharts | None
    """Charts of the last 24 hours of this host's cluster; None where they are not recorded here."""
    opt_outs: Checkpoints
    notes: SqlStaffNotes
    views: SqlSavedViews
    identifier: Identifier
    view_as: ViewAs | None = None
    """Who can be chosen in a demo; None in every other portal."""
    csrf: Csrf
    audit_log: AuditLog
    problem_sources: tuple[Callable[[], Iterable[str]], ...] = ()
    """Each returns a message for every current failure, without waiting."""
    find_uid: Callable[[str], int | None] = find_uid
    clock: Callable[[], float] = time.time

    def identify(self, scope: Scope) -> Viewer:
        """Return the viewer of a request; may raise ``SignInError``."""
        return (self.view_as or self.identifier).identify(scope)

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that have jobs in the archive or are read now; a new one has no job yet."""
        return tuple(sorted({*self.archived_clusters(), *self.live.names()}))

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each server that is currently failing."""
        return tuple(dict.fromkeys(problem for source in self.problem_sources for problem in source()))


def open_services(
    reporting: Reporting,
    archive: SqlArchive,
    environment: Mapping[str, str],
    *,
    up: UpParts,
    reporters: Reporters | None,
    mixed_clusters: MixedClusters,
) -> Services:
    """Open the services of a portal; ``reporters`` is None in one that only serves pages."""
    config, database = reporting.config, archive.database
    commands, checkpoints = SlurmCommands(config.of(SlurmSettings), environment), Checkpoints(database)
    coordinators = CoordinatedAccounts(lambda user: read_coordinated(commands.run, user))
    identifier = _open_identifier(reporting, archive, coordinators, environment)
    live, scripts = _open_live(reporting, commands, reporters), ScriptReader(commands.run)
    scripts.is_stored()  # for the first page
    services = Services(
        settings=config.of(PortalSettings),
        archive=archive,
        archived_clusters=reporting.clusters,
        finder=reporting.finder,
        zoomer=Zoomer(reporting.maker.series, is_own=partial(_has_own_series, reporting)),
        wait_times=WaitingTimesCache(archive),
        scripts=up.scripts or scripts,
        judge=reporting.maker.judge,
        advice=SqlAdviceReader(database),
        live=live,
        node_history=open_node_history(commands.run),
        suspects=make_suspects_reading(archive, time.time),
        filesystems=make_reading(reporting, up.filesystems),
        charts=up.charts,
        opt_outs=checkpoints,
        notes=SqlStaffNotes(database),
        views=SqlSavedViews(database),
        identifier=identifier,
        view_as=ViewAs(up.demo_views, identifier.identify) if up.demo_views else None,
        csrf=Csrf(FormKey(checkpoints.create_checkpoint).read, is_by_token=identifier.is_by_token),
        audit_log=AuditLog(database),
        problem_sources=(
            reporting.outages.problems,
            coordinators.problems,
            up.problems,
            LateReporters(checkpoints.list_checkpoints, config.of(ReporterSettings), reporters).problems,
            mixed_clusters.problems,
            live.problems,
        ),
    )
    reporting.finder.know_clusters(services.clusters)
    return services


def _open_identifier(
    reporting: Reporting, archive: SqlArchive, coordinators: CoordinatedAccounts, environment: Mapping[str, str]
) -> Identifier:
    return Identifier(
        reporting.config.of(PortalSettings),
        TokenStore(archive.database).find,
        coordinators,
        limit_failures(),
        munge=open_munge(reporting.config, environment),
        coordinated_clusters=CoordinatedClusters(reporting.accounting.clusters, reporting.clusters),
    )


def _open_live(reporting: Reporting, commands: SlurmCommands, reporters: Reporters | None) -> LiveClusters:
    """Read the clusters whose jobs are archived here, as far as they are known."""
    config = reporting.config
    settings, accounting = config.of(SlurmSettings), config.of(AccountingSettings)
    return LiveClusters(
        commands.run,
        open_backend(settings, commands),
        lambda: reporters.clusters if reporters else accounting.clusters,
        has_commands=settings.backend != "rest",
    )


def _has_own_series(reporting: Reporting, cluster: str) -> bool:
    """Return whether series of a job ID can only be those of this cluster's job; another cluster has the same IDs."""
    if reporting.config.of(PrometheusSettings).cluster_label:
        return True
    try:
        return tuple(reporting.accounting.clusters()) == (cluster,)
    except SourceError:
        return False
