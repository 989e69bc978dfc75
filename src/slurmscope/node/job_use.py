# SPDX-License-Identifier: Apache-2.0
"""Hold what one job uses on one node, and combine two readings of it so that no total decreases.

Readings of a job have gaps: its cgroups are removed one after the other when it ends, and on a node without a running
step a job may have no cgroup at all until its next step creates a new one, which counts from 0 again.

Everything is optional: None means that the kernel, the layout or our privileges did not provide it. Totals count from
the start of the job and never decrease while it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, Protocol, TypeVar


class JobKey(NamedTuple):
    """Identify a job on this node; a tuple, which is found in a mapping in a tenth of the time.

    ``sluid`` distinguishes two runs of the same job ID: it is the name of the cgroup directory if Slurm uses SLUIDs,
    else empty. ``node_name`` is set if several slurmd run on one machine.
    """

    job_id: int
    node_name: str = ""
    sluid: str = ""


class Roster(NamedTuple):
    """Which jobs run on a node, as far as it takes to know whether one was alone between two moments.

    ``begun`` counts the jobs that began since the agent started, ``last`` is the newest of them; ``alone`` is the only
    running job.
    """

    begun: int = 0
    running: int = 0
    last: JobKey | None = None
    alone: JobKey | None = None


class GroupKey(NamedTuple):
    """Identify a cgroup of a job: the whole job, one step, or one task of a step."""

    step: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Values of the CPU controller and the cpuset; ``core_seconds`` is by core number (cgroup v1 only)."""

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
    """Values of the memory controller; ``limit_bytes`` is the effective limit, inherited if its own is "max".

    ``refaults`` counts pages that were read again a short time after the kernel had reclaimed them, by kind.
    ``numa_bytes`` is the memory on NUMA nodes of the job's cores (local) and on others (remote).
    """

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
    refaults: Mapping[str, int] = field(default_factory=dict)
    numa_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUse:
    """The I/O of a job on one block device."""

    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupUse:
    """All values of one cgroup.

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
    """What processes read and wrote, from ``/proc/PID/io``.

    ``read_chars`` and ``write_chars`` count bytes of system calls, on any file system; ``read_bytes`` and
    ``write_bytes`` count those that file systems fetched, or have to write: not pipes, devices, tmpfs or the page
    cache. File systems with a cache of their own, such as GPFS, and Lustre for reads, do not count there either.
    """

    read_chars: int = 0
    write_chars: int = 0
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


class HeldProcess(NamedTuple):
    """A process that is stopped or waits for a disk, for so long, without any CPU time; ``task`` is its rank."""

    pid: int
    program: str
    task: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Sums over the processes of a job, or of a process group.

    Counts that need privileges (``io``, ``open_files``, ``worst_file_ratio``, ``uses_scratch``) are None without
    them. ``threads_of`` and ``cpu_seconds_of`` are by program name, bounded. ``most_threads_of`` has, for each of these
    names, the threads of the one process that has the most. ``queue_seconds`` is for how long threads were ready to run
    but had no core. ``held_processes`` counts those that are held, of which
    ``held`` has the few that have been for the longest time.
    """

    processes: int = 0
    threads_in: Mapping[str, int] = field(default_factory=dict)
    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    queue_seconds: float | None = None
    threads_of: Mapping[str, int] = field(default_factory=dict)
    most_threads_of: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds_of: Mapping[str, float] = field(default_factory=dict)
    threads_on_core: Mapping[int, int] = field(default_factory=dict)
    open_files: int | None = None
    distinct_files: int | None = None
    worst_file_ratio: float | None = None
    uses_scratch: bool | None = None
    io: IoUse | None = None
    held_processes: int = 0
    held: tuple[HeldProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """One job on this node; ``has_ended`` marks the final values of an ended job.

    ``groups`` has the job's own cgroup under ``GroupKey()``, and steps and tasks if enabled. ``uid`` is None until a
    process of the job's user was seen. ``busy_cores`` is the CPU time spent since the previous reading, in cores; None
    before the second reading. ``pids`` are all its processes, including slurmstepd. ``cgroup`` is its folder, empty
    if it has none. ``is_peak_final`` is whether the memory of an ended job was read after its last process had ended.
    ``are_processes_read`` is whether ``processes`` are as of now, not of an earlier reading because they take too long.
    """

    key: JobKey
    uid: int | None = None
    busy_cores: float | None = None
    has_ended: bool = False
    is_peak_final: bool = False
    groups: Mapping[GroupKey, CgroupUse] = field(default_factory=dict)
    processes: ProcessUse | None = None
    are_processes_read: bool = True
    pids: frozenset[int] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJobs:
    """Every job of this node at one moment.

    ``layout`` is how jobs are found: ``v1``, ``v2``, ``hybrid``, ``processes`` (no job cgroups), or ``unsupported``.
    ``available`` holds for each source whether it can be read; ``users`` the known names of the jobs' users by uid.
    ``host_name`` is the node name of jobs without one: cgroups hold it only if several slurmd run on one machine.
    ``read_errors`` counts since the start, by kind of file, what could not be read or parsed.
    """

    jobs: tuple[JobUse, ...] = ()
    users: Mapping[int, str] = field(default_factory=dict)
    layout: str = "unsupported"
    available: Mapping[str, bool] = field(default_factory=dict)
    stale_cgroups: int | None = 0
    host_name: str = ""
    read_errors: Mapping[str, int] = field(default_factory=dict)


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)

WHOLE_JOB = GroupKey()
_NOTHING = CgroupUse()
_GAUGES = tuple(
    field.name for field in fields(MemoryUse) if field.name not in {"peak_bytes", "events", "refaults", "numa_bytes"}
)


def has_restarted(before: JobUse, now: JobUse) -> bool:
    """Return whether the job's cgroup is a new one: the CPU time of a cgroup never decreases."""
    was, used = (use.groups.get(WHOLE_JOB, _NOTHING).cpu.total_seconds for use in (before, now))
    return was is not None and used is not None and used < was


def is_missing_something(before: JobUse, now: JobUse) -> bool:
    """Return whether a later reading lacks values of an earlier one: some cgroups may be removed already."""
    was, used = (use.groups.get(WHOLE_JOB, _NOTHING) for use in (before, now))
    return (
        (used.cpu.total_seconds is None and was.cpu.total_seconds is not None)
        # The current use is not read while nothing is made from it.
        or (used.memory.anon_bytes is None and was.memory.anon_bytes is not None)
        or (used.memory.current_bytes is None and was.memory.current_bytes is not None)
        or (now.processes is None and before.processes is not None)
        or (now.uid is None and before.uid is not None)
        or bool(before.environment and not now.environment)
    )


def completed(before: JobUse, now: JobUse) -> JobUse:
    """Fill in values that a later reading of the same cgroup lacks, and let no total decrease."""
    groups = dict(before.groups)
    for key, group in now.groups.items():
        groups[key] = _join_groups(groups[key], group, _higher) if key in groups else group
    return replace(
        now,
        uid=_later(before.uid, now.uid),
        groups=groups,
        processes=_later(before.processes, now.processes),
        environment=now.environment or before.environment,
    )


def continued(before: JobUse, now: JobUse) -> JobUse:
    """Add the totals that the job had when its cgroup was removed."""
    if WHOLE_JOB not in before.groups or WHOLE_JOB not in now.groups:
        return now
    whole = _join_groups(before.groups[WHOLE_JOB], now.groups[WHOLE_JOB], _sum)
    return replace(now, uid=_later(before.uid, now.uid), groups={**now.groups, WHOLE_JOB: whole})


def is_same_run(steps_before: Collection[str], steps_now: Collection[str]) -> bool:
    """Return whether a job whose cgroup was created again continues, or was requeued and starts again.

    Slurm numbers the steps of one run upwards; the batch and extern steps keep the cgroup for the whole run.
    """
    if not steps_before or not all(step.isdecimal() for step in (*steps_before, *steps_now)):
        return False
    return max(map(int, steps_before)) < min(map(int, steps_now), default=0)


class _Join(Protocol):
    """Combine two values of one counter."""

    def __call__(self, was: _Number, used: _Number, /) -> _Number:
        """Return the combined value."""
        ...


def _higher(was: _Number, used: _Number) -> _Number:
    return max(was, used)


def _sum(was: _Number, used: _Number) -> _Number:
    return was + used


def _join_groups(before: CgroupUse, now: CgroupUse, join: _Join) -> CgroupUse:
    return CgroupUse(
        cpu=_join_cpu(before.cpu, now.cpu, join),
        memory=_join_memory(before.memory, now.memory, join),
        pressure_seconds=_join_each(before.pressure_seconds, now.pressure_seconds, join),
        block={
            device: _join_block(before.block.get(device, BlockUse()), now.block.get(device, BlockUse()), join)
            for device in {**before.block, **now.block}
        },
        pids=_later(before.pids, now.pids),
        pids_limit=_later(before.pids_limit, now.pids_limit),
        unreadable=now.unreadable,
    )


def _join_cpu(before: CpuUse, now: CpuUse, join: _Join) -> CpuUse:
    return CpuUse(
        total_seconds=_join(before.total_seconds, now.total_seconds, join),
        user_seconds=_join(before.user_seconds, now.user_seconds, join),
        system_seconds=_join(before.system_seconds, now.system_seconds, join),
        core_seconds=_join_each(before.core_seconds, now.core_seconds, join),
        cores=_later(before.cores, now.cores),
        periods=_join(before.periods, now.periods, join),
        throttled_periods=_join(before.throttled_periods, now.throttled_periods, join),
        throttled_seconds=_join(before.throttled_seconds, now.throttled_seconds, join),
    )


def _join_memory(before: MemoryUse, now: MemoryUse, join: _Join) -> MemoryUse:
    gauges = {name: _later(getattr(before, name), getattr(now, name)) for name in _GAUGES}
    return MemoryUse(
        **gauges,
        peak_bytes=_join(before.peak_bytes, now.peak_bytes, _higher),
        events=_join_each(before.events, now.events, join),
        refaults=_join_each(before.refaults, now.refaults, join),
        numa_bytes=now.numa_bytes or before.numa_bytes,
    )


def _join_block(before: BlockUse, now: BlockUse, join: _Join) -> BlockUse:
    return BlockUse(
        read_bytes=join(before.read_bytes, now.read_bytes),
        write_bytes=join(before.write_bytes, now.write_bytes),
        reads=join(before.reads, now.reads),
        writes=join(before.writes, now.writes),
    )


def _join_each(before: Mapping[_Key, _Number], now: Mapping[_Key, _Number], join: _Join) -> Mapping[_Key, _Number]:
    joined = {**before, **now}
    for key in before.keys() & now.keys():
        joined[key] = join(before[key], now[key])
    return joined


def _join(was: _Number | None, used: _Number | None, join: _Join) -> _Number | None:
    return join(was, used) if was is not None and used is not None else _later(was, used)


def _later(was: _Value | None, used: _Value | None) -> _Value | None:
    return was if used is None else used
