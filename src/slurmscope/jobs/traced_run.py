# SPDX-License-Identifier: Apache-2.0
"""Hold what ``slurmscope run`` measured of one command and of all processes that it started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.jobs.report import JobReport


class TreeSample(NamedTuple):
    """The totals of a process tree at one moment.

    CPU time and I/O count from the start of the command, ended processes included. The rest is of the processes that
    run at this moment. ``read_chars`` and ``write_chars`` are all system calls, also on pipes and on cached files;
    ``read_bytes`` and ``write_bytes`` are what storage transferred. None is not measured.
    """

    time_seconds: float
    user_seconds: float
    system_seconds: float
    resident_bytes: int
    processes: int
    threads: int
    read_chars: int | None = None
    write_chars: int | None = None
    reads: int | None = None
    writes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time in user mode and in the kernel."""
        return self.user_seconds + self.system_seconds


class GpuUse(NamedTuple):
    """What a command has used so far of one GPU or MIG instance; None is not measured.

    ``totals`` are seconds, bytes and joules by name since the command started; they are estimates where processes of
    others worked on the GPU too, and empty where that is unknown.
    """

    gpu: str
    memory_bytes: int | None
    totals: Mapping[str, float]
    is_shared: bool = False
    mig: str = ""
    uuid: str = ""
    model: str = ""
    memory_size_bytes: int | None = None

    @property
    def device(self) -> tuple[str, str]:
        """Return what identifies it on its node."""
        return self.gpu, self.mig


class GpuSample(NamedTuple):
    """The GPUs on which the command has had a context, at one moment."""

    time_seconds: float
    gpus: tuple[GpuUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a command may use: cores, and memory with the origin of its limit."""

    cores: float
    memory_bytes: int | None = None
    memory_origin: str = ""
    """What sets the memory limit: cgroup, ulimit, or machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmContext:
    """What the environment of a job step says about it; everything is absent outside of Slurm."""

    job_id: int | None = None
    step_id: str = ""
    rank: int | None = None
    tasks: int = 1
    cluster: str = ""
    account: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """Keep one run of a command, from start to end; ``samples`` are thinned and end with the final totals."""

    command: tuple[str, ...]
    host: str
    user: str
    work_dir: str
    start_seconds: float
    """Unix time."""
    wall_seconds: float
    exit_code: int
    exit_signal: int
    allowance: Allowance
    slurm: SlurmContext
    samples: tuple[TreeSample, ...]
    peak_resident_bytes: int | None = None
    peak_processes: int = 0
    peak_threads: int = 0
    program_threads: Mapping[str, int] = field(default_factory=dict)
    """Mean number of threads over the run, by program."""
    gpu_samples: tuple[GpuSample, ...] = ()
    """Empty where no process used a GPU, or GPUs could not be read."""
    oom_kills: int | None = None
    processes_left: int = 0
    """Processes that still ran when the command ended."""
    problems: tuple[str, ...] = ()
    """Sentences: what was not measured, and why."""
    losses: tuple[str, ...] = ()
    """Sentences: what was measured but not sent, and why."""

    @property
    def last(self) -> TreeSample:
        """Return the final totals."""
        return self.samples[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """What the report of a command has in addition to that of a job."""

    command: tuple[str, ...]
    start_seconds: float
    exit_code: int
    exit_signal: int
    cores: float
    memory_limit_bytes: int | None
    memory_limit_origin: str
    peak_processes: int
    peak_threads: int
    storage_read_bytes: float | None
    storage_write_bytes: float | None
    processes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The report of a command: that of a job, and its details."""

    report: JobReport
    run: RunDetails
