# SPDX-License-Identifier: Apache-2.0
"""Set up the readings of the node agent: its jobs, its processes and its GPUs."""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from slurmscope.core.check import Check
from slurmscope.core.config import Config
from slurmscope.core.errors import SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import Section
from slurmscope.core.user_names import NameCache, look_up_below
from slurmscope.exporter.collector import find_collectors
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import raise_open_files_limit
from slurmscope.exporter.settings import Switch, WebSettings
from slurmscope.http.server.gate import open_gate
from slurmscope.node.cgroup.folders import read_numa_nodes
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, detect_layout, in_hierarchy
from slurmscope.node.changes import ChangeWatcher
from slurmscope.node.checks import (
    ProcessSources,
    cgroup_sources,
    check_energy,
    check_gpus,
    check_mount,
    check_namespace,
    check_node,
    has_capabilities,
)
from slurmscope.node.energy import NodeEnergy
from slurmscope.node.energy_meters import EnergyReader
from slurmscope.node.filesystems import FilesystemReader
from slurmscope.node.gpu.attribution import ENVIRONMENT_NAMES, Numbering, map_gpus
from slurmscope.node.gpu.collector import GpusOptions
from slurmscope.node.gpu.drm_clients import choose_processes
from slurmscope.node.gpu.nvml import CHILD
from slurmscope.node.gpu.reader import GpuReader
from slurmscope.node.gpu.records import Gpus
from slurmscope.node.hardware.collector import COLLECTOR as HARDWARE
from slurmscope.node.hardware.collector import HardwareUse
from slurmscope.node.job_finder import JobFinder, JobMeter, ReadingOptions
from slurmscope.node.job_registry import JobRegistry, NodeJobsReader
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.jobs import ACCOUNT, PARTITION, JobUseOptions, find_needs
from slurmscope.node.kept_totals import TotalsFile, find_totals_file, read_boot_id
from slurmscope.node.kernel_files import HangGuard
from slurmscope.node.mounts import read_mounts
from slurmscope.node.nccl.collector import COLLECTOR as NCCL_RAS
from slurmscope.node.nccl.collector import RasState
from slurmscope.node.nccl.inspector import Inspected, InspectorOptions, InspectorReader
from slurmscope.node.network import NetworkReader, NodeNetwork
from slurmscope.node.process_groups import ProcessTableReader
from slurmscope.node.procfs.job_scan import ProcessDetail
from slurmscope.node.procfs.pid_namespace import PidNamespace
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdTree
from slurmscope.node.progress import ProgressReader
from slurmscope.node.settings import NodeSettings, PathSettings, PrivacySettings
from slurmscope.node.tracker import STORM_BURST_SECONDS, STORM_SHARE, CpuBudget, JobTracker
from slurmscope.slurm.config import PrivateData

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

NAME_PATIENCE_SECONDS = 0.25
"""How long all user name lookups together may delay a reading: enough for a single page to have names."""

KEPT_FILES = 4096
"""Files of cgroups that stay open between readings; each takes about 5 kB of kernel memory."""

KEPT_PROCESSES = 512
"""Processes of jobs whose files stay open between readings; each takes three descriptors and 10 kB."""

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
            Section(name="slurm", type=PrivacySettings),
        ),
        collectors=find_collectors(
            "slurmscope.node",
            "slurmscope.node.gpu.collector",
            "slurmscope.node.hardware.collector",
            "slurmscope.node.nccl.collector",
            "slurmscope.node.nccl.inspector",
        ),
        open=_open,
    )


def _open(host: Host) -> Running:
    """Start tracking jobs."""
    settings, paths = host.config.of(NodeSettings), host.config.of(PathSettings)
    procfs = paths.below_root(paths.procfs)
    layout = detect_layout(paths.below_root(paths.cgroup), procfs)
    for problem in check_namespace(procfs):
        logger.warning(problem.message, extra=fields(advice=problem.advice))
    node_name = settings.name or socket.gethostname().partition(".")[0]
    with ExitStack() as stack:
        tracker = stack.enter_context(open_job_tracker(_tracking_options(host)))
        names = NameCache(look_up_below(paths.rootfs), patience_seconds=NAME_PATIENCE_SECONDS)
        stack.callback(names.close)
        jobs = NodeJobsReader(tracker.snapshot, names.name, host_name=node_name)
        readings = _open_readings(host, tracker, jobs, layout, stack)
        private_data = _find_private_data(host, paths.rootfs)

        def checks() -> Iterator[Check]:
            yield from check_namespace(procfs)
            yield from check_mount(paths.below_root(paths.cgroup), layout.kind)
            yield from _checks(jobs, procfs, node_name, host.environment)
            if private_data is not None:
                yield private_data.check(are_clients_authenticated=_are_clients_authenticated(host.config))
            yield from check_gpus(read_gpus(readings["gpus"]))
            yield from check_energy(read_value(readings["energy"], NodeEnergy))

        return Running(
            readings=tuple(readings.values()),
            hidden_labels=lambda _, audience: private_data.hidden_labels(audience) if private_data else frozenset(),
            checks=checks,
            is_idle=lambda: not jobs.last.jobs,
            close=stack.pop_all().close,
        )


def _open_readings(
    host: Host, tracker: JobTracker, jobs: NodeJobsReader, layout: CgroupLayout, stack: ExitStack
) -> dict[str, SharedReading]:
    """Return the readings of the node by name: first its jobs, of which all others need to know."""
    config, paths = host.config, host.config.of(PathSettings)
    procfs, sysfs = paths.below_root(paths.procfs), paths.below_root(Path("/sys"))
    readings: dict[str, SharedReading] = {}

    def share(name: str, read: Callable[[], object]) -> SharedReading:
        readings[name] = SharedReading(name, read, interval_seconds=config.of(NodeSettings).interval)
        return readings[name]

    node_jobs = share("node_jobs", jobs.read)
    numbering = Numbering(config.of(GpusOptions).slurm_numbers)
    gpu_reader = open_gpus(node_jobs, layout, host.environment, procfs, sysfs=sysfs, numbering=numbering)
    stack.callback(gpu_reader.close)
    known_jobs, gpus = partial(read_jobs, node_jobs), partial(read_gpus, share("gpus", gpu_reader.read))
    processes = ProcessReader(procfs, HangGuard(procfs))
    stack.callback(processes.close)
    table = ProcessTableReader(processes, jobs.name_of)
    share("process_groups", lambda: table.read(find_pids(node_jobs)))
    share("filesystems", FilesystemReader(partial(read_mounts, procfs), lambda: tracker.roster, jobs.last_pids).read)
    network = share("network", NetworkReader(sysfs, procfs, lambda: tracker.roster).read)
    read_ras = _open_ras(host, node_jobs)
    nccl_ras = share("nccl_ras", read_ras or RasState)
    running = partial(read_running, node_jobs)
    directory = config.of(InspectorOptions).directory
    inspector = InspectorReader(paths.below_root(directory), running).read if directory else Inspected
    share("nccl_inspector", inspector)
    share("hardware", _open_hardware(host, running, sysfs, stack))
    energy = EnergyReader(paths.rootfs, procfs, known_jobs, gpus)
    stack.callback(energy.close)
    share("energy", energy.read)
    operations: Callable[[], Mapping[JobKey, float]] = partial(_read_operations, nccl_ras) if read_ras else dict
    share("progress", ProgressReader(known_jobs, gpus, partial(read_value, network, NodeNetwork), operations).read)
    return readings


def _find_private_data(host: Host, rootfs: Path) -> PrivateData | None:
    respects = host.config.of(PrivacySettings).private_data == "respect"
    return PrivateData(host.environment, rootfs) if respects else None


def _are_clients_authenticated(config: Config) -> bool:
    try:
        return open_gate(config.of(WebSettings).config_file)().are_clients_authenticated
    except SlurmscopeError:  # which has a check of its own
        return False


def _read_operations(nccl_ras: SharedReading) -> Mapping[JobKey, float]:
    state = read_value(nccl_ras, RasState)
    return state.operations() if state else {}


def _open_ras(host: Host, node_jobs: SharedReading) -> Callable[[], RasState] | None:
    """Return what queries NCCL's RAS service, if that is enabled."""
    if not host.config.of(Switch, f"collector.{NCCL_RAS.name}").enabled:
        return None
    from slurmscope.node.nccl.ras import RasReader

    return RasReader(partial(read_running, node_jobs)).read


def _open_hardware(
    host: Host, running: Callable[[], list[JobUse]], sysfs: Path, stack: ExitStack
) -> Callable[[], HardwareUse]:
    """Return what counts events of the processor, if that is enabled."""
    if not host.config.of(Switch, f"collector.{HARDWARE.name}").enabled:
        return HardwareUse
    from slurmscope.node.hardware.reader import HardwareReader

    reader = HardwareReader(running, sysfs)
    stack.callback(reader.close)
    return reader.read


def _checks(jobs: NodeJobsReader, procfs: Path, node_name: str, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check how jobs are detected, what can be read of them, and that Slurm knows this node."""
    yield from check_node(jobs.read(), has_capabilities=has_capabilities(procfs))
    # Only the doctor runs Slurm commands here, the agent never does.
    from slurmscope.node.checks import check_node_name
    from slurmscope.slurm.command import SlurmCommands, SlurmSettings

    commands = SlurmCommands(SlurmSettings(), environment)
    yield from check_node_name(commands.run, node_name, socket.gethostname())


def read_jobs(node_jobs: SharedReading) -> NodeJobs:
    """Return the jobs now, or at the last good reading; raise SourceError if there is none."""
    node_jobs.request()
    snapshot = node_jobs.wait(time.monotonic() + RUNNING_SECONDS)
    if not isinstance(snapshot.value, NodeJobs):
        raise SourceError(f"the jobs of this node are not known: {snapshot.error}")
    return snapshot.value


def read_running(node_jobs: SharedReading) -> list[JobUse]:
    """Return the running jobs; raise SourceError if they are not known."""
    return [job for job in read_jobs(node_jobs).jobs if not job.has_ended]


def read_gpus(node_gpus: SharedReading) -> Gpus:
    """Return the GPUs now, or at the last good reading; none if they are not known."""
    return read_value(node_gpus, Gpus) or Gpus()


def read_value(reading: SharedReading, kind: type[Value]) -> Value | None:
    """Return what is read now, or the last good value; None if it is not known."""
    reading.request()
    value = reading.wait(time.monotonic() + RUNNING_SECONDS).value
    return value if isinstance(value, kind) else None


def find_pids(node_jobs: SharedReading) -> frozenset[int]:
    """Return the processes of all jobs."""
    return frozenset().union(*(job.pids for job in read_running(node_jobs)))


def open_gpus(  # noqa: PLR0913 - the last ones by keyword
    node_jobs: SharedReading,
    layout: CgroupLayout,
    environment: Mapping[str, str],
    procfs_root: Path,
    argv: Sequence[str] = CHILD,
    *,
    sysfs: Path = Path("/sys"),
    numbering: Numbering = Numbering.AUTO,
) -> GpuReader:
    """Return a reader of GPUs that knows the jobs of this node; the caller closes it."""

    def known() -> NodeJobs:
        try:
            return read_jobs(node_jobs)
        except SourceError:  # which has its own metrics; GPUs are read all the same
            return NodeJobs()

    def running() -> list[JobUse]:
        return [job for job in known().jobs if not job.has_ended]

    def job_cgroups() -> dict[JobKey, Path]:
        folders = {job.key: Path(job.cgroup) for job in running() if job.cgroup}
        if not layout.hierarchies:
            return folders
        found = {key: in_hierarchy(layout, folder, "devices") for key, folder in folders.items()}
        return {key: folder for key, folder in found.items() if folder}

    def find_owners() -> dict[int, JobKey]:
        return {pid: job.key for job in running() for pid in job.pids}

    return GpuReader(
        environment=environment,
        procfs_root=procfs_root,
        sysfs=sysfs,
        job_cgroups=job_cgroups,
        job_pids=lambda: choose_processes((job.uid, job.pids) for job in running()),
        find_owners=find_owners,
        find_holds=lambda gpus: map_gpus(gpus, known(), numbering),
        argv=argv,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """Where jobs are found, what is read of each, and how long an ended job is served."""

    cgroup_root: Path = Path("/sys/fs/cgroup")
    procfs_root: Path = Path("/proc")
    grace_seconds: float = 60.0
    descriptors: int = KEPT_FILES
    kept_processes: int = 0
    storm_share: float = STORM_SHARE
    totals_file: Path | None = None
    """Where totals of ended processes are kept over a restart of the agent; None keeps none."""
    unneeded_files: frozenset[str] = frozenset()
    numa_nodes: Mapping[int, int] = field(default_factory=dict)
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@contextmanager
def open_job_tracker(options: TrackingOptions) -> Iterator[JobTracker]:
    """Track jobs until the block ends."""
    with ExitStack() as stack:
        guard = HangGuard(options.procfs_root)
        reader = ProcessReader(options.procfs_root, guard, most_kept=options.kept_processes)
        stack.callback(reader.close)
        layout = detect_layout(options.cgroup_root, options.procfs_root)
        tree = CgroupTree(
            layout,
            options.procfs_root,
            descriptors=options.descriptors,
            unneeded=options.unneeded_files,
            numa_nodes=options.numa_nodes,
            shows_jobs=PidNamespace(reader).shows_jobs,
            guard=guard,
        )
        stack.callback(tree.close)
        stepds = StepdTree(reader)
        stack.callback(stepds.close)
        finder = JobFinder(tree, stepds)
        registry = JobRegistry(finder, lambda: JobMeter(reader, options.reading), grace_seconds=options.grace_seconds)
        registry.resume(TotalsFile(options.totals_file, read_boot_id(options.procfs_root)))
        registry.errors.include("process", reader.denials.faults)
        registry.errors.include("cgroup", tree.refusals)
        sources = ProcessSources(reader)

        def available() -> dict[str, bool]:
            unreadable = {file for tracked in registry.live for file, _ in tracked.unreadable()}
            measures = cgroup_sources(tree.measures(), unreadable)
            return measures | sources.available(has_jobs=bool(registry.live))

        def cpu_clock() -> float:
            return time.thread_time() + guard.cpu_seconds

        budget = CpuBudget(options.storm_share, STORM_BURST_SECONDS, cpu_clock=cpu_clock)
        yield stack.enter_context(JobTracker(finder, registry, ChangeWatcher(), available=available, budget=budget))


def _tracking_options(host: Host) -> TrackingOptions:
    settings, paths = host.config.of(NodeSettings), host.config.of(PathSettings)
    wanted = find_needs(host.is_wanted)
    has_steps = wanted.steps and host.config.of(JobUseOptions, "collector.job_use").steps
    read = settings.processes
    most_files = raise_open_files_limit(3 * KEPT_FILES)
    detail = ProcessDetail(
        io=read,
        files=read,
        threads=read,
        switches=read and wanted.switches,
        queue=read and wanted.queue,
        scratch_words=settings.scratch,
    )
    return TrackingOptions(
        cgroup_root=paths.below_root(paths.cgroup),
        procfs_root=paths.below_root(paths.procfs),
        grace_seconds=settings.grace,
        # The rest is for connections, processes that are watched, and files that are opened for each read.
        descriptors=min(KEPT_FILES, most_files // 3),
        kept_processes=min(KEPT_PROCESSES, most_files // 9),
        totals_file=find_totals_file(host.environment),
        unneeded_files=wanted.unneeded_files,
        numa_nodes=read_numa_nodes(paths.below_root(Path("/sys"))),
        reading=ReadingOptions(has_steps=has_steps, has_tasks=has_steps, detail=detail, environment=ENVIRONMENT),
    )
