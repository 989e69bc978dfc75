# SPDX-License-Identifier: Apache-2.0
"""Set up the readings of the node agent: its jobs, its processes and its GPUs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.config import Config, own_environment, parse_path
from slurmscope.core.settings import Section, setting
from slurmscope.core.units import parse_seconds
from slurmscope.core.user_names import NameCache, look_up_below
from slurmscope.exporter.collector import Role
from slurmscope.exporter.output_settings import WebSettings
from slurmscope.exporter.profiles import wanted_metrics
from slurmscope.exporter.reading import ReadingSet, SharedReading
from slurmscope.exporter.self_metrics import raise_open_files_limit
from slurmscope.exporter.settings import exporter_sections
from slurmscope.node.cgroup.tree import CgroupTree, detect_layout
from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.checks import ProcessSources, cgroup_sources, check_node, has_capabilities
from slurmscope.node.filesystems import FilesystemReader
from slurmscope.node.gpu.attribution import ENVIRONMENT_NAMES
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.job_finder import JobFinder, JobMeter, ReadingOptions
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import GroupKey, JobKey, NodeJobs
from slurmscope.node.jobs import ACCOUNT, PARTITION, JobUseOptions, find_needs
from slurmscope.node.mounts import read_mounts
from slurmscope.node.process_groups import ProcessTableReader
from slurmscope.node.procfs.job_processes import ProcessDetail
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdTree
from slurmscope.node.tracker import STORM_BURST_SECONDS, STORM_SHARE, CpuBudget, JobTracker
from slurmscope.profile.service import NodeProfiling, ProfileSettings
from slurmscope.trace.node_endpoint import NodeTracing
from slurmscope.trace.settings import NodeTraceSettings

NAME_PATIENCE_SECONDS = 0.25
"""How long all user name lookups together may delay a reading: enough for a single page to have names."""

KEPT_FILES = 4096
"""Files of cgroups that stay open between readings; each takes about 5 kB of kernel memory."""

RUNNING_SECONDS = 3.0
"""How long the reading of profiled steps waits for that of the jobs."""

ENVIRONMENT = (ACCOUNT, PARTITION, *ENVIRONMENT_NAMES)


def _folder(default: str, what: str) -> Path:
    return setting(Path(default), help=what, parse=parse_path, metavar="DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Where the kernel file systems are mounted; a container may have those of the host elsewhere."""

    rootfs: Path = setting(
        Path("/"), help="Mount point of the host's root file system.", parse=parse_path, metavar="DIR"
    )
    cgroup: Path = setting(
        Path("/sys/fs/cgroup"),
        help="Mount point of the cgroup file system, relative to path.rootfs.",
        parse=parse_path,
        metavar="DIR",
    )
    procfs: Path = setting(
        Path("/proc"), help="Mount point of procfs, relative to path.rootfs.", parse=parse_path, metavar="DIR"
    )

    def below_root(self, path: Path) -> Path:
        """Return a path of the host as this process sees it."""
        return self.rootfs / path.relative_to("/") if path.is_absolute() else path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How jobs are tracked."""

    name: str = setting(
        "",
        help="Slurm name of this node, for the label slurm_node; default is the short host name.",
        metavar="NAME",
    )
    interval: float = setting(
        1.0,
        help="Minimum interval between readings of all jobs, regardless of the number of scrapes.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    grace: float = setting(
        60.0,
        help="How long the last values of an ended job are still exposed.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    processes: bool = setting(True, help="Read the processes of jobs: I/O, open files, threads and programs.")
    scratch: tuple[str, ...] = setting(
        ("scratch",), help="Part of a path that identifies scratch file systems; repeatable.", metavar="WORD"
    )


def node_sections() -> Iterator[Section]:
    """Yield the configuration sections of the node agent."""
    yield Section(name="node", type=NodeSettings)
    yield Section(name="path", type=PathSettings)
    yield Section(name="trace", type=NodeTraceSettings)
    yield Section(name="profile", type=ProfileSettings)
    yield from exporter_sections(Role.NODE)


class NodeReadings(ReadingSet):
    """Hold the readings of the node agent, and the thread that tracks jobs for them."""

    def __init__(self, config: Config) -> None:
        """Start tracking jobs; ``close`` stops it."""
        settings, paths = config.of(NodeSettings), config.of(PathSettings)
        self._procfs = paths.below_root(paths.procfs)
        self._node_name = settings.name or socket.gethostname().partition(".")[0]
        with ExitStack() as stack:
            tracker = stack.enter_context(open_job_tracker(_tracking_options(config, paths, settings)))
            names = NameCache(look_up_below(paths.rootfs), patience_seconds=NAME_PATIENCE_SECONDS)
            stack.callback(names.close)
            reader = ProcessReader(self._procfs)
            stack.callback(reader.close)
            self._jobs = NodeJobsReader(tracker.snapshot, names.name, host_name=self._node_name)
            table = ProcessTableReader(reader, names.name)
            filesystems = FilesystemReader(
                partial(read_mounts, self._procfs), lambda: tracker.roster, self._jobs.last_pids
            )
            gpus = GpuReader(environment=own_environment(), procfs_root=self._procfs)
            stack.callback(gpus.close)
            node_jobs = SharedReading("node_jobs", self._jobs.read, interval_seconds=settings.interval)
            tracing = NodeTracing(config.of(NodeTraceSettings), node_jobs, self._procfs)
            stack.enter_context(tracing.open())
            self._profiling = NodeProfiling(
                config.of(ProfileSettings),
                grace_seconds=settings.grace,
                host=socket.gethostname(),
                config_file=config.of(WebSettings).config_file,
                find_running=partial(find_running, node_jobs),
            )
            stack.enter_context(self._profiling.open())
            self._stack = stack.pop_all()
        readers: dict[str, Callable[[], object]] = {
            "process_groups": lambda: table.read(self._jobs.read_pids()),
            "gpus": gpus.read,
            "traces": tracing.read,
            "profile": self._profiling.read,
            "filesystems": filesystems.read,
        }
        super().__init__(
            node_jobs,
            *(SharedReading(name, read, interval_seconds=settings.interval) for name, read in readers.items()),
        )

    def checks(self) -> Iterator[Check]:
        """Check how jobs are detected, what can be read of them, and that Slurm knows this node."""
        yield from check_node(self._jobs.read(), has_capabilities=has_capabilities(self._procfs))
        yield from self._profiling.checks()
        # Only the doctor runs Slurm commands here, the agent never does.
        from slurmscope.node.checks import check_node_name
        from slurmscope.slurm.command import SlurmCommands, SlurmSettings

        commands = SlurmCommands(SlurmSettings(), own_environment())
        yield from check_node_name(commands.run, self._node_name, socket.gethostname())

    def is_idle(self) -> bool:
        """Return whether the last reading found no job."""
        return not self._jobs.last.jobs

    def close(self) -> None:
        """Stop tracking jobs."""
        self._stack.close()


def find_running(node_jobs: SharedReading) -> frozenset[int] | None:
    """Return the jobs that run on this node, None if they could not be read now."""
    node_jobs.request()
    snapshot = node_jobs.wait(time.monotonic() + RUNNING_SECONDS)
    if snapshot.error is not None or not isinstance(snapshot.value, NodeJobs):
        return None
    return frozenset(job.key.job_id for job in snapshot.value.jobs if not job.has_ended)


class NodeJobsReader:
    """Read all jobs, and add user names and the cores kept busy since the previous reading."""

    def __init__(
        self,
        snapshot: Callable[[], NodeJobs],
        name_of: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        host_name: str = "",
    ) -> None:
        """Take the function that reads all jobs, and the one that looks up user names."""
        self.last = NodeJobs()
        self._snapshot = snapshot
        self._name_of = name_of
        self._clock = clock
        self._host_name = host_name
        self._before: dict[JobKey, tuple[float, float]] = {}

    def read_pids(self) -> frozenset[int]:
        """Return the processes of all jobs, from the last reading or, if it had no jobs, from a new one."""
        jobs = (self.last if self.last.jobs else self._snapshot()).jobs
        return frozenset().union(*(job.pids for job in jobs if not job.has_ended))

    def last_pids(self, key: JobKey) -> frozenset[int]:
        """Return the processes that a job had at the last reading."""
        return frozenset().union(*(job.pids for job in self.last.jobs if job.key == key and not job.has_ended))

    def read(self) -> NodeJobs:
        """Return the current jobs with user names and busy cores."""
        jobs, now = self._snapshot(), self._clock()
        before, self._before = self._before, {}
        with_rates = []
        for job in jobs.jobs:
            cpu_seconds = job.groups[GroupKey()].cpu.total_seconds if GroupKey() in job.groups else None
            if cpu_seconds is None or job.has_ended:
                with_rates.append(job)
                continue
            self._before[job.key] = (now, cpu_seconds)
            then, spent = before.get(job.key, (now, cpu_seconds))
            busy_cores = max(0.0, cpu_seconds - spent) / (now - then) if now > then else None
            with_rates.append(replace(job, busy_cores=busy_cores))
        users = {job.uid: self._name_of(job.uid) for job in jobs.jobs if job.uid is not None}
        self.last = replace(jobs, jobs=tuple(with_rates), users=users, host_name=self._host_name)
        return self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """Hold where jobs are found, what is read of each, and how long an ended job is served."""

    cgroup_root: Path = Path("/sys/fs/cgroup")
    procfs_root: Path = Path("/proc")
    grace_seconds: float = 60.0
    descriptors: int = KEPT_FILES
    storm_share: float = STORM_SHARE
    unneeded_files: frozenset[str] = frozenset()
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@contextmanager
def open_job_tracker(options: TrackingOptions) -> Iterator[JobTracker]:
    """Track jobs until the block ends."""
    with ExitStack() as stack:
        reader = ProcessReader(options.procfs_root)
        stack.callback(reader.close)
        layout = detect_layout(options.cgroup_root, options.procfs_root)
        tree = CgroupTree(layout, options.procfs_root, descriptors=options.descriptors, unneeded=options.unneeded_files)
        stack.callback(tree.close)
        stepds = StepdTree(reader)
        stack.callback(stepds.close)
        finder = JobFinder(tree, stepds)
        registry = JobRegistry(finder, lambda: JobMeter(reader, options.reading), grace_seconds=options.grace_seconds)
        registry.errors.include("process", reader.denials.faults)
        registry.errors.include("cgroup", tree.refusals)
        sources = ProcessSources(reader)

        def available() -> dict[str, bool]:
            unreadable = {file for tracked in registry.live for file, _ in tracked.unreadable()}
            measures = cgroup_sources(tree.measures(), unreadable)
            return measures | sources.available(has_jobs=bool(registry.live))

        budget = CpuBudget(options.storm_share, STORM_BURST_SECONDS)
        yield stack.enter_context(JobTracker(finder, registry, ChangeWatcher(), available=available, budget=budget))


def _tracking_options(config: Config, paths: PathSettings, settings: NodeSettings) -> TrackingOptions:
    wanted = find_needs(wanted_metrics(config, Role.NODE))
    has_steps = wanted.steps and config.of(JobUseOptions, "collector.job_use").steps
    read = settings.processes
    switches = read and wanted.switches
    detail = ProcessDetail(io=read, files=read, threads=read, switches=switches, scratch_words=settings.scratch)
    return TrackingOptions(
        cgroup_root=paths.below_root(paths.cgroup),
        procfs_root=paths.below_root(paths.procfs),
        grace_seconds=settings.grace,
        # The rest is for connections, processes that are watched, and files that are opened for each read.
        descriptors=min(KEPT_FILES, raise_open_files_limit(2 * KEPT_FILES) // 2),
        unneeded_files=wanted.unneeded_files,
        reading=ReadingOptions(has_steps=has_steps, has_tasks=has_steps, detail=detail, environment=ENVIRONMENT),
    )
