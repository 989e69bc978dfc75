# SPDX-License-Identifier: Apache-2.0
"""Check everything that the portal and reports depend on, and explain what is missing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.accounting.sacct import open_accounting
from slurmscope.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cluster.exporter import check_slurm
from slurmscope.core.cache import Cache
from slurmscope.core.check import Check
from slurmscope.core.config import Config, ExtensionSettings
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError, CommandMissing, SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS, HOUR_SECONDS, format_count
from slurmscope.exporter.doctor import ADVICE as EXPORTER_ADVICE
from slurmscope.exporter.doctor import check_disk
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.render.formatting import format_elapsed, format_time
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.admin_comments import ADVICE as COMMENTS_ADVICE
from slurmscope.reporter.admin_comments import CHANGED_CHECKPOINT, is_changed_by
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT, WINDOW_SECONDS, ReporterProgress
from slurmscope.reporter.reporters import REPORTER, Reporters
from slurmscope.reporter.retention import ReporterSettings, check_retention
from slurmscope.reports.series_checks import check_series
from slurmscope.reports.site_rules import check_site_rules
from slurmscope.reports.sources import ADVICE as CLUSTERS_ADVICE
from slurmscope.reports.sources import (
    check_controller,
    find_active_clusters,
    find_mixed_clusters,
    open_known_archive,
    sqlite_path,
)
from slurmscope.slurm.cluster_names import read_own_name
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinated

if TYPE_CHECKING:
    from slurmscope.archive.engine import Database

logger = logging.getLogger(__name__)

MOST_JOBS = 1000
WATCH_SECONDS = 2.0
PROBE_USER = "slurmscope"

ADVICE = {
    "settings": "change the settings that the message names: docs/portal.md",
    "archive": "check that its directory or server exists, and that this user may write to it",
    "schema": "portals of different releases cannot share an archive; see Updating in docs/portal.md",
    "reporter": "check that slurmscope portal runs, and its log for accounting errors",
    "accounting": "check that slurmdbd runs and that this user may run sacct, or run slurmscope database check",
    "coordinators": "without sacctmgr, coordinators only see their own jobs",
}

ListCheckpoints = Callable[[str], Mapping[str, str]]
"""Return the stored texts under all names that begin with a text, by the rest of the name."""


def examine_portal(config: Config, environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Check every dependency of the portal once."""
    archive_file = sqlite_path(config.of(ArchiveSettings).url)
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    accounting = open_accounting(config.of(AccountingSettings), commands.run, must_see_all=True)
    return (
        _check("settings", lambda: _check_settings(config)),
        *check_disk([archive_file.parent] if archive_file is not None else []),
        *check_site_rules(config.of(ExtensionSettings).load),
        *_check_archive(config, accounting, commands.run),
        *check_slurm(commands.run, environment, needs_accounting=True),
        *_check_controllers(commands, _names(accounting)),
        *_check_accounts(accounting, config.of(AccountingSettings)),
        _check("coordinators", lambda: _check_coordinators(commands)),
        *_check_series(config.of(PrometheusSettings), commands),
    )


def _check(name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(name=name, is_good=True, message=run())
    except SlurmscopeError as error:
        advice = EXPORTER_ADVICE["missing"] if isinstance(error, CommandMissing) else ADVICE[name]
        return Check(name=name, is_good=False, message=str(error), advice=advice)


def _check_settings(config: Config) -> str:
    settings = config.of(PortalSettings)
    check_settings(settings)
    check_retention(config.of(ReporterSettings))
    return f"the portal would listen on {settings.listen_address}, in {settings.mode} mode"


def _check_archive(config: Config, accounting: JobAccounting, run: RunCommand) -> Iterator[Check]:
    """Check the archive without creating it: the portal could not write to a file of another user."""
    settings = config.of(ArchiveSettings)
    try:
        archive = open_known_archive(settings)
        if archive is None:
            yield _check_new_archive(settings.url)
            yield from _check_clusters(config.of(PrometheusSettings), _names(accounting), ())
            return
        from slurmscope.archive.checkpoints import Checkpoints

        try:
            checkpoints = Checkpoints(archive.database)
            active = find_active_clusters(checkpoints.list_checkpoints(CLUSTER_CHECKPOINT), time.time())
            yield Check(name="archive", is_good=True, message=f"{archive.database.dialect} answers")
            names = _names(accounting)
            yield from _watch_progress(checkpoints.list_checkpoints, names, config.of(ReporterSettings))
            yield from _check_clusters(config.of(PrometheusSettings), names, active)
            yield _check_elected(archive.database, names)
            if config.of(ReporterSettings).admin_comment:
                yield _check_comments(checkpoints.list_checkpoints(CHANGED_CHECKPOINT), run)
        finally:
            archive.close()
    except ArchiveSchemaError as error:
        yield Check(name="archive", is_good=False, message=str(error), advice=ADVICE["schema"])
    except SlurmscopeError as error:
        yield Check(name="archive", is_good=False, message=str(error), advice=ADVICE["archive"])


def _check_elected(database: Database, clusters: Collection[str]) -> Check:
    """Report which processes archive jobs now; before the first start, none is not a failure."""
    from slurmscope.archive.election import find_elected

    found = {name: find_elected(database, f"{REPORTER} {name}") for name in clusters}
    shown = [
        f"{name}: {one.host}, process {one.pid}, since {format_time(one.since_seconds)}" if one else f"{name}: none now"
        for name, one in found.items()
    ]
    message = f"reporter of {'; '.join(shown) or 'no cluster'}"
    return Check(name="election", is_good=True, message=message, is_note=None in found.values())


def _check_comments(changed: Mapping[str, str], run: RunCommand) -> Check:
    """Report that sacctmgr changed the first AdminComment; until one is written, nothing is known."""
    try:
        stopped = {cluster: release for cluster, release in sorted(changed.items()) if is_changed_by(release, run)}
    except SlurmscopeError as error:
        message = f"none is written, because the release of sacctmgr could not be read: {error}"
        return Check(name="AdminComment", is_good=False, message=message, advice=COMMENTS_ADVICE)
    if not stopped:
        return Check(name="AdminComment", is_good=True, message="sacctmgr of this host has changed none")
    found = "; ".join(f"{cluster}: {release}" for cluster, release in stopped.items())
    message = f"none is written, because sacctmgr changed the first one ({found})"
    return Check(name="AdminComment", is_good=False, message=message, advice=COMMENTS_ADVICE)


STATE_FOLDER = Path("/var/lib/slurmscope")
"""Made by systemd when the unit starts."""


def _check_new_archive(url: str) -> Check:
    """Check where the archive will be: until the portal has started once, there is none."""
    file = Path(url.partition("///")[2])
    if file.exists() or not (file.parent.is_dir() or file.parent == STATE_FOLDER):
        message = f"there is no readable archive at {url}"
        return Check(name="archive", is_good=False, message=message, advice=ADVICE["archive"])
    message = f"there is no archive at {url} yet; the portal creates it when it starts"
    return Check(name="archive", is_good=True, message=message, is_note=True)


def _names(accounting: JobAccounting) -> tuple[str, ...]:
    try:
        return accounting.clusters()
    except SlurmscopeError:  # another check reports it
        return ()


def _watch_progress(
    list_checkpoints: ListCheckpoints, clusters: Collection[str], settings: ReporterSettings
) -> Iterator[Check]:
    """Check the progress; when it is behind, check again a little later: after the first start it catches up."""
    before, after = read_progress(list_checkpoints, clusters), None
    for name, read_until in before.items():
        check = check_progress(read_until, time.time(), settings)
        if not check.is_good:
            if after is None:
                time.sleep(WATCH_SECONDS)
                after = read_progress(list_checkpoints, clusters)
            moved_to = after.get(name)
            if moved_to is not None and moved_to != read_until:
                message = f"catching up: read until {format_time(moved_to)}"
                check = replace(check, is_good=True, message=message, advice="")
        yield replace(check, name=f"{check.name} of {name}") if len(before) > 1 else check


def read_progress(list_checkpoints: ListCheckpoints, clusters: Collection[str]) -> dict[str, int | None]:
    """Return up to when the accounting of each cluster was read; None when it never was.

    Without names of clusters, these are all that the archive has; then one that no longer exists is among them.
    """
    found = list_checkpoints(CLUSTER_CHECKPOINT)
    names = clusters or found or ("",)
    texts = {name: found.get(name, "") for name in names}
    return {name: int(text) if text.isdecimal() else None for name, text in texts.items()}


def check_progress(read_until_seconds: int | None, now_seconds: float, settings: ReporterSettings) -> Check:
    """Check that jobs are archived within an hour of their end."""
    if read_until_seconds is None:
        return Check(name="reporter", is_good=False, message="no job has been archived yet", advice=ADVICE["reporter"])
    behind_seconds = max(0.0, now_seconds - settings.settle - read_until_seconds)
    is_good = behind_seconds < settings.interval + HOUR_SECONDS
    message = f"jobs that ended before {format_time(read_until_seconds)} are archived"
    late = "" if is_good else f", {format_elapsed(behind_seconds)} behind"
    return Check(name="reporter", is_good=is_good, message=message + late, advice="" if is_good else ADVICE["reporter"])


def _check_accounts(accounting: JobAccounting, settings: AccountingSettings) -> Iterator[Check]:
    """Check the accounting of each cluster; with one, also where its name is not known."""
    names = _names(accounting)
    if not names and settings.clusters == (ALL_CLUSTERS,):
        yield _check("accounting", lambda: f"clusters: {', '.join(accounting.clusters())}")
    elif len(names) < 2:
        yield _check("accounting", lambda: _check_accounting(accounting))
    else:
        for name in names:
            check = _check("accounting", partial(_check_accounting, accounting.of(name)))
            yield replace(check, name=f"accounting of {name}")


def _check_accounting(accounting: JobAccounting) -> str:
    now = int(time.time())
    count = sum(1 for _ in islice(accounting.read_ended(now - WINDOW_SECONDS, now), MOST_JOBS))
    return f"{count}{' or more' if count == MOST_JOBS else ''} jobs ended in the last six hours"


def _check_clusters(settings: PrometheusSettings, names: Sequence[str], archived: Sequence[str]) -> Iterator[Check]:
    """Check that series of several clusters can be distinguished; a site with one cluster needs no line."""
    if mixed := find_mixed_clusters(settings, names, archived):
        yield Check(name="clusters", is_good=False, message=mixed, advice=CLUSTERS_ADVICE)
    elif len({*names, *archived}) > 1:
        message = f"{', '.join(sorted({*names, *archived}))} have jobs here, and their series are distinguished"
        yield Check(name="clusters", is_good=True, message=message)


def _check_series(settings: PrometheusSettings, commands: SlurmCommands) -> Iterator[Check]:
    """Check the series of this host's cluster, whose nodes Slurm's commands list."""
    try:
        own = settings.matchers_of(read_own_name(commands.run) if settings.cluster_label else "")
    except SlurmscopeError:  # another check reports it
        own = settings.matchers
    return check_series(replace(settings, matchers=own, cluster_label=""), commands.run)


def _check_controllers(commands: SlurmCommands, clusters: Collection[str]) -> Iterator[Check]:
    """Check that the controller of each other cluster responds; that of this host's cluster has checks of its own."""
    try:
        own = read_own_name(commands.run) if clusters else ""
    except SlurmscopeError:  # another check reports it
        return
    for name in clusters:
        if name != own:
            yield check_controller(commands.run, name)


def _check_coordinators(commands: SlurmCommands) -> str:
    read_coordinated(commands.run, PROBE_USER)
    return "sacctmgr returns account coordinators"


KEPT_SECONDS = 30.0
GONE_SECONDS = 7 * DAY_SECONDS


def describe_first_round(progress: ReporterProgress) -> str:
    """Say how far the first round is: until its end lists lack jobs, and may be empty."""
    until = progress.read_until_seconds
    read = f"; those that ended until {format_time(until)} have been read" if until else ""
    return f"Jobs are still being read from Slurm's accounting: {format_count(progress.jobs_archived)} so far{read}."


class LateReporters:
    """Read how far the reporters of an archive are, from any thread, at most once in half a minute."""

    def __init__(
        self,
        list_checkpoints: ListCheckpoints,
        settings: ReporterSettings,
        reporters: Reporters | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take where progress is stored, and the reporters of this process, if any; nothing is read yet."""
        self._reporters = reporters
        self._list_checkpoints = list_checkpoints
        self._settings = settings
        self._wall_clock = wall_clock
        self._cache = Cache[str](KEPT_SECONDS, retry_seconds=KEPT_SECONDS, clock=monotonic)

    def problems(self) -> Iterator[str]:
        """Yield why jobs are not updated, whichever process should do so."""
        reporters = self._reporters
        problem = reporters.progress.problem if reporters else ""
        if not problem and not (reporters and all(reporters.elected.values())):
            problem = self.find_problem()
        if problem:
            yield f"Jobs are not being updated, and those shown as running may have ended: {problem}"
        elif reporters and (problem := reporters.progress.series_problem):
            yield f"Jobs are not being measured; they will be when the time series server answers: {problem}"
        elif reporters and any(reporters.elected.values()) and not reporters.progress.rounds:
            yield describe_first_round(reporters.progress)

    def find_problem(self) -> str:
        """Return which cluster is late; empty if none is, or if that is not known."""
        try:
            return self._cache.get(None, lambda: "; ".join(self._find_late()))
        except ArchiveError:  # pages say so themselves
            return ""

    def _find_late(self) -> Iterator[str]:
        now = self._wall_clock()
        progress = {
            name: until for name, until in read_progress(self._list_checkpoints, ()).items() if until is not None
        }
        newest = min(now, max(progress.values(), default=0))
        for name, read_until in progress.items():
            check = check_progress(read_until, now, self._settings)
            # A cluster that was not read for a week, while another one was, is assumed to no longer exist.
            if newest - read_until < GONE_SECONDS and not check.is_good:
                yield f"{name}: {check.message}" if name else check.message


class MixedClusters:
    """Warn that series of several clusters may be added up; ``refresh`` updates it, so that no page waits for Slurm."""

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
        # First, so that a new archive is created also where Slurm does not respond.
        active = find_active_clusters(self._list_checkpoints(), time.time())
        with suppress(SourceError):  # the reporters, and pages that read jobs, report it
            self._names = self._read()
        mixed = find_mixed_clusters(self._settings, self._names, active)
        if mixed and mixed != self._logged:
            logger.warning("numbers may be wrong", extra=fields(reason=mixed, advice=CLUSTERS_ADVICE))
        self._logged = mixed

    def problems(self) -> Iterator[str]:
        """Yield a message for pages if jobs of several clusters are read here.

        Those that only the archive has may be measured by other portals, from a Prometheus of their own.
        """
        if mixed := find_mixed_clusters(self._settings, self._names):
            yield f"Numbers may be wrong: {mixed}; {CLUSTERS_ADVICE}"
