# SPDX-License-Identifier: Apache-2.0
"""Hold what one run of a job asked for, what it used, and how well that is known.

Every number that may be missing is None when it was not measured; 0 is a measured zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmscope.model.job_record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Tell on how many nodes, and for how much of the run (0 to 1), something was measured."""

    nodes: int
    nodes_measured: int
    run_ratio: float

    @property
    def is_good(self) -> bool:
        """Tell whether conclusions may be drawn: every node, and nearly all of the run."""
        return self.nodes_measured >= self.nodes > 0 and self.run_ratio >= 0.8


NOT_COVERED = Coverage(nodes=0, nodes_measured=0, run_ratio=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedShare:
    """Compare what was used with what was asked for, in the same unit."""

    asked: float | None = None
    used: float | None = None
    coverage: Coverage | None = None
    """None where the number comes from Slurm's accounting."""

    @property
    def ratio(self) -> float | None:
        """Return used over asked; None when either is not known."""
        return self.used / self.asked if self.used is not None and self.asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSummary:
    """Hold CPU time in seconds (``time``: cores times run time was asked), and cores busy at once."""

    time: UsedShare = field(default_factory=UsedShare)
    user_seconds: float | None = None
    system_seconds: float | None = None
    mean_cores: float | None = None
    peak_cores: float | None = None
    cores_used: int | None = None
    """Cores that did at least 80 % of a fair share of the work; None where single cores were not measured."""
    idle_tail_seconds: float | None = None
    """How long before the end (or now) the job had stopped computing; 0 when it worked to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySummary:
    """Hold memory in three ways, in bytes, summed over nodes.

    ``asked_bytes`` is what Slurm allocated. ``charged_peak_bytes`` is the kernel's peak of the cgroup, file cache
    included. ``working_peak_bytes`` is the highest sum of anonymous and shared memory: what the job really needs.
    ``slurm_peak_bytes`` is Slurm's MaxRSS: its largest task at the moments Slurm looked.
    """

    asked_bytes: float | None = None
    limit_bytes: float | None = None
    charged_peak_bytes: float | None = None
    working_peak_bytes: float | None = None
    slurm_peak_bytes: float | None = None
    slurm_peak_is_whole: bool = True
    """Whether Slurm's figure can stand for the job: not when it had several tasks at a time, of which it is one."""
    growth_ratio: float | None = None
    """Working memory of the last tenth of the run over that of its middle; above 1 it grew to the end."""
    oom_kills: int | None = None
    coverage: Coverage = NOT_COVERED

    @property
    def best_peak_bytes(self) -> float | None:
        """Return the best known need: working memory, else Slurm's own figure, else what the kernel charged.

        Samples may miss a peak that Slurm saw; even that of one task is memory that the job needed.
        """
        if self.working_peak_bytes is not None:
            return max(self.working_peak_bytes, self.slurm_peak_bytes or 0.0)
        if self.slurm_peak_bytes is not None and self.slurm_peak_is_whole:
            return self.slurm_peak_bytes
        return self.charged_peak_bytes

    @property
    def ratio(self) -> float | None:
        """Return the best known need over what was asked for."""
        peak = self.best_peak_bytes
        return peak / self.asked_bytes if peak is not None and self.asked_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """Hold the use of the job's GPUs: utilisation 0 to 1, mean over all of them and the run."""

    asked: int = 0
    mean_utilization: float | None = None
    peak_memory_bytes: float | None = None
    held_idle: int | None = None
    """GPUs that were held for most of the run without any process on them."""
    coverage: Coverage = NOT_COVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSummary:
    """Hold what the job read and wrote by calls, on any file system, and how many different files it had open."""

    read_bytes: float | None = None
    write_bytes: float | None = None
    reads: float | None = None
    writes: float | None = None
    peak_open_files: float | None = None
    mean_open_files: float | None = None
    uses_scratch: bool | None = None
    metadata_operations: float | None = None
    """Opens, stats, creates and removes on a file system that counts them per job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """Hold one node's part; ``core_seconds`` is CPU time by core number where the kernel tells."""

    node: str
    cpus: float | None = None
    cpu_seconds: float | None = None
    mean_cores: float | None = None
    working_peak_bytes: float | None = None
    limit_bytes: float | None = None
    gpu_utilization: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    core_seconds: Mapping[str, float] = field(default_factory=dict)
    run_ratio: float = 0.0
    """For how much of the run this node was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """Hold everything that rules and reports need about one run of one job."""

    record: JobRecord
    run_seconds: float
    """How long it ran, or runs until now; 0 when it never started."""
    time: UsedShare = field(default_factory=UsedShare)
    cpu: CpuSummary = field(default_factory=CpuSummary)
    memory: MemorySummary = field(default_factory=MemorySummary)
    gpu: GpuSummary = field(default_factory=GpuSummary)
    io: IoSummary = field(default_factory=IoSummary)
    nodes: tuple[NodeSummary, ...] = ()
    program_threads: Mapping[str, float] = field(default_factory=dict)
    """Most threads at once, by program."""
    mean_running_threads: float | None = None
    coverage: Coverage = NOT_COVERED
    """Of CPU time, which every other measurement follows."""
