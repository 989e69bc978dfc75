# SPDX-License-Identifier: Apache-2.0
"""Hold what one job uses on one node, as far as it could be measured.

Everything is optional: None means that the kernel, the layout or our privileges did not give it.
Totals count from the start of the job and never fall while it lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobKey:
    """Name a job on this node: its number, and what tells two lives of the same number apart.

    ``life`` is the name of the cgroup folder where that is a SLUID, else empty; ``node_name`` is set
    where several slurmd run on one machine.
    """

    job_id: int
    node_name: str = ""
    life: str = ""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Name a cgroup of a job: the whole job, one step, or one task of a step."""

    step: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """What the CPU controller and the cpuset tell; ``core_seconds`` is by core number, where the kernel has it (v1)."""

    total_seconds: float | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    core_seconds: Mapping[int, float] = field(default_factory=dict)
    cores: tuple[int, ...] | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What the memory controller tells; ``limit_bytes`` is the effective one, inherited where the own one is "max"."""

    current_bytes: int | None = None
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None
    mapped_file_bytes: int | None = None
    swap_bytes: int | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    swap_limit_bytes: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUse:
    """What one block device did for a job."""

    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupUse:
    """All that the files of one cgroup tell.

    ``pressure_seconds`` is by resource (cpu, memory, io) and kind (some, full); ``block`` by device;
    ``unreadable`` names files that are there but could not be read, with the error.
    """

    cpu: CpuUse = field(default_factory=CpuUse)
    memory: MemoryUse = field(default_factory=MemoryUse)
    pressure_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    block: Mapping[str, BlockUse] = field(default_factory=dict)
    pids: int | None = None
    pids_limit: int | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoUse:
    """What processes read and wrote, from ``/proc/PID/io``.

    ``read_chars`` and ``write_chars`` count what programs asked for, network file systems included;
    ``read_bytes`` and ``write_bytes`` what reached block devices.
    """

    read_chars: int = 0
    write_chars: int = 0
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Sum up the processes of a job, or of a process group.

    Counts that need privileges (``io``, ``open_files``, ``worst_file_ratio``, ``uses_scratch``) are None without
    them. ``threads_of`` and ``cpu_seconds_of`` are by program name, bounded.
    """

    processes: int = 0
    threads_in: Mapping[str, int] = field(default_factory=dict)
    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    threads_of: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds_of: Mapping[str, float] = field(default_factory=dict)
    threads_on_core: Mapping[int, int] = field(default_factory=dict)
    open_files: int | None = None
    distinct_files: int | None = None
    worst_file_ratio: float | None = None
    uses_scratch: bool | None = None
    io: IoUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """Hold one job on this node; ``has_ended`` marks the last numbers of a job that is gone.

    ``groups`` has the job's own cgroup under ``GroupKey()``, and steps and tasks where they were asked for.
    ``uid`` is None while no process of the job's user was seen. ``busy_cores`` is the CPU time spent since the
    reading before, in cores; None until there were two readings. ``pids`` are all its processes, slurmstepd too.
    """

    key: JobKey
    uid: int | None = None
    busy_cores: float | None = None
    has_ended: bool = False
    groups: Mapping[GroupKey, CgroupUse] = field(default_factory=dict)
    processes: ProcessUse | None = None
    pids: frozenset[int] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJobs:
    """Hold every job of this node at one moment.

    ``layout`` tells how jobs are found: ``v1``, ``v2``, ``hybrid``, ``processes`` (no job cgroups), or
    ``unsupported``. ``available`` tells for each source whether it could be read; ``users`` names the users of
    the jobs, as far as the names are known. ``host_name`` is what the node is called where its jobs do not tell:
    only several slurmd on one machine write their names into the cgroups.
    """

    jobs: tuple[JobUse, ...] = ()
    users: Mapping[int, str] = field(default_factory=dict)
    layout: str = "unsupported"
    available: Mapping[str, bool] = field(default_factory=dict)
    stale_cgroups: int = 0
    host_name: str = ""
