# SPDX-License-Identifier: Apache-2.0
"""Hold what one job uses on one node, as far as it could be measured.

Everything is optional: None means that the kernel, the layout or our privileges did not provide it. Totals count from
the start of the job and never decrease while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class JobKey:
    """Identify a job on this node.

    ``sluid`` distinguishes two runs of the same job ID: it is the name of the cgroup directory if Slurm uses SLUIDs,
    else empty. ``node_name`` is set if several slurmd run on one machine.
    """

    job_id: int
    node_name: str = ""
    sluid: str = ""


class Roster(NamedTuple):
    """Hold which jobs run on a node, as far as it takes to know whether one was alone between two moments.

    ``begun`` counts the jobs that began since the agent started, ``last`` is the newest of them; ``alone`` is the only
    running job.
    """

    begun: int = 0
    running: int = 0
    last: JobKey | None = None
    alone: JobKey | None = None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Identify a cgroup of a job: the whole job, one step, or one task of a step."""

    step: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Hold values of the CPU controller and the cpuset; ``core_seconds`` is by core number (cgroup v1 only)."""

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
    """Hold values of the memory controller; ``limit_bytes`` is the effective limit, inherited if its own is "max"."""

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
    """Hold the I/O of a job on one block device."""

    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupUse:
    """Hold all values of one cgroup.

    ``pressure_seconds`` is by resource (cpu, memory, io) and kind (some, full); ``block`` by device; ``unreadable``
    maps files that exist but could not be read to the error.
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
    """Hold what processes read and wrote, from ``/proc/PID/io``.

    ``read_chars`` and ``write_chars`` count bytes of system calls, on any file system; ``read_bytes`` and
    ``write_bytes`` count bytes that reached block devices.
    """

    read_chars: int = 0
    write_chars: int = 0
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Hold sums over the processes of a job, or of a process group.

    Counts that need privileges (``io``, ``open_files``, ``worst_file_ratio``, ``uses_scratch``) are None without
    them. ``threads_of`` and ``cpu_seconds_of`` are by program name, bounded. ``most_threads_of`` has, for each of these
    names, the threads of the one process that has the most.
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
    most_threads_of: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds_of: Mapping[str, float] = field(default_factory=dict)
    threads_on_core: Mapping[int, int] = field(default_factory=dict)
    open_files: int | None = None
    distinct_files: int | None = None
    worst_file_ratio: float | None = None
    uses_scratch: bool | None = None
    io: IoUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """Hold one job on this node; ``has_ended`` marks the final values of an ended job.

    ``groups`` has the job's own cgroup under ``GroupKey()``, and steps and tasks if enabled. ``uid`` is None until a
    process of the job's user was seen. ``busy_cores`` is the CPU time spent since the previous reading, in cores; None
    before the second reading. ``pids`` are all its processes, including slurmstepd.
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

    ``layout`` is how jobs are found: ``v1``, ``v2``, ``hybrid``, ``processes`` (no job cgroups), or ``unsupported``.
    ``available`` holds for each source whether it can be read; ``users`` the known names of the jobs' users by uid.
    ``host_name`` is the node name of jobs without one: cgroups hold it only if several slurmd run on one machine.
    ``read_errors`` counts since the start, by kind of file, what could not be read or parsed.
    """

    jobs: tuple[JobUse, ...] = ()
    users: Mapping[int, str] = field(default_factory=dict)
    layout: str = "unsupported"
    available: Mapping[str, bool] = field(default_factory=dict)
    stale_cgroups: int = 0
    host_name: str = ""
    read_errors: Mapping[str, int] = field(default_factory=dict)
