# SPDX-License-Identifier: Apache-2.0
"""Wire the node agent: where it looks, what it reads, and who is asked for names."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from slurmscope.analysis.gpu_claims import ENVIRONMENT_NAMES
from slurmscope.collectors.job_use import ACCOUNT, PARTITION, JobUseOptions
from slurmscope.config import Config, own_environment, parse_path
from slurmscope.metrics.collector import Role
from slurmscope.model.job_use import GroupKey, JobKey, NodeJobs
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.settings import exporter_sections
from slurmscope.services.exporter.wiring import Wiring
from slurmscope.services.node.checks import check_node
from slurmscope.services.node.job_reading import ReadingOptions
from slurmscope.services.node.job_tracking import TrackingOptions, has_capabilities, open_job_tracker
from slurmscope.settings import Section, setting
from slurmscope.sources.gpu.gpus import GpuReader, GpuSettings
from slurmscope.sources.machine.names import NameCache, look_up_below
from slurmscope.sources.procfs.job_processes import ProcessDetail
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.table import ProcessTableReader
from slurmscope.units import parse_seconds

NAME_PATIENCE_SECONDS = 0.25
"""How long all lookups of names together may hold up readings: enough for a page made once to have names."""

ENVIRONMENT = (ACCOUNT, PARTITION, *ENVIRONMENT_NAMES)


def _folder(default: str, what: str) -> Path:
    return setting(Path(default), help=what, parse=parse_path, metavar="DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Where the kernel tells what it knows; a container may have the machine's elsewhere."""

    rootfs: Path = setting(
        Path("/"), help="Folder that the machine's own root is mounted at.", parse=parse_path, metavar="DIR"
    )
    cgroup: Path = setting(
        Path("/sys/fs/cgroup"), help="Where cgroups are mounted, below the root.", parse=parse_path, metavar="DIR"
    )
    procfs: Path = setting(
        Path("/proc"), help="Where procfs is mounted, below the root.", parse=parse_path, metavar="DIR"
    )

    def below_root(self, path: Path) -> Path:
        """Return a path as this process sees it."""
        return self.rootfs / path.relative_to("/") if path.is_absolute() else path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How jobs are followed."""

    name: str = setting(
        "",
        help="Name of this node in Slurm, the label slurm_node; without it the host's name up to the first dot.",
        metavar="NAME",
    )
    interval: float = setting(
        1.0,
        help="Shortest time between two readings of all jobs, however many scrapes there are.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    grace: float = setting(
        60.0,
        help="How long the last numbers of a job that has ended are still served.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    processes: bool = setting(True, help="Read the processes of jobs: I/O, open files, threads, programs.")
    scratch: tuple[str, ...] = setting(
        ("scratch",), help="Word in the path of a file that is on scratch. May be repeated.", metavar="WORD"
    )


def node_sections() -> Iterator[Section]:
    """Yield what can be set for the node agent."""
    yield Section(name="node", type=NodeSettings)
    yield Section(name="path", type=PathSettings)
    yield Section(name="gpu", type=GpuSettings)
    yield from exporter_sections(Role.NODE)


def wire_node(config: Config) -> Wiring:
    """Start following jobs, and make every reading that a node collector can name."""
    settings, paths = config.of(NodeSettings), config.of(PathSettings)
    procfs = paths.below_root(paths.procfs)
    with ExitStack() as stack:
        tracker = stack.enter_context(open_job_tracker(_tracking_options(config, paths, settings)))
        names = NameCache(look_up_below(paths.rootfs), patience_seconds=NAME_PATIENCE_SECONDS)
        stack.callback(names.close)
        reader = ProcessReader(procfs)
        stack.callback(reader.close)
        jobs = NodeJobsReader(tracker, names.name, host_name=settings.name or _short_host_name())
        table = ProcessTableReader(reader, names.name)
        gpus = GpuReader(config.of(GpuSettings), environment=own_environment(), procfs_root=procfs)
        stack.callback(gpus.close)
        readers: dict[str, Callable[[], object]] = {
            "node_jobs": jobs.read,
            "process_groups": lambda: table.read(jobs.read_pids()),
            "gpus": gpus.read,
        }
        kept = stack.pop_all()
    return Wiring(
        readings={
            name: SharedReading(name, read, interval_seconds=settings.interval) for name, read in readers.items()
        },
        checks=lambda: check_node(jobs.read(), has_capabilities=has_capabilities(procfs)),
        is_idle=lambda: not jobs.last.jobs,
        close=kept.close,
    )


class SnapshotSource(Protocol):
    """Give all jobs of the node, read now."""

    def snapshot(self) -> NodeJobs:
        """Read them."""
        ...


class NodeJobsReader:
    """Read all jobs, and add what takes two readings or a name service."""

    def __init__(
        self,
        tracker: SnapshotSource,
        name_of: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        host_name: str = "",
    ) -> None:
        """Start with no reading before."""
        self.last = NodeJobs()
        self._tracker = tracker
        self._name_of = name_of
        self._clock = clock
        self._host_name = host_name
        self._before: dict[JobKey, tuple[float, float]] = {}

    def read_pids(self) -> frozenset[int]:
        """Return the processes of all jobs, as of the last reading or of now when there was none."""
        jobs = (self.last if self.last.jobs else self._tracker.snapshot()).jobs
        return frozenset().union(*(job.pids for job in jobs if not job.has_ended))

    def read(self) -> NodeJobs:
        """Return the jobs of this moment with the names of their users and the cores they keep busy."""
        jobs, now = self._tracker.snapshot(), self._clock()
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


def _short_host_name() -> str:
    return socket.gethostname().partition(".")[0]


def _tracking_options(config: Config, paths: PathSettings, settings: NodeSettings) -> TrackingOptions:
    has_steps = config.of(JobUseOptions, "collector.job_use").steps
    read = settings.processes
    detail = ProcessDetail(io=read, files=read, threads=read, switches=read, scratch_words=settings.scratch)
    return TrackingOptions(
        cgroup_root=paths.below_root(paths.cgroup),
        procfs_root=paths.below_root(paths.procfs),
        grace_seconds=settings.grace,
        reading=ReadingOptions(has_steps=has_steps, has_tasks=has_steps, detail=detail, environment=ENVIRONMENT),
    )
