# SPDX-License-Identifier: Apache-2.0
"""Open everything that reports of jobs are made from, as the settings say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.config import Config
from slurmscope.errors import ConfigError
from slurmscope.model.job_record import JobAccounting
from slurmscope.model.series import SeriesSource
from slurmscope.services.reporting.outages import Outages
from slurmscope.services.reporting.report_maker import ReportMaker
from slurmscope.services.reporting.reports import ReportFinder
from slurmscope.services.reporting.rule_settings import thresholds_of
from slurmscope.sources.accounting.opening import open_accounting
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.prometheus.query_counters import QueryCounters
from slurmscope.sources.prometheus.settings import PrometheusSettings
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from slurmscope.store.archive.archive import SqlArchive

_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Hold the parts; ``archive`` is None where there is none to read."""

    config: Config
    archive: SqlArchive | None
    accounting: JobAccounting
    maker: ReportMaker
    desk: ReportFinder
    troubles: Outages
    ledger: QueryCounters | None
    """What questions to Prometheus cost; None where none is asked."""


@contextmanager
def open_reporting(
    config: Config,
    environment: Mapping[str, str],
    *,
    series: SeriesSource | None = None,
    accounting: JobAccounting | None = None,
    may_create: bool = False,
    archived_seconds: float = 0.0,
) -> Iterator[Reporting]:
    """Open the parts; ``series`` and ``accounting`` stand in for what the settings name.

    ``may_create`` makes a new archive; otherwise a file that is not there is no archive. ``archived_seconds`` is that
    of :class:`ReportFinder`.
    """
    with ExitStack() as stack:
        archive = (open_archive if may_create else open_known_archive)(config.of(ArchiveSettings))
        if archive:
            stack.callback(archive.close)
        ledger = None
        if series is None:
            series, ledger = _open_prometheus(config.of(PrometheusSettings))
        if accounting is None:
            commands = SlurmCommands(config.of(SlurmSettings), environment)
            accounting = open_accounting(config.of(AccountingSettings), commands.run)
        maker = ReportMaker(series, thresholds=thresholds_of(config))
        troubles = Outages()
        yield Reporting(
            config=config,
            archive=archive,
            accounting=accounting,
            maker=maker,
            desk=ReportFinder(archive, accounting, maker, troubles, archived_seconds=archived_seconds),
            troubles=troubles,
            ledger=ledger,
        )


def open_known_archive(settings: ArchiveSettings) -> SqlArchive | None:
    """Open an archive without making one: a file that is not there, or cannot be read, is None."""
    if settings.url.startswith(_SQLITE) and not _is_there(settings.url):
        return None
    return open_archive(settings)


def no_archive(settings: ArchiveSettings) -> ConfigError:
    """Say where an archive was looked for, for those who cannot do without one."""
    return ConfigError(
        f"there is no archive to read at {settings.url}: run this as the portal's user after the portal has made it, "
        "or name another with --archive.url"
    )


def _is_there(url: str) -> bool:
    try:
        with Path(url.removeprefix(_SQLITE)).open("rb"):
            return True
    except OSError:
        return False


def _open_prometheus(settings: PrometheusSettings) -> tuple[SeriesSource | None, QueryCounters | None]:
    if settings.url is None:
        return None, None
    from slurmscope.sources.prometheus.client import Prometheus
    from slurmscope.sources.prometheus.series import PrometheusSeries

    client = Prometheus(settings)
    return PrometheusSeries(client, settings), client.counters
