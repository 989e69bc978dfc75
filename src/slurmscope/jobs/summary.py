# SPDX-License-Identifier: Apache-2.0
"""Hold what one run of a job requested, what it used, and how completely that was measured.

None means not measured; 0 is a measured zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmscope.jobs.checkpoints import Checkpoints
from slurmscope.jobs.processes import HeldTask, ProfileSummary, SilentPart, SlowPart, TraceSummary
from slurmscope.jobs.record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """On how many nodes, and for how much of the run (0 to 1), something was measured."""

    nodes: int
    nodes_measured: int
    run_ratio: float

    @property
    def is_good(self) -> bool:
        """Return whether rules may use it: every node, and nearly all of the run, was measured."""
        return self.nodes_measured >= self.nodes > 0 and self.run_ratio >= 0.8


NOT_COVERED = Coverage(nodes=0, nodes_measured=0, run_ratio=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedShare:
    """Compare what was used with what was requested, in the same unit."""

    requested: float | None = None
    used: float | None = None
    coverage: Coverage | None = None
    """None where the value comes from Slurm's accounting."""

    @property
    def ratio(self) -> float | None:
        """Return used over requested; None when either is unknown."""
        return self.used / self.requested if self.used is not None and self.requested else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSummary:
    """CPU time in seconds (``time``: out of cores times run time), and busy cores."""

    time: UsedShare = field(default_factory=UsedShare)
    user_seconds: float | None = None
    system_seconds: float | None = None
    mean_cores: float | None = None
    peak_cores: float | None = None
    cores_used: int | None = None
    """Cores that did at least 80 % of a fair share of the work; None where cores were not measured separately."""
    idle_tail_seconds: float | None = None
    """How long the job was idle before its end (or now); 0 when it worked to the end."""
    idle_start_seconds: float | None = None
    """How long the job was idle before it began to work; 0 when it worked from the start."""
    queue_ratio: float | None = None
    """Share of the time in which its threads could run and had no core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySummary:
    """Memory measured in three ways, in bytes, summed over nodes.

    ``requested_bytes`` is what Slurm allocated. ``charged_peak_bytes`` is the kernel's peak of the cgroup, including
    file cache. ``working_peak_bytes`` is what the job really needed: the highest sum of anonymous and shared memory, or
    the kernel's peak where the file cache does not explain the rest of it. ``slurm_peak_bytes`` is Slurm's MaxRSS: the
    peak of its largest task, as sampled.
    """

    requested_bytes: float | None = None
    limit_bytes: float | None = None
    charged_peak_bytes: float | None = None
    working_peak_bytes: float | None = None
    slurm_peak_bytes: float | None = None
    slurm_peak_is_whole: bool = True
    """Whether MaxRSS covers the job: not when it ran several tasks at a time, of which MaxRSS is one."""
    growth_ratio: float | None = None
    """Working memory of the last tenth of the run divided by that of its middle; above 1 if it grew to the end."""
    expected_bytes: float | None = None
    """What a killed job would have needed on its fullest node by its time limit; None unless it grew steadily."""
    shared_peak_bytes: float | None = None
    """The part of the needed memory that is shared memory or files in tmpfs, such as /dev/shm, at its highest."""
    is_bounded: bool = False
    """Whether the kernel's peak of every node is known, and that of an ended job to its end: samples alone may miss any
    peak.
    """
    refaults_per_second: Mapping[str, float] = field(default_factory=dict)
    """Pages that were read again soon after they were reclaimed, on the node with most: ``anon`` and ``file``."""
    oom_kills: int | None = None
    is_out_of_memory: bool = False
    """Whether Slurm reports that the job ran out of memory."""
    coverage: Coverage = NOT_COVERED

    @property
    def best_peak_bytes(self) -> float | None:
        """Return the best known need: working memory, else MaxRSS, else what the kernel charged.

        Samples may miss a peak that Slurm saw; even that of one task is memory that the job needed. A process that was
        OOM-killed had nothing left to reclaim: then the kernel's peak is the need, and samples are of what is left.
        """
        if self.charged_peak_bytes is not None and (self.oom_kills or self.is_out_of_memory):
            return max(self.charged_peak_bytes, self.working_peak_bytes or 0.0, self.slurm_peak_bytes or 0.0)
        if self.working_peak_bytes is not None:
            return max(self.working_peak_bytes, self.slurm_peak_bytes or 0.0)
        if self.slurm_peak_bytes is not None and self.slurm_peak_is_whole:
            return self.slurm_peak_bytes
        return self.charged_peak_bytes

    @property
    def ratio(self) -> float | None:
        """Return the best known need over what was requested."""
        peak = self.best_peak_bytes
        return peak / self.requested_bytes if peak is not None and self.requested_bytes else None


def _share(used: float | None, size: float | None) -> float | None:
    return used / size if used is not None and size else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """Which parts of a GPU were at work, as shares of the run; None where the GPU does not count it.

    ``busy_ratio`` is the time in which a kernel ran, ``sm_ratio`` that in which multiprocessors worked, as a mean over
    them. Parts of a shared GPU are estimates.
    """

    busy_ratio: float | None = None
    sm_ratio: float | None = None
    tensor_ratio: float | None = None
    fp32_ratio: float | None = None
    dram_ratio: float | None = None
    """Share of the bandwidth of GPU memory."""
    energy_joules: float | None = None
    pcie_bytes: float | None = None
    """What went over PCIe, both ways."""
    throttled_seconds: Mapping[str, float] = field(default_factory=dict)
    """Time at reduced clocks, by reason as the driver names it; of several GPUs the mean."""
    is_from_dcgm: bool = False
    """Whether the parts at work, without ``busy_ratio``, are those that the site's dcgm-exporter measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpu:
    """The use of one GPU or MIG instance that the job held; ``gpu`` is the nvidia-smi index."""

    node: str
    gpu: str
    mig: str = ""
    """GPU instance and compute instance of a MIG instance; empty for a whole GPU."""
    uuid: str = ""
    model: str = ""
    mean_utilization: float | None = None
    """The job's part where other jobs shared it; an estimate."""
    peak_memory_bytes: float | None = None
    memory_size_bytes: float | None = None
    jobs: int | None = None
    """The most jobs that held it at the same time, including this one."""
    work: GpuWork = GpuWork()
    uncounted: str = ""
    """The agent's word for why the job's work on it was not counted; empty where it was."""
    stuck_seconds: float | None = None
    """The longest time in which a kernel ran and did nothing; None where that cannot be known."""
    stuck_since_seconds: float | None = None
    """When that time began."""

    @property
    def memory_ratio(self) -> float | None:
        """Return the peak over the size; None when either is unknown."""
        return _share(self.peak_memory_bytes, self.memory_size_bytes)


MIN_STUCK_SECONDS = 600.0
"""A GPU that is busy doing nothing for a shorter time may wait for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """An error that the driver reported of a GPU while the job held it; ``last_seconds`` is when it last did."""

    node: str
    gpu: str
    xid: int
    mig: str = ""
    count: int = 1
    last_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpus:
    """Sum up GPUs without a row of their own; None where one of them was not measured."""

    count: int
    mean_utilization: float | None = None
    peak_memory_bytes: float | None = None
    """Sum of the peaks."""
    memory_size_bytes: float | None = None
    work: GpuWork = GpuWork()

    @property
    def memory_ratio(self) -> float | None:
        """Return the peaks over the sizes; None when either is unknown."""
        return _share(self.peak_memory_bytes, self.memory_size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """The use of the job's GPUs: utilization 0 to 1, mean over all GPUs and the run."""

    requested: int = 0
    mean_utilization: float | None = None
    peak_memory_bytes: float | None = None
    memory_size_bytes: float | None = None
    """Memory of all GPUs that the job held; None unless the size of each is known."""
    held_idle: int | None = None
    """GPUs that had no process of the job for most of the run."""
    devices: tuple[HeldGpu, ...] = ()
    others: OtherGpus | None = None
    """The remaining GPUs, none of them less busy than those in ``devices``."""
    work: GpuWork = GpuWork()
    """Of all GPUs: means of shares, sums of energy and bytes."""
    faults: tuple[GpuFault, ...] = ()
    """Errors in the order of their time, the earliest first."""
    coverage: Coverage = NOT_COVERED

    @property
    def memory_ratio(self) -> float | None:
        """Return the peak over the memory of all GPUs; None when either is unknown."""
        return _share(self.peak_memory_bytes, self.memory_size_bytes)

    @property
    def least_utilization(self) -> float | None:
        """Return the utilization of the least used GPU; None where GPUs were not measured one by one."""
        return min((one.mean_utilization for one in self.devices if one.mean_utilization is not None), default=None)

    @property
    def stuck_seconds(self) -> float:
        """Return the time in which GPUs were stuck, summed up over them: they seem busy then, and do nothing."""
        times = (device.stuck_seconds or 0.0 for device in self.devices)
        return math.fsum(seconds for seconds in times if seconds >= MIN_STUCK_SECONDS)

    @property
    def is_shared(self) -> bool:
        """Return whether other jobs held one of the GPUs at the same time."""
        return any((device.jobs or 0) > 1 for device in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySummary:
    """Energy of the job on all of its nodes, in joules, and what it means by the numbers of the site."""

    gpu_joules: float | None = None
    rest_joules: float | None = None
    """Its share of what the nodes used besides their GPUs, an estimate; None where a node has no meter."""
    covers: str = ""
    """What the meters measure: ``node``, ``processors`` (with memory), or ``gpus`` where a node has no other one."""
    is_estimated: bool = False
    """Whether a part is a share by time: of a node, or of a GPU that other jobs used as well."""
    coverage: Coverage = NOT_COVERED
    pue: float = 1.0
    """Power usage effectiveness of the site, by which carbon and cost exceed those of the nodes."""
    grams_per_kwh: float | None = None
    carbon_grams: float | None = None
    cost: float | None = None
    currency: str = ""

    @property
    def total_joules(self) -> float | None:
        """Return the energy of all parts that are measured; None without any."""
        parts = [joules for joules in (self.gpu_joules, self.rest_joules) if joules is not None]
        return sum(parts) if parts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemSummary:
    """The job's use of one shared file system, as its servers counted it; peaks are per second."""

    name: str
    read_bytes: float | None = None
    write_bytes: float | None = None
    metadata_operations: float | None = None
    peak_read_bytes: float | None = None
    peak_write_bytes: float | None = None
    peak_metadata_operations: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSummary:
    """What the job read and wrote by system calls, on any file system, and how many files it had open."""

    read_bytes: float | None = None
    write_bytes: float | None = None
    reads: float | None = None
    writes: float | None = None
    storage_bytes: float | None = None
    """What file systems fetched or had to write, both together: not pipes, devices, tmpfs or what was cached."""
    peak_open_files: float | None = None
    mean_open_files: float | None = None
    uses_scratch: bool | None = None
    metadata_operations: float | None = None
    """Open, stat, create and remove requests, where the file system counts them per job."""
    filesystems: tuple[FilesystemSummary, ...] = ()
    """Shared file systems that count the use of each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """One node's part; ``core_seconds`` is CPU time by core number (cgroup v1 only)."""

    node: str
    cpus: float | None = None
    cpu_seconds: float | None = None
    mean_cores: float | None = None
    working_peak_bytes: float | None = None
    limit_bytes: float | None = None
    gpu_utilization: float | None = None
    gpu_memory_size_bytes: float | None = None
    """Memory of the job's GPUs on this node."""
    read_bytes: float | None = None
    write_bytes: float | None = None
    core_seconds: Mapping[str, float] = field(default_factory=dict)
    run_ratio: float = 0.0
    """Share of the run for which this node was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """Everything that rules and reports need about one run of a job."""

    record: JobRecord
    run_seconds: float
    """Run time, until now for a running job; 0 when it never started."""
    time: UsedShare = field(default_factory=UsedShare)
    cpu: CpuSummary = field(default_factory=CpuSummary)
    memory: MemorySummary = field(default_factory=MemorySummary)
    gpu: GpuSummary = field(default_factory=GpuSummary)
    io: IoSummary = field(default_factory=IoSummary)
    energy: EnergySummary = field(default_factory=EnergySummary)
    nodes: tuple[NodeSummary, ...] = ()
    program_threads: Mapping[str, float] = field(default_factory=dict)
    """Peak number of threads, by program."""
    mean_running_threads: float | None = None
    sent_bytes: Mapping[str, float] = field(default_factory=dict)
    """What its nodes sent, by transport; empty unless it was alone on all of them."""
    held: tuple[HeldTask, ...] = ()
    """Processes that were held, the longest first."""
    slow_parts: tuple[SlowPart, ...] = ()
    """Nodes and GPUs that the others probably waited for, the slowest first."""
    oversubscribed_nodes: tuple[SlowPart, ...] = ()
    """Nodes where threads waited for a core, which others had, the worst first."""
    silent_parts: tuple[SilentPart, ...] = ()
    """Nodes and GPUs that stopped working before the others, the first one first."""
    checkpoints: Checkpoints | None = None
    traces: TraceSummary = field(default_factory=TraceSummary)
    profile: ProfileSummary = field(default_factory=ProfileSummary)
    coverage: Coverage = NOT_COVERED
    """Coverage of CPU time, which other measurements share."""
    node_cpus: float | None = None
    """Cores of the smallest node that the job ran on, with those of other jobs."""
    node_memory_bytes: float | None = None
    """Memory of the smallest node that the job ran on, with that of other jobs."""

    @property
    def end_seconds(self) -> float:
        """Return when the run ended, or until when it was summarized; curves continue while a job is suspended."""
        return (self.record.start_seconds or 0) + self.run_seconds + self.record.suspended_seconds
