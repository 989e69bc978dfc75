# SPDX-License-Identifier: Apache-2.0
"""Set up the readings of the node agent: its jobs, its processes and its GPUs."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.config import Config
from slurmscope.core.errors import SourceError
from slurmscope.core.settings import Section
from slurmscope.core.user_names import NameCache, look_up_below
from slurmscope.exporter.collector import find_collectors
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import raise_open_files_limit
from slurmscope.metrics.family import Metric
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, detect_layout, in_hierarchy
from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.checks import ProcessSources, cgroup_sources, check_node, has_capabilities
from slurmscope.node.filesystems import FilesystemReader
from slurmscope.node.gpu.attribution import ENVIRONMENT_NAMES, Numbering, map_gpus
from slurmscope.node.gpu.collector import GpusOptions
from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.job_finder import JobFinder, JobMeter, ReadingOptions
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import GroupKey, JobKey, JobUse, NodeJobs
from slurmscope.node.jobs import ACCOUNT, PARTITION, JobUseOptions, find_needs
from slurmscope.node.mounts import read_mounts
from slurmscope.node.process_groups import ProcessTableReader
from slurmscope.node.procfs.job_processes import ProcessDetail
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdTree
from slurmscope.node.settings import NodeSettings, PathSettings
from slurmscope.node.tracker import STORM_BURST_SECONDS, STORM_SHARE, CpuBudget, JobTracker

NAME_PATIENCE_SECONDS = 0.25
"""How long all user name lookups together may delay a reading: enough for a single page to have names."""

KEPT_FILES = 4096
"""Files of cgroups that stay open between readings; each takes about 5 kB of kernel memory."""

RUNNING_SECONDS = 3.0
"""How long other readings wait for that of the jobs."""

ENVIRONMENT = (ACCOUNT, PARTITION, *ENVIRONMENT_NAMES)


@functools.cache
def node_feature() -> Feature:
    """Return what every node agent has: a collector is any module of this package that declares one."""
    return Feature(
        name="node",
        sections=(
            Section(name="node", type=NodeSettings),
            Section(name="path", type=PathSettings),
        ),
        collectors=find_collectors("slurmscope.node", "slurmscope.node.gpu.collector"),
        open=_open,
    )


def _open(host: Host) -> Running:
    """Start tracking jobs."""
    settings, paths = host.config.of(NodeSettings), host.config.of(PathSettings)
    procfs = paths.below_root(paths.procfs)
    node_name = settings.name or socket.gethostname().partition(".")[0]
    with ExitStack() as stack:
        tracker = stack.enter_context(open_job_tracker(_tracking_options(host.config, host.is_wanted)))
        names = NameCache(look_up_below(paths.rootfs), patience_seconds=NAME_PATIENCE_SECONDS)
        stack.callback(names.close)
        reader = ProcessReader(procfs)
        stack.callback(reader.close)
        jobs = NodeJobsReader(tracker.snapshot, names.name, host_name=node_name)
        table = ProcessTableReader(reader, names.name)
        filesystems = FilesystemReader(partial(read_mounts, procfs), lambda: tracker.roster, jobs.last_pids)
        node_jobs = SharedReading("node_jobs", jobs.read, interval_seconds=settings.interval)
        layout = detect_layout(paths.below_root(paths.cgroup), procfs)
        numbering = Numbering(host.config.of(GpusOptions).slurm_numbers)
        gpus = open_gpus(node_jobs, layout, host.environment, procfs, numbering=numbering)
        stack.callback(gpus.close)
        readers: dict[str, Callable[[], object]] = {
            "process_groups": lambda: table.read(find_pids(node_jobs)),
            "gpus": gpus.read,
            "filesystems": filesystems.read,
        }
        return Running(
            readings=(
                node_jobs,
                *(SharedReading(name, read, interval_seconds=settings.interval) for name, read in readers.items()),
            ),
            checks=partial(_checks, jobs, procfs, node_name, host.environment),
            is_idle=lambda: not jobs.last.jobs,
            close=stack.pop_all().close,
        )


def _checks(jobs: NodeJobsReader, procfs: Path, node_name: str, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check how jobs are detected, what can be read of them, and that Slurm knows this node."""
    yield from check_node(jobs.read(), has_capabilities=has_capabilities(procfs))
    # Only the doctor runs Slurm commands here, the agent never does.
    from slurmscope.node.checks import check_node_name
    from slurmscope.slurm.command import SlurmCommands, SlurmSettings

    commands = SlurmCommands(SlurmSettings(), environment)
    yield from check_node_name(commands.run, node_name, socket.gethostname())


def read_running(node_jobs: SharedReading) -> list[JobUse]:
    """Return the running jobs now, or at the last good reading; raise SourceError if there is none."""
    node_jobs.request()
    snapshot = node_jobs.wait(time.monotonic() + RUNNING_SECONDS)
    if not isinstance(snapshot.value, NodeJobs):
        raise SourceError(f"the jobs of this node are not known: {snapshot.error}")
    return [job for job in snapshot.value.jobs if not job.has_ended]


def find_pids(node_jobs: SharedReading) -> frozenset[int]:
    """Return the processes of all jobs."""
    return frozenset().union(*(job.pids for job in read_running(node_jobs)))


def open_gpus(
    node_jobs: SharedReading,
    layout: CgroupLayout,
    environment: Mapping[str, str],
    procfs_root: Path,
    argv: Sequence[str] = CHILD,
    numbering: Numbering = Numbering.AUTO,
) -> GpuReader:
    """Return a reader of GPUs that knows the jobs of this node; the caller closes it."""

    def running() -> list[JobUse]:
        try:
            return read_running(node_jobs)
        except SourceError:  # which has its own metrics; GPUs are read all the same
            return []

    def job_cgroups() -> dict[JobKey, Path]:
        folders = {job.key: Path(job.cgroup) for job in running() if job.cgroup}
        if not layout.hierarchies:
            return folders
        found = {key: in_hierarchy(layout, folder, "devices") for key, folder in folders.items()}
        return {key: folder for key, folder in found.items() if folder}

    def pid_owner(pid: int) -> JobKey | None:
        return next((job.key for job in running() if pid in job.pids), None)

    return GpuReader(
        environment=environment,
        procfs_root=procfs_root,
        job_cgroups=job_cgroups,
        pid_owner=pid_owner,
        find_holds=lambda gpus: map_gpus(gpus, NodeJobs(jobs=tuple(running())), numbering).holds,
        argv=argv,
    )


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
    """Where jobs are found, what is read of each, and how long an ended job is served."""

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


def _tracking_options(config: Config, is_wanted: Callable[[Metric], bool]) -> TrackingOptions:
    settings, paths = config.of(NodeSettings), config.of(PathSettings)
    wanted = find_needs(is_wanted)
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
