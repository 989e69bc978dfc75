# SPDX-License-Identifier: Apache-2.0
"""Open everything that job reports are made from, as configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.config import Config
from slurmscope.errors import ConfigError, SlurmscopeError, SourceError
from slurmscope.model.job_record import JobAccounting
from slurmscope.model.report import JobReport
from slurmscope.model.series import SeriesSource
from slurmscope.model.viewer import EVERYTHING
from slurmscope.services.reporting.cluster_checks import require_cluster_label
from slurmscope.services.reporting.finding.known_clusters import KnownClusters
from slurmscope.services.reporting.finding.report_finder import Outages, ReportFinder
from slurmscope.services.reporting.finding.resubmitting import add_resubmission
from slurmscope.services.reporting.finding.waiting_cache import WaitingTimesCache
from slurmscope.services.reporting.making.node_sizes import NodeSizes
from slurmscope.services.reporting.making.own_series import OwnSeries
from slurmscope.services.reporting.making.report_maker import ReportMaker
from slurmscope.services.reporting.rule_settings import thresholds_of
from slurmscope.sources.accounting.opening import open_accounting
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.prometheus.query_counters import QueryCounters
from slurmscope.sources.prometheus.settings import PrometheusSettings
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.recorder.settings import RecorderSettings

if TYPE_CHECKING:
    from slurmscope.sources.prometheus.series import QueryClient
    from slurmscope.store.archive.archive import SqlArchive

_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Hold the parts; ``archive`` is None where none is readable."""

    config: Config
    archive: SqlArchive | None
    accounting: JobAccounting
    maker: ReportMaker
    finder: ReportFinder
    outages: Outages
    prometheus: QueryClient | None
    """The client for Prometheus queries; None without Prometheus."""
    clusters: Callable[[], tuple[str, ...]] = tuple
    """Return the clusters that have jobs in the archive."""

    @property
    def query_counters(self) -> QueryCounters | None:
        """Return the counters of Prometheus queries; None without Prometheus."""
        return self.prometheus.counters if self.prometheus else None


@contextmanager
def open_reporting(
    config: Config,
    environment: Mapping[str, str],
    *,
    series: SeriesSource | None = None,
    accounting: JobAccounting | None = None,
    is_archiving: bool = False,
    archived_seconds: float = 0.0,
) -> Iterator[Reporting]:
    """Open the parts; ``series`` and ``accounting`` replace the configured sources.

    ``is_archiving`` creates the archive if there is none, and makes accounting fail for users who do not see all jobs.
    ``archived_seconds`` is that of :class:`ReportFinder`.
    """
    with ExitStack() as stack:
        archive = (open_archive if is_archiving else open_known_archive)(config.of(ArchiveSettings))
        if archive:
            stack.callback(archive.close)
        prometheus = None
        if series is None:
            require_cluster_label(config.of(PrometheusSettings), config.of(AccountingSettings))
            series, prometheus = _open_prometheus(config.of(PrometheusSettings))
        commands = SlurmCommands(config.of(SlurmSettings), environment)
        if accounting is None:
            accounting = open_accounting(config.of(AccountingSettings), commands.run, must_see_all=is_archiving)
        maker = ReportMaker(series, thresholds=thresholds_of(config), node_sizes=NodeSizes(commands.run))
        outages, clusters = Outages(), KnownClusters(archive)
        yield Reporting(
            config=config,
            archive=archive,
            accounting=accounting,
            maker=maker,
            finder=ReportFinder(
                archive, accounting, maker, outages, archived_seconds=archived_seconds, clusters=clusters
            ),
            clusters=clusters,
            outages=outages,
            prometheus=prometheus,
        )


def read_report(config: Config, environment: Mapping[str, str], job_id: str, *, cluster: str = "") -> JobReport | None:
    """Return the newest run of a job; None when there is no such job.

    Raises SourceError or ArchiveError when the job was not found and a source could not be read.
    """
    with open_reporting(config, environment, series=open_recorded(config, environment)) as reporting:
        report = reporting.finder.report(EVERYTHING, job_id, cluster)
        if report:
            report = add_resubmission(reporting.archive, WaitingTimesCache(reporting.archive), EVERYTHING, report)
        outages = reporting.outages.messages()
    if report is None and outages:
        raise SourceError(f"job {job_id} was not found: {'; '.join(outages)}")
    return report


def read_clusters(config: Config) -> tuple[str, ...]:
    """Return the clusters that have jobs in the archive; none without an archive that this user can read."""
    try:
        archive = open_known_archive(config.of(ArchiveSettings))
        if archive is None:
            return ()
        with closing(archive):
            return archive.clusters()
    except SlurmscopeError:
        return ()


def open_recorded(config: Config, environment: Mapping[str, str]) -> SeriesSource | None:
    """Return the samples that ``slurmscope up`` records on this host; None with Prometheus or without such a file."""
    settings = config.of(RecorderSettings)
    if config.of(PrometheusSettings).url is not None or not is_readable_file(settings.file):
        return None
    from slurmscope.store.recorder.series import RecorderSeries

    recorded = RecorderSeries(settings.file, interval_seconds=settings.interval)
    return OwnSeries(recorded, SlurmCommands(config.of(SlurmSettings), environment).run)


def open_known_archive(settings: ArchiveSettings) -> SqlArchive | None:
    """Open an archive without creating or migrating one; None for a file that does not exist or is not readable."""
    path = sqlite_path(settings.url)
    if path is not None and not is_readable_file(path):
        return None
    return open_archive(settings, may_migrate=False)


def no_archive(settings: ArchiveSettings) -> ConfigError:
    """Return the error for commands that need an archive."""
    return ConfigError(
        f"there is no readable archive at {settings.url}: run this as the portal's user after the portal has created "
        "it, or choose another with --archive.url"
    )


def sqlite_path(url: str) -> Path | None:
    """Return the file of an archive; None if it is in a database server."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def is_readable_file(path: Path) -> bool:
    """Return whether this user can open a file."""
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False


def _open_prometheus(settings: PrometheusSettings) -> tuple[SeriesSource | None, QueryClient | None]:
    if settings.url is None:
        return None, None
    from slurmscope.sources.prometheus.client import Prometheus
    from slurmscope.sources.prometheus.series import PrometheusSeries

    client = Prometheus(settings)
    return PrometheusSeries(client, settings), client
