# SPDX-License-Identifier: Apache-2.0
"""Declare the metrics of a job on a node, each beside the function that reads its value.

Names without a unit keep the older unit: megabytes are 1,048,576 bytes, user and system time are in hundredths of a
second. All processes and tasks count, and totals do not fall when a process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge
from slurmscope.node.job_use import CgroupUse, GroupKey, JobKey, JobUse, ProcessUse

JOB = ("slurm_job", "slurm_node")
"""Labels of every series of a job."""

OptionalNumber = float | None


def job_labels(key: JobKey, host_name: str) -> Labels:
    """Return the labels of a job: the node is the host unless several slurmd run on it.

    For output only: a key is compared with other keys before it is labelled.
    """
    return str(key.job_id), key.node_name or host_name


@dataclass(frozen=True, slots=True)
class FromCgroup:
    """Read one number from a job's cgroup."""

    metric: Metric
    value: Callable[[CgroupUse], OptionalNumber]


@dataclass(frozen=True, slots=True)
class FromProcesses:
    """Read one number from a job's processes."""

    metric: Metric
    value: Callable[[ProcessUse], OptionalNumber]


@dataclass(frozen=True, slots=True)
class Several:
    """Read several numbers from a job's cgroup, each with further label values."""

    metric: Metric
    values: Callable[[CgroupUse], Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True)
class SeveralOfProcesses:
    """Read several numbers from a job's processes, each with further label values."""

    metric: Metric
    values: Callable[[ProcessUse], Iterable[tuple[tuple[str, ...], float]]]


CGROUP = (
    FromCgroup(counter("jobs_cpu_seconds_total", "CPU time of the job.", *JOB), lambda g: g.cpu.total_seconds),
    FromCgroup(
        counter("jobs_cpu_user_seconds_total", "CPU time of the job in user mode.", *JOB), lambda g: g.cpu.user_seconds
    ),
    FromCgroup(
        counter("jobs_cpu_system_seconds_total", "CPU time of the job in kernel mode.", *JOB),
        lambda g: g.cpu.system_seconds,
    ),
    FromCgroup(
        gauge("jobs_cores", "Cores the job may run on; absent if it is not confined to cores.", *JOB),
        lambda g: None if g.cpu.cores is None else len(g.cpu.cores),
    ),
    FromCgroup(
        counter("jobs_cpu_periods_total", "Enforcement periods of the job's CPU limit.", *JOB),
        lambda g: g.cpu.periods,
    ),
    FromCgroup(
        counter(
            "jobs_cpu_throttled_periods_total",
            "Enforcement periods in which the job was throttled by its CPU limit.",
            *JOB,
        ),
        lambda g: g.cpu.throttled_periods,
    ),
    FromCgroup(
        counter("jobs_cpu_throttled_seconds_total", "Time the job was throttled by its CPU limit.", *JOB),
        lambda g: g.cpu.throttled_seconds,
    ),
    FromCgroup(
        gauge("jobs_memory_current_bytes", "Memory charged to the job, including page cache.", *JOB),
        lambda g: g.memory.current_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_anon_bytes", "Anonymous memory of the job.", *JOB),
        lambda g: g.memory.anon_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_file_bytes", "Page cache charged to the job; the kernel can reclaim it.", *JOB),
        lambda g: g.memory.file_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_shmem_bytes", "Shared memory and tmpfs files of the job.", *JOB),
        lambda g: g.memory.shmem_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_kernel_bytes", "Kernel memory charged to the job.", *JOB),
        lambda g: g.memory.kernel_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_mapped_file_bytes", "Memory-mapped files of the job.", *JOB),
        lambda g: g.memory.mapped_file_bytes,
    ),
    FromCgroup(gauge("jobs_memory_swap_bytes", "Swap space used by the job.", *JOB), lambda g: g.memory.swap_bytes),
    FromCgroup(
        gauge("jobs_memory_peak_bytes", "Peak memory charged to the job.", *JOB),
        lambda g: g.memory.peak_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_limit_bytes", "Memory limit of the job, its own or inherited.", *JOB),
        lambda g: g.memory.limit_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_swap_limit_bytes", "Swap limit of the job.", *JOB),
        lambda g: g.memory.swap_limit_bytes,
    ),
    FromCgroup(gauge("jobs_pids", "Processes and threads of the job.", *JOB), lambda g: g.pids),
    FromCgroup(gauge("jobs_pids_limit", "Limit on processes and threads of the job.", *JOB), lambda g: g.pids_limit),
)

SEVERAL = (
    Several(
        counter("jobs_cpu_core_seconds_total", "CPU time of the job per core (cgroup v1 only).", *JOB, "core"),
        lambda g: (((str(core),), seconds) for core, seconds in g.cpu.core_seconds.items()),
    ),
    Several(
        counter(
            "jobs_memory_events_total",
            "Memory events of the job by kernel event name (max, oom_kill, ...).",
            *JOB,
            "event",
        ),
        lambda g: (((event,), count) for event, count in g.memory.events.items()),
    ),
    Several(
        counter(
            "jobs_pressure_seconds_total",
            "Time in which some or all (full) processes of the job stalled on cpu, memory or io.",
            *JOB,
            "resource",
            "kind",
        ),
        lambda g: g.pressure_seconds.items(),
    ),
    Several(
        counter("jobs_block_read_bytes_total", "Bytes read by the job from a block device.", *JOB, "device"),
        lambda g: (((device,), block.read_bytes) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_write_bytes_total", "Bytes written by the job to a block device.", *JOB, "device"),
        lambda g: (((device,), block.write_bytes) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_reads_total", "Read operations of the job on a block device.", *JOB, "device"),
        lambda g: (((device,), block.reads) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_writes_total", "Write operations of the job on a block device.", *JOB, "device"),
        lambda g: (((device,), block.writes) for device, block in g.block.items()),
    ),
)

PROCESSES = (
    FromProcesses(gauge("jobs_processes", "Processes of the job.", *JOB), lambda p: p.processes),
    FromProcesses(
        gauge(
            "jobs_memory_rss_bytes",
            "Resident memory of the job's processes; shared pages count once per process.",
            *JOB,
        ),
        lambda p: p.resident_bytes,
    ),
    FromProcesses(
        gauge("jobs_open_files", "Open file descriptors of the job's processes.", *JOB), lambda p: p.open_files
    ),
    FromProcesses(gauge("jobs_distinct_files", "Distinct files the job has open.", *JOB), lambda p: p.distinct_files),
    FromProcesses(
        gauge("jobs_uses_scratch", "1 if the job has a file on scratch open.", *JOB),
        lambda p: None if p.uses_scratch is None else float(p.uses_scratch),
    ),
    FromProcesses(
        gauge(
            "jobs_open_files_worst_ratio",
            "Highest share of the open-file limit used by any process of the job (0 to 1).",
            *JOB,
        ),
        lambda p: p.worst_file_ratio,
    ),
    FromProcesses(
        counter(
            "jobs_io_read_bytes_total", "Bytes read by system calls of the job, from any file system or pipe.", *JOB
        ),
        lambda p: p.io.read_chars if p.io else None,
    ),
    FromProcesses(
        counter(
            "jobs_io_write_bytes_total", "Bytes written by system calls of the job, to any file system or pipe.", *JOB
        ),
        lambda p: p.io.write_chars if p.io else None,
    ),
    FromProcesses(
        counter("jobs_io_reads_total", "Read system calls of the job.", *JOB), lambda p: p.io.reads if p.io else None
    ),
    FromProcesses(
        counter("jobs_io_writes_total", "Write system calls of the job.", *JOB), lambda p: p.io.writes if p.io else None
    ),
    FromProcesses(
        counter("jobs_storage_read_bytes_total", "Bytes of the job fetched from local storage.", *JOB),
        lambda p: p.io.read_bytes if p.io else None,
    ),
    FromProcesses(
        counter("jobs_storage_write_bytes_total", "Bytes of the job sent to local storage.", *JOB),
        lambda p: p.io.write_bytes if p.io else None,
    ),
)

SEVERAL_OF_PROCESSES = (
    SeveralOfProcesses(
        gauge(
            "jobs_threads",
            "Threads of the job by state (running, sleeping, waiting for disk, ...).",
            *JOB,
            "state",
        ),
        lambda p: (((state,), count) for state, count in p.threads_in.items()),
    ),
    SeveralOfProcesses(
        gauge("jobs_program_threads", "Threads of the job by program.", *JOB, "program"),
        lambda p: (((program,), count) for program, count in p.threads_of.items()),
    ),
    SeveralOfProcesses(
        counter(
            "jobs_program_cpu_seconds_total",
            "CPU time of the job by program, the busiest ones by name.",
            *JOB,
            "program",
        ),
        lambda p: (((program,), seconds) for program, seconds in p.cpu_seconds_of.items()),
    ),
    SeveralOfProcesses(
        gauge(
            "jobs_core_threads",
            "Threads of the job by the core they last ran on.",
            *JOB,
            "core",
        ),
        lambda p: (((str(core),), count) for core, count in p.threads_on_core.items()),
    ),
    SeveralOfProcesses(
        counter(
            "jobs_page_faults_total",
            "Page faults of the job's processes: minor, or major if a disk had to be read.",
            *JOB,
            "kind",
        ),
        lambda p: ((("minor",), p.minor_faults), (("major",), p.major_faults)),
    ),
    SeveralOfProcesses(
        counter("jobs_context_switches_total", "Context switches of the job's processes.", *JOB, "kind"),
        lambda p: (
            ((kind,), count)
            for kind, count in (("voluntary", p.voluntary_switches), ("involuntary", p.involuntary_switches))
            if count is not None
        ),
    ),
)


MIB = 1024 * 1024
TICKS_PER_SECOND = 100

COMPAT_PROCESSES = compat_gauge("jobs_spawned_processes", "Processes of the job.", *JOB)
FILES = compat_gauge("jobs_opened_files", "Distinct files the job has open.", *JOB)
THREADS = compat_gauge(
    "jobs_thread_count", "Threads of one process of the job, the one with the most, by program.", *JOB, "proc_name"
)
USER_TIME = compat_gauge("jobs_user_time", "CPU time of the job in user mode, in hundredths of a second.", *JOB)
SYSTEM_TIME = compat_gauge("jobs_system_time", "CPU time of the job in kernel mode, in hundredths of a second.", *JOB)
CPU_TIME = compat_gauge("jobs_cpu_time_total", "CPU time of the job in seconds.", *JOB)
CORE_TIME = compat_gauge("jobs_cpu_time_core", "CPU time of the job per core, in seconds.", *JOB, "core")
PERCENT = compat_gauge("jobs_cpu_percent", "CPU usage of the job since the previous reading; 100 is one core.", *JOB)
PERCENT_PER_CORE = compat_gauge(
    "jobs_cpu_percent_per_core", "CPU usage of the job divided by its number of cores.", *JOB
)
RSS = compat_gauge("jobs_rss", "Resident memory of the job's processes in megabytes.", *JOB)
READ = compat_gauge("jobs_read_mb", "Megabytes that the job read from storage.", *JOB)
WRITE = compat_gauge("jobs_write_mb", "Megabytes that the job wrote to storage.", *JOB)
READS = compat_gauge("jobs_read_count", "Read system calls of the job.", *JOB)
WRITES = compat_gauge("jobs_write_count", "Write system calls of the job.", *JOB)

COMPAT_METRICS = (
    COMPAT_PROCESSES, FILES, THREADS, USER_TIME, SYSTEM_TIME, CPU_TIME, CORE_TIME, PERCENT, PERCENT_PER_CORE, RSS, READ,
    WRITE, READS, WRITES,
)  # fmt: skip

_NOTHING = CgroupUse()


def compat_families(jobs: Iterable[tuple[Labels, JobUse]]) -> Iterator[Family]:
    """Yield the families with older names; values that were not measured are left out."""
    samples: dict[str, dict[Labels, float]] = {metric.name: {} for metric in COMPAT_METRICS}
    for labels, job in jobs:
        for metric, further, value in (*_cpu_values(job), *_process_values(job)):
            if value is not None:
                samples[metric.name][*labels, *further] = value
    for metric in COMPAT_METRICS:
        yield Family(metric, samples[metric.name])


def _cpu_values(job: JobUse) -> Iterator[tuple[Metric, Labels, float | None]]:
    cpu = job.groups.get(GroupKey(), _NOTHING).cpu
    yield USER_TIME, (), _scaled(cpu.user_seconds, TICKS_PER_SECOND)
    yield SYSTEM_TIME, (), _scaled(cpu.system_seconds, TICKS_PER_SECOND)
    yield CPU_TIME, (), cpu.total_seconds
    for core, seconds in cpu.core_seconds.items():
        yield CORE_TIME, (str(core),), seconds
    yield PERCENT, (), _scaled(job.busy_cores, 100)
    if cpu.cores:
        yield PERCENT_PER_CORE, (), _scaled(job.busy_cores, 100 / len(cpu.cores))


def _process_values(job: JobUse) -> Iterator[tuple[Metric, Labels, float | None]]:
    if not (use := job.processes):
        return
    yield COMPAT_PROCESSES, (), use.processes
    yield FILES, (), use.distinct_files
    yield RSS, (), use.resident_bytes / MIB
    for program, count in use.most_threads_of.items():
        yield THREADS, (program,), count
    if use.io:
        yield READ, (), use.io.read_bytes / MIB
        yield WRITE, (), use.io.write_bytes / MIB
        yield READS, (), use.io.reads
        yield WRITES, (), use.io.writes


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
