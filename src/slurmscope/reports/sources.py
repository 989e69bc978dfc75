# SPDX-License-Identifier: Apache-2.0
"""Open everything that job reports are made from, as configured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.accounting.sacct import open_accounting
from slurmscope.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.check import Check
from slurmscope.core.config import Config, ExtensionSettings
from slurmscope.core.errors import ConfigError, MalformedAnswer, MissingExtraError, SlurmscopeError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, SeriesQuery, SeriesSource
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reports.carbon import EnergySettings, open_site
from slurmscope.reports.find import KnownClusters, Outages, ReportFinder
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import NodeSizes
from slurmscope.reports.settings import thresholds_of
from slurmscope.reports.site_rules import site_rules, site_sections
from slurmscope.slurm.cluster_names import ClusterNames, read_own_name, run_in_cluster
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings
from slurmscope.slurm.config import read_config

if TYPE_CHECKING:
    from slurmscope.archive.access import AuditLog, TokenStore
    from slurmscope.archive.sql_archive import SqlArchive
    from slurmscope.prometheus.series import QueryClient


class OwnSeries:
    """Read series of one cluster; safe to use from any thread if the source is."""

    def __init__(self, source: SeriesSource, run: RunCommand) -> None:
        """Take the source, and what runs a command of Slurm."""
        self._source = source
        self._own = ClusterNames(lambda: (read_own_name(run),))

    @property
    def max_concurrent_queries(self) -> int:
        return self._source.max_concurrent_queries

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves; none for jobs of another cluster."""
        is_own = self._is_own(wanted)
        return self._source.read_curves(wanted, spans, points=points, until=until) if is_own else Curves()

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return totals; none for jobs of another cluster."""
        return self._source.read_totals(wanted, spans, until=until) if self._is_own(wanted) else JobTotals()

    def _is_own(self, wanted: SeriesQuery) -> bool:
        """Return whether the jobs are of this host's cluster; raise SourceError while its name is not known."""
        return wanted.cluster in self._own.get()


ACTIVE_SECONDS = 7 * DAY_SECONDS
ADVICE = (
    "set prometheus.cluster-label to the label with the name of the cluster, or give each cluster a portal of its "
    "own with prometheus.matchers: docs/scaling.md"
)

CONTROLLER_ADVICE = (
    "pages show no nodes and no pending jobs of this cluster: check that its slurmctld runs, that this host can "
    "connect to the ControlHost and ControlPort that sacctmgr list clusters prints, and that both share a munge key"
)


def require_cluster_label(settings: PrometheusSettings, accounting: AccountingSettings) -> None:
    """Raise ConfigError if several clusters are configured whose series cannot be distinguished."""
    if settings.url is not None and not settings.cluster_label and len(accounting.clusters) > 1:
        names = ", ".join(accounting.clusters)
        raise ConfigError(f"job IDs of {names} repeat, and their series would be added up; {ADVICE}")


def require_one_cluster(accounting: AccountingSettings) -> None:
    if len(accounting.clusters) > 1 or accounting.clusters == (ALL_CLUSTERS,):
        raise ConfigError("slurmscope up records the jobs of one cluster; name one in accounting.clusters, or none")


def check_controller(run: RunCommand, cluster: str) -> Check:
    """Check that the controller of another cluster responds to commands with -M, and is the one of that cluster."""
    name = f"controller of {cluster}"
    try:
        found = read_config(run_in_cluster(run, cluster)).cluster_name.lower()
        if found != cluster:
            raise MalformedAnswer(
                f"the controller that slurmdbd names for {cluster} is that of {found or 'no cluster'}"
            )
    except SlurmscopeError as error:
        return Check(name=name, is_good=False, message=str(error), advice=CONTROLLER_ADVICE)
    return Check(name=name, is_good=True, message="it answers")


def find_active_clusters(checkpoints: Mapping[str, str], now: float) -> tuple[str, ...]:
    """Return the clusters that were read lately, given the checkpoints by cluster; others no longer exist."""
    since = now - ACTIVE_SECONDS
    return tuple(sorted(name for name, text in checkpoints.items() if text.isdecimal() and int(text) >= since))


def find_mixed_clusters(settings: PrometheusSettings, read: Sequence[str], archived: Iterable[str] = ()) -> str:
    """Return a message if series of several clusters may be added up; empty if not.

    ``read`` are the clusters whose jobs are read here, ``archived`` those that other portals archive, perhaps from a
    Prometheus of their own.
    """
    if settings.url is None or settings.cluster_label or (len(read) < 2 and settings.matchers):
        return ""
    names = sorted({*read, *archived})
    if len(names) < 2:
        return ""
    return f"jobs of {', '.join(names)} may have equal IDs, whose series in one Prometheus are added up"


def open_archive(settings: ArchiveSettings) -> SqlArchive:
    """Return the archive of these settings; close it in the end.

    Nothing is read or written before the first query, so an unreachable server does not prevent a start.
    """
    try:
        from slurmscope.archive.engine import Database
        from slurmscope.archive.sql_archive import SqlArchive
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("slurmscope"):
            raise
        raise MissingExtraError("the archive of jobs", "reports") from error
    return SqlArchive(Database(settings))


_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """The parts; ``archive`` is None where none is readable."""

    config: Config
    archive: SqlArchive | None
    accounting: JobAccounting
    maker: ReportMaker
    finder: ReportFinder
    clusters: KnownClusters
    """The clusters that have jobs in the archive."""
    outages: Outages
    prometheus: QueryClient | None
    """The client for Prometheus queries; None without Prometheus."""

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
        maker = ReportMaker(
            series,
            thresholds=thresholds_of(config),
            rules=site_rules(config.of(ExtensionSettings).load),
            sections=site_sections(config.of(ExtensionSettings).load),
            node_sizes=NodeSizes(commands.run),
            site=open_site(config.of(EnergySettings)),
        )
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
    from slurmscope.recorder.series import RecorderSeries

    recorded = RecorderSeries(settings.file, interval_seconds=settings.interval)
    return OwnSeries(recorded, SlurmCommands(config.of(SlurmSettings), environment).run)


def open_known_archive(settings: ArchiveSettings) -> SqlArchive | None:
    """Open an archive without creating a file; None for a file that does not exist or is not readable."""
    path = sqlite_path(settings.url)
    if path is not None and not is_readable_file(path):
        return None
    return open_archive(settings)


def no_archive(settings: ArchiveSettings) -> ConfigError:
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
    from slurmscope.prometheus.client import Prometheus
    from slurmscope.prometheus.series import PrometheusSeries

    client = Prometheus(settings)
    return PrometheusSeries(client, settings), client


@contextmanager
def open_tokens(config: Config) -> Iterator[TokenStore]:
    with closing(open_existing_archive(config)) as archive:
        from slurmscope.archive.access import TokenStore

        yield TokenStore(archive.database)


@contextmanager
def open_audit_log(config: Config) -> Iterator[AuditLog]:
    with closing(open_existing_archive(config)) as archive:
        from slurmscope.archive.access import AuditLog

        yield AuditLog(archive.database)


def open_existing_archive(config: Config) -> SqlArchive:
    """Open an existing archive; a new one, most often created as root, would not be accessible to the portal."""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        raise no_archive(settings)
    return archive
