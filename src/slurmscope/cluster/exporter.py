# SPDX-License-Identifier: Apache-2.0
"""Set up the readings of the cluster exporter: which command feeds each one, and how often.

Readings and commands are exported as metrics, also under the names of older exporters::

    slurmscope_commands_total{command="squeue"} 360
    slurm_job_scrape_duration 112
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.cluster import controller as scontrol_ping
from slurmscope.cluster import dbd as sacctmgr_stats
from slurmscope.cluster import job_info as squeue_list
from slurmscope.cluster import licenses as scontrol_licenses
from slurmscope.cluster import limits as scontrol_limits
from slurmscope.cluster import reservations as scontrol_reservations
from slurmscope.cluster import sdiag
from slurmscope.cluster import shares as sshare
from slurmscope.cluster.backends import Backend, open_backend
from slurmscope.cluster.checks import check_slurm
from slurmscope.cluster.completions_tracker import CompletionsTracker
from slurmscope.cluster.discovery import Discovery, DiscoverySettings, read_nodes
from slurmscope.cluster.squeue import JobList, QueueReader
from slurmscope.core.check import Check
from slurmscope.core.config import Config, parse_path
from slurmscope.core.errors import MissingExtraError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import Section, setting
from slurmscope.core.units import parse_seconds
from slurmscope.exporter.collector import Role, all_collectors
from slurmscope.exporter.reading import STILL_BEING_READ, PushedPage, ReadingSet, SharedReading, Snapshot
from slurmscope.exporter.self_metrics import PROCESS_METRICS, SELF_METRICS
from slurmscope.exporter.settings import MetricsSettings, Switch, exporter_sections
from slurmscope.http.server.app import Route
from slurmscope.inbox.inbox import INBOX_METRICS, Inbox
from slurmscope.inbox.pushed import OwnMetrics
from slurmscope.inbox.store import InboxSettings
from slurmscope.lustre import collector as lustre_collector
from slurmscope.lustre.use import FilesystemUse
from slurmscope.metrics.family import Family, Metric, compat_counter, compat_gauge, counter
from slurmscope.prometheus.query_counters import SERIES_METRICS, series_families
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.slurm import config as scontrol_config
from slurmscope.slurm.cluster_names import ClusterNames, read_own_name
from slurmscope.slurm.command import SlurmCommands, SlurmSettings, random_separator
from slurmscope.slurm.config import ALL_HIDDEN_LABELS, ControllerConfig, Controllers
from slurmscope.slurm.visibility import CONTROLLER, SLURMDBD, JobVisibility, require_all_jobs, require_first
from slurmscope.trace import owners as sinfo_hosts
from slurmscope.trace import owners as squeue_owners
from slurmscope.trace.cluster_endpoint import ClusterTracing
from slurmscope.trace.samples import Traces
from slurmscope.trace.settings import TraceSettings

if TYPE_CHECKING:
    from slurmscope.lustre.reader import LustreReader

logger = logging.getLogger(__name__)


KEEP_SECONDS = 300.0
KEEP_INTERVALS = 3

COMMANDS = counter("slurmscope_commands_total", "Runs of Slurm commands, by command.", "command")

# Reading, gauge of milliseconds, error counters: the older documentation and code used different names.
_COMPAT_NAMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("jobs", "slurm_job_scrape_duration", ("slurm_job_scrape_error", "job_scrape_errors")),
    ("nodes", "slurm_node_scrape_duration", ("slurm_node_scrape_error",)),
    ("diag", "slurm_diag_scrape_duration", ("slurm_diag_scrape_error",)),
    ("licenses", "", ("slurm_lic_scrape_error",)),
    ("limits", "slurm_limit_scrape_duration", ("slurm_account_scrape_error", "slurm_account_collect_error")),
    ("shares", "slurm_fairshare_scrape_duration", ("slurm_fairshare_collect_error",)),
)
DURATIONS = {
    reading: compat_gauge(name, f"Duration of the latest reading of {reading} in milliseconds.")
    for reading, name, _ in _COMPAT_NAMES
    if name
}
ERRORS = {
    reading: tuple(compat_counter(name, f"Failed readings of {reading}.") for name in names)
    for reading, _, names in _COMPAT_NAMES
}
COMMAND_METRICS: tuple[Metric, ...] = (
    COMMANDS,
    *INBOX_METRICS,
    *DURATIONS.values(),
    *(metric for metrics in ERRORS.values() for metric in metrics),
)


def _interval(default_seconds: float, what: str) -> float:
    return setting(
        default_seconds,
        help=f"Minimum interval between {what}; at least slurm.poll-limit.",
        parse=parse_seconds,
        metavar="DURATION",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSettings:
    """How often each source is polled; sources that change slowly are polled rarely."""

    jobs: float = _interval(0.0, "squeue calls")
    job_list: float = _interval(0.0, "squeue calls for single jobs (collector job_info)")
    nodes: float = _interval(0.0, "sinfo calls")
    controllers: float = _interval(0.0, "scontrol ping calls")
    diag: float = _interval(30.0, "sdiag calls")
    licenses: float = _interval(180.0, "scontrol show licenses calls")
    reservations: float = _interval(300.0, "scontrol show reservations calls")
    limits: float = _interval(300.0, "scontrol show assoc_mgr calls")
    shares: float = _interval(600.0, "sshare calls")
    dbd: float = _interval(300.0, "sacctmgr show stats calls")
    completions: float = _interval(60.0, "sacct calls")
    job_owners: float = _interval(0.0, "squeue calls for the owners of traced jobs")
    node_hosts: float = _interval(600.0, "sinfo calls for the host names of nodes (tracing)")
    node_targets: float = _interval(0.0, "sinfo calls for service discovery")
    traces: float = setting(
        5.0,
        help="Minimum interval between exports of new trace samples; no Slurm command runs for it.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    config: float = _interval(600.0, "scontrol show config calls")
    lustre: float = _interval(0.0, "Prometheus queries for Lustre statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsSettings:
    """From when ended jobs are counted."""

    state_file: Path | None = setting(
        None,
        help="File that keeps the counters of ended jobs across restarts; without it they restart at 0.",
        parse=parse_path,
        metavar="FILE",
    )
    look_back: float = setting(
        0.0,
        help="How far back to count ended jobs when there is no state file yet.",
        parse=parse_seconds,
        metavar="DURATION",
    )


def cluster_sections() -> Iterator[Section]:
    """Yield the configuration sections of the cluster exporter."""
    yield Section(name="slurm", type=SlurmSettings)
    yield Section(name="slurm.interval", type=IntervalSettings)
    yield Section(name="completions", type=CompletionsSettings)
    yield Section(name="prometheus", type=PrometheusSettings)
    yield Section(name="trace", type=TraceSettings)
    yield Section(name="push-inbox", type=InboxSettings)
    yield Section(name="sd", type=DiscoverySettings)
    yield from exporter_sections(Role.CLUSTER)


class ClusterReadings(ReadingSet):
    """Hold the readings of the cluster exporter; each runs one Slurm command or sends one request to slurmrestd."""

    def __init__(self, config: Config, environment: Mapping[str, str]) -> None:
        """Set up every reading; nothing is read yet."""
        settings = config.of(SlurmSettings)
        intervals = config.of(IntervalSettings)
        self._environment = environment
        self._commands = SlurmCommands(settings, environment)
        self._respects_private_data = settings.private_data == "respect"
        backend = open_backend(settings, self._commands)
        self._lustre = _open_lustre(config, self._commands, lambda: self.readings["jobs"])
        readers = _readers(self._commands, backend, config.of(CompletionsSettings), with_owners=bool(self._lustre))
        readers["lustre"] = self._lustre.read if self._lustre else _refuse_lustre
        visibility = JobVisibility(self._commands.run, CONTROLLER)
        for name in ("jobs", "job_list", "job_owners"):
            readers[name] = require_all_jobs(readers[name], visibility)
        super().__init__(
            *(
                _make_reading(name, read, max(settings.poll_limit, getattr(intervals, name)), settings.poll_limit)
                for name, read in readers.items()
            ),
            SharedReading("traces", self._read_traces, interval_seconds=intervals.traces),
        )
        self._tracing = ClusterTracing(config, self, environment)
        self._discovery = Discovery(config.of(DiscoverySettings), self.readings["node_targets"])
        self._stack = ExitStack()
        self._inbox = Inbox(
            config.of(InboxSettings),
            OwnMetrics(_own_metrics(), shared=PROCESS_METRICS),
            label_length_limit=config.of(MetricsSettings).label_length_limit,
        )

    def is_receiving(self) -> bool:
        """Return whether jobs are sending trace samples now."""
        return self._tracing.is_receiving()

    def _read_traces(self) -> Traces:
        return self._tracing.read()

    def routes(self) -> Mapping[str, Route]:
        """Return service discovery, the trace endpoint if tracing is enabled, and the push inbox if that is."""
        return {**self._discovery.routes, **self._tracing.routes, **self._inbox.routes}

    def start(self, before: ReadingSet | None) -> None:
        """Open the push inbox, or take it over from the readings before a reload; keep the file of targets."""
        self._stack.enter_context(self._discovery.open())
        self._inbox.open(before._inbox if isinstance(before, ClusterReadings) else None)

    def pushed(self) -> PushedPage:
        """Return what is in the push inbox."""
        return self._inbox.page()

    @property
    def is_text_only(self) -> bool:
        """Return whether there are pushed metrics: names that are fine in the text format may clash in OpenMetrics."""
        return self._inbox.is_open

    def read(self, names: Iterable[str], until: float) -> dict[str, Snapshot]:
        """Read several sources in parallel, and PrivateData with them, which every page needs."""
        if self._respects_private_data:
            self.readings["config"].request()
        snapshots = super().read(names, until)
        if "lustre" in snapshots and snapshots["lustre"].error == STILL_BEING_READ:
            logger.warning("Collect is still active... - Skipping now", extra=fields("lustre"))
        return snapshots

    def close(self) -> None:
        """Stop background threads, and close the push inbox unless a reload handed it on."""
        self._stack.close()
        self._inbox.close()
        if self._lustre:
            self._lustre.close()

    def checks(self) -> Iterator[Check]:
        """Check what all commands depend on, and that a controller answers: its reading succeeds if none does."""
        yield from self._check_lustre()
        yield from check_slurm(self._commands.run, self._environment)
        controllers = self.readings["controllers"].wait(0.0).value
        if isinstance(controllers, Controllers):
            names = ", ".join(one.host for one in controllers.controllers) or "no controller"
            is_up = controllers.is_up
            yield Check(
                name="controllers",
                is_good=is_up,
                message=f"{names} answers" if is_up else f"no controller answers ({names})",
                advice="" if is_up else "check that slurmctld runs there and can be reached from here",
            )

    def _check_lustre(self) -> Iterator[Check]:
        use = self.readings["lustre"].wait(0.0).value if self._lustre else None
        if isinstance(use, FilesystemUse):
            job_ids = len({rate.client for rates in use.rates.values() for rate in rates})
            found = f"{job_ids} jobs and programs use Lustre" if job_ids else "no use of Lustre was found"
            yield Check(
                name="lustre statistics",
                is_good=not use.problems,
                message="; ".join(use.problems) or found,
                advice="" if not use.problems else "some metrics of lustre are missing: see --prometheus.url",
            )

    def own_families(self, is_success: Mapping[str, bool]) -> Iterator[Family]:
        """Yield the number of runs per command, and durations and errors of readings under their older names."""
        if self._lustre and "lustre" in is_success:
            is_ok = is_success["lustre"] and self._lustre.is_complete
            yield Family(lustre_collector.SCRAPE_OK, {(): float(is_ok)})
            yield from series_families(self._lustre.client.counters.snapshot())
        yield from self._inbox.families()
        yield Family(COMMANDS, {(command,): count for command, count in sorted(self._commands.runs.items())})
        for name, reading in self.readings.items():
            if not reading.attempts:
                continue
            if name in DURATIONS and reading.duration_seconds is not None:
                yield Family(DURATIONS[name], {(): round(reading.duration_seconds * 1000, 3)})
            for metric in ERRORS.get(name, ()):
                yield Family(metric, {(): sum(reading.errors.values())})

    def hidden_labels(self, until: float) -> frozenset[str]:
        """Return the labels that Slurm's PrivateData hides: all that it could hide while it is unknown."""
        if not self._respects_private_data:
            return frozenset()
        snapshot = self.read(("config",), until)["config"]
        if isinstance(snapshot.value, ControllerConfig):
            return snapshot.value.hidden_labels
        logger.warning(
            "PrivateData is unknown, hiding series by user, job and account", extra=fields(error=snapshot.error)
        )
        return ALL_HIDDEN_LABELS


def _own_metrics() -> Iterator[Metric]:
    """Yield every metric that this exporter could have, whatever is enabled, and those of node agents.

    Reports are made from the latter; their older names may be pushed, since the agent itself does so.
    """
    yield from (metric for collector in all_collectors(Role.CLUSTER) for metric in collector.metrics)
    yield from (m for collector in all_collectors(Role.NODE) for m in collector.metrics if not m.is_compat)
    yield from (*COMMAND_METRICS, *SERIES_METRICS, *SELF_METRICS)


def _open_lustre(
    config: Config, commands: SlurmCommands, find_jobs: Callable[[], SharedReading]
) -> LustreReader | None:
    """Return the reader of Lustre statistics if its collector is enabled; raise ConfigError for wrong settings."""
    if not config.of(Switch, "collector.lustre").enabled:
        return None
    # Imported here: it needs a package that the other collectors do not need.
    try:
        from slurmscope.lustre.reader import LustreReader
    except MissingExtraError:
        # The address may be in a file that is shared with the portal: this must not stop the other collectors.
        if config.values["collector.lustre.enabled"].origin == lustre_collector.COLLECTOR.enabled_by:
            return None
        raise

    options = config.of(lustre_collector.LustreOptions, "collector.lustre")
    names = ClusterNames(lambda: (read_own_name(commands.run),))
    return LustreReader(config.of(PrometheusSettings), options, find_jobs, find_cluster=lambda: names.get()[0])


def _refuse_lustre() -> object:
    raise SourceError("the collector lustre needs --prometheus.url and the extra 'reports'")


def _readers(
    commands: SlurmCommands, backend: Backend, completions: CompletionsSettings, *, with_owners: bool
) -> dict[str, Callable[[], object]]:
    run = commands.run
    tracker = CompletionsTracker(
        wall_clock=time.time, state_file=completions.state_file, look_back_seconds=completions.look_back
    )
    return {
        "jobs": QueueReader(functools.partial(backend.read_jobs, with_owners=with_owners), time.time).read,
        "job_list": lambda: _read_job_list(commands),
        "nodes": backend.read_nodes,
        "controllers": scontrol_ping.ControllerPing(run).read,
        "diag": lambda: sdiag.parse_diag(run(sdiag.COMMAND, sdiag.ARGUMENTS)),
        "licenses": lambda: scontrol_licenses.parse_licenses(run("scontrol", scontrol_licenses.ARGUMENTS)),
        "reservations": lambda: scontrol_reservations.parse_reservations(
            run("scontrol", scontrol_reservations.ARGUMENTS)
        ),
        "limits": lambda: scontrol_limits.parse_limits(run("scontrol", scontrol_limits.ARGUMENTS)),
        "shares": lambda: sshare.parse_shares(run("sshare", sshare.ARGUMENTS)),
        "dbd": lambda: sacctmgr_stats.parse_dbd(run(sacctmgr_stats.COMMAND, sacctmgr_stats.ARGUMENTS)),
        "completions": require_first(JobVisibility(run, SLURMDBD), lambda: tracker.update(run)),
        "job_owners": lambda: squeue_owners.parse_owners(run("squeue", squeue_owners.OWNER_ARGUMENTS)),
        "node_hosts": lambda: sinfo_hosts.parse_hosts(run("sinfo", sinfo_hosts.HOST_ARGUMENTS)),
        "node_targets": lambda: read_nodes(commands),
        "config": lambda: scontrol_config.read_config(run),
    }


def _read_job_list(commands: SlurmCommands) -> JobList:
    separator = random_separator()
    return squeue_list.parse_job_list(commands.run("squeue", squeue_list.arguments(separator)), separator)


def _make_reading(
    name: str, read: Callable[[], object], interval_seconds: float, shortest_seconds: float
) -> SharedReading:
    """Make a reading; the configuration is retried soon, because series are hidden until it is known."""
    return SharedReading(
        name,
        read,
        interval_seconds=interval_seconds,
        keep_seconds=math.inf if name == "node_targets" else max(KEEP_SECONDS, KEEP_INTERVALS * interval_seconds),
        retry_seconds=shortest_seconds if name == "config" else None,
    )
