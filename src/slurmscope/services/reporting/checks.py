# SPDX-License-Identifier: Apache-2.0
"""Try everything that the portal and reports are made from, and explain what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from slurmscope.analysis.wanted import CURVES
from slurmscope.config import Config
from slurmscope.errors import ConfigError, SlurmscopeError
from slurmscope.model.check import Check
from slurmscope.model.job_record import JobAccounting
from slurmscope.model.series import NODE_LABEL
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.reports.words import format_elapsed, format_time
from slurmscope.services.exporter.doctor import Examination
from slurmscope.services.reporting.opening import open_known_archive
from slurmscope.services.reporting.reporter import CHECKPOINT, WINDOW_SECONDS, ReporterCheckpoints, ReporterSettings
from slurmscope.sources.accounting.opening import open_accounting
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.prometheus.plan import RATE_SCRAPES
from slurmscope.sources.prometheus.settings import PrometheusSettings
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.sources.slurm.coordinators import read_coordinated
from slurmscope.store.archive.settings import ArchiveSettings

PATIENCE_SECONDS = 30.0
HOUR_SECONDS = 3600
MOST_JOBS = 1000
PROBE_USER = "slurmscope"
CPU_TIME = CURVES["cpu"].metric

ADVICE = {
    "settings": "change portal.listen-address, portal.mode or portal.proxy-peers: docs/portal.md",
    "archive": "see that its folder, or its server, is there, and that this user may write to it",
    "reporter": "see that slurmscope portal runs, and what its log says about accounting",
    "accounting": "see that slurmdbd runs and this user may run sacct, or try slurmscope database check",
    "coordinators": "without sacctmgr, coordinators see no more than their own jobs",
    "time series": "see that Prometheus runs, and check prometheus.url, its password or token, and its certificate",
    "node agents": "if jobs run now: let Prometheus scrape slurmscope node on every node; check prometheus.matchers",
    "scrape interval": "set prometheus.scrape-interval to how often Prometheus scrapes the agents: as it is, curves "
    "have holes, and jobs count as not measured",
}


def examine_portal(config: Config, environment: Mapping[str, str]) -> Examination:
    """Ask everybody once, as the portal would."""
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    return Examination(
        checks=(
            _check("settings", lambda: _check_settings(config.of(PortalSettings))),
            *_check_archive(config),
            _check("accounting", lambda: _ask_accounting(open_accounting(config.of(AccountingSettings), commands.run))),
            _check("coordinators", lambda: _ask_coordinators(commands)),
            *_check_series(config.of(PrometheusSettings)),
        )
    )


def _check(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name=name, is_good=True, message=ask())
    except SlurmscopeError as error:
        return Check(name=name, is_good=False, message=str(error), advice=ADVICE[name])


def _check_settings(settings: PortalSettings) -> str:
    check_settings(settings)
    return f"the portal would listen on {settings.listen_address}, in {settings.mode} mode"


def _check_archive(config: Config) -> Iterator[Check]:
    """Read it without making it: a file that we made as another user would keep the portal out."""
    settings = config.of(ArchiveSettings)
    try:
        archive = open_known_archive(settings)
        if archive is None:
            message = f"there is none to read at {settings.url}: the portal makes it when it starts"
            yield Check(name="archive", is_good=False, message=message, advice=ADVICE["archive"])
            return
        from slurmscope.store.archive.checkpoints import Checkpoints

        try:
            read_until = read_progress(Checkpoints(archive.database))
            yield Check(name="archive", is_good=True, message=f"{archive.database.dialect} answers")
            yield check_progress(read_until, time.time(), config.of(ReporterSettings))
        finally:
            archive.close()
    except SlurmscopeError as error:
        yield Check(name="archive", is_good=False, message=str(error), advice=ADVICE["archive"])


def read_progress(checkpoints: ReporterCheckpoints) -> int | None:
    """Return until when accounting was read; None when it never was."""
    text = checkpoints.read_checkpoint(CHECKPOINT)
    return int(text) if text and text.isdecimal() else None


def check_progress(read_until_seconds: int | None, now_seconds: float, settings: ReporterSettings) -> Check:
    """Tell whether jobs are archived as they end: late by more than an hour is not."""
    if read_until_seconds is None:
        return Check(name="reporter", is_good=False, message="no job was archived yet", advice=ADVICE["reporter"])
    behind_seconds = max(0.0, now_seconds - settings.settle - read_until_seconds)
    is_good = behind_seconds < settings.interval + HOUR_SECONDS
    message = f"jobs that ended until {format_time(read_until_seconds)} are archived"
    late = "" if is_good else f", {format_elapsed(behind_seconds)} behind"
    return Check(name="reporter", is_good=is_good, message=message + late, advice="" if is_good else ADVICE["reporter"])


def _ask_accounting(accounting: JobAccounting) -> str:
    now = int(time.time())
    count = sum(1 for _ in islice(accounting.read_ended(now - WINDOW_SECONDS, now), MOST_JOBS))
    return f"tells of {count}{' or more' if count == MOST_JOBS else ''} jobs that ended in the last six hours"


def _ask_coordinators(commands: SlurmCommands) -> str:
    read_coordinated(commands.run, PROBE_USER)
    return "sacctmgr tells who coordinates which accounts"


def _check_series(settings: PrometheusSettings) -> Iterator[Check]:
    if settings.url is None:
        message = (
            "no Prometheus is named: slurmscope portal shows what accounting knows, slurmscope up records by itself"
        )
        yield Check(name="time series", is_good=True, message=message)
        return
    try:
        nodes = count_measured_nodes(settings)
    except SlurmscopeError as error:
        yield Check(name="time series", is_good=False, message=str(error), advice=ADVICE["time series"])
        return
    yield Check(name="time series", is_good=True, message=f"{settings.url} answers")
    message = f"it has numbers of jobs on {nodes} nodes now" if nodes else "it has no number of any job now"
    yield Check(name="node agents", is_good=nodes > 0, message=message, advice="" if nodes else ADVICE["node agents"])
    if nodes:
        yield _check("scrape interval", lambda: _check_interval(settings))


def count_measured_nodes(settings: PrometheusSettings) -> int:
    """Ask Prometheus on how many nodes jobs are measured now."""
    return _ask_count(settings, lambda cpu_time: f"count by ({NODE_LABEL}) ({cpu_time})")


def _check_interval(settings: PrometheusSettings) -> str:
    """Look whether there are two samples where a rate needs them; jobs that just began have one."""
    window_seconds = RATE_SCRAPES * settings.scrape_interval
    window = f"[{round(1000 * window_seconds)}ms]"
    known = _ask_count(settings, lambda cpu_time: cpu_time)
    frequent = _ask_count(settings, lambda cpu_time: f"increase({cpu_time}{window})")
    message = f"{frequent} of {known} series of jobs have two samples within {window_seconds:g} seconds"
    if 2 * frequent < known:
        raise ConfigError(message)
    return message


def _ask_count(settings: PrometheusSettings, expression: Callable[[str], str]) -> int:
    """Count what an expression over the CPU time of all jobs gives now."""
    from slurmscope.sources.prometheus.client import Prometheus
    from slurmscope.sources.prometheus.promql import quote

    matchers = ",".join(f"{label}={quote(value)}" for label, value in settings.matchers)
    query = f"count({expression(f'{CPU_TIME}{{{matchers}}}')})"
    until = time.monotonic() + PATIENCE_SECONDS
    reply = Prometheus(settings).query_instant(query, time.time(), kind="doctor", until=until)
    return int(reply.series[0].values[0]) if reply.points else 0
