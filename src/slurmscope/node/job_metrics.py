# SPDX-License-Identifier: Apache-2.0
"""Declare the metrics of a job on a node, each beside the function that reads its value.

Names without a unit keep the older unit: megabytes are 1,048,576 bytes, user and system time are in hundredths of a
second. All processes and tasks count, and totals do not fall when a process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from slurmscope.core.units import MIB
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge
from slurmscope.node.job_use import CgroupUse, GroupKey, JobKey, JobUse, NodeJobs, ProcessUse

JOB = ("slurm_job", "slurm_node")
"""Labels of every series of a job."""

Use = TypeVar("Use")
One = tuple[Metric, Callable[[Use], float | None]]
"""A metric, and its value in what was read of a job."""
Several = tuple[Metric, Callable[[Use], Iterable[tuple[Labels, float]]]]
"""A metric, and its values in what was read of a job, each with further label values."""


def job_labels(key: JobKey, host_name: str) -> Labels:
    """Return the labels of a job: the node is the host unless several slurmd run on it.

    For output only: a key is compared with other keys before it is labelled.
    """
    return str(key.job_id), key.node_name or host_name


def label_jobs(node_jobs: NodeJobs) -> dict[Labels, JobUse]:
    """Return the jobs by their labels; of two runs of one job ID, the one that has not ended is exported."""
    newest: dict[Labels, JobUse] = {}
    for job in sorted(node_jobs.jobs, key=lambda job: job.has_ended):
        newest.setdefault(job_labels(job.key, node_jobs.host_name), job)
    return newest


def _counter(name: str, help: str, *further: str) -> Metric:
    return counter(name, help, *JOB, *further)


def _gauge(name: str, help: str, *further: str) -> Metric:
    return gauge(name, help, *JOB, *further)


def _compat(name: str, help: str, *further: str) -> Metric:
    return compat_gauge(name, help, *JOB, *further)


CGROUP: tuple[One[CgroupUse], ...] = (
    (_counter("jobs_cpu_seconds_total", "CPU time of the job."), lambda g: g.cpu.total_seconds),
    (_counter("jobs_cpu_user_seconds_total", "CPU time of the job in user mode."), lambda g: g.cpu.user_seconds),
    (_counter("jobs_cpu_system_seconds_total", "CPU time of the job in kernel mode."), lambda g: g.cpu.system_seconds),
    (
        _gauge("jobs_cores", "Cores the job may run on; absent if it is not confined to cores."),
        lambda g: None if g.cpu.cores is None else len(g.cpu.cores),
    ),
    (_counter("jobs_cpu_periods_total", "Enforcement periods of the job's CPU limit."), lambda g: g.cpu.periods),
    (
        _counter(
            "jobs_cpu_throttled_periods_total", "Enforcement periods in which the job was throttled by its CPU limit."
        ),
        lambda g: g.cpu.throttled_periods,
    ),
    (
        _counter("jobs_cpu_throttled_seconds_total", "Time the job was throttled by its CPU limit."),
        lambda g: g.cpu.throttled_seconds,
    ),
    (
        _gauge("jobs_memory_current_bytes", "Memory charged to the job, including page cache."),
        lambda g: g.memory.current_bytes,
    ),
    (_gauge("jobs_memory_anon_bytes", "Anonymous memory of the job."), lambda g: g.memory.anon_bytes),
    (
        _gauge("jobs_memory_file_bytes", "Page cache charged to the job; the kernel can reclaim it."),
        lambda g: g.memory.file_bytes,
    ),
    (_gauge("jobs_memory_shmem_bytes", "Shared memory and tmpfs files of the job."), lambda g: g.memory.shmem_bytes),
    (_gauge("jobs_memory_kernel_bytes", "Kernel memory charged to the job."), lambda g: g.memory.kernel_bytes),
    (_gauge("jobs_memory_mapped_file_bytes", "Memory-mapped files of the job."), lambda g: g.memory.mapped_file_bytes),
    (_gauge("jobs_memory_swap_bytes", "Swap space used by the job."), lambda g: g.memory.swap_bytes),
    (_gauge("jobs_memory_peak_bytes", "Peak memory charged to the job."), lambda g: g.memory.peak_bytes),
    (
        _gauge("jobs_memory_limit_bytes", "Memory limit of the job, its own or inherited."),
        lambda g: g.memory.limit_bytes,
    ),
    (_gauge("jobs_memory_swap_limit_bytes", "Swap limit of the job."), lambda g: g.memory.swap_limit_bytes),
    (_gauge("jobs_pids", "Processes and threads of the job."), lambda g: g.pids),
    (_gauge("jobs_pids_limit", "Limit on processes and threads of the job."), lambda g: g.pids_limit),
)

SEVERAL: tuple[Several[CgroupUse], ...] = (
    (
        _gauge(
            "jobs_memory_numa_bytes",
            "Anonymous memory and page cache of the job on NUMA nodes of its cores (local) and on others (remote); "
            "absent on a node with one NUMA node, and if the job is not confined to cores.",
            "placement",
        ),
        lambda g: _labelled(g.memory.numa_bytes),
    ),
    (
        _counter("jobs_cpu_core_seconds_total", "CPU time of the job per core (cgroup v1 only).", "core"),
        lambda g: _labelled(g.cpu.core_seconds),
    ),
    (
        _counter(
            "jobs_memory_events_total", "Memory events of the job by kernel event name (max, oom_kill, ...).", "event"
        ),
        lambda g: _labelled(g.memory.events),
    ),
    (
        _counter(
            "jobs_memory_refaults_total",
            "Pages read again soon after the kernel had reclaimed them, of files or anonymous memory (from swap): many "
            "mean that the memory is too small for what the job works on.",
            "kind",
        ),
        lambda g: _labelled(g.memory.refaults),
    ),
    (
        _counter(
            "jobs_pressure_seconds_total",
            "Time in which some or all (full) processes of the job stalled on cpu, memory or io.",
            "resource",
            "kind",
        ),
        lambda g: g.pressure_seconds.items(),
    ),
    (
        _counter("jobs_block_read_bytes_total", "Bytes read by the job from a block device.", "device"),
        lambda g: (((device,), block.read_bytes) for device, block in g.block.items()),
    ),
    (
        _counter("jobs_block_write_bytes_total", "Bytes written by the job to a block device.", "device"),
        lambda g: (((device,), block.write_bytes) for device, block in g.block.items()),
    ),
    (
        _counter("jobs_block_reads_total", "Read operations of the job on a block device.", "device"),
        lambda g: (((device,), block.reads) for device, block in g.block.items()),
    ),
    (
        _counter("jobs_block_writes_total", "Write operations of the job on a block device.", "device"),
        lambda g: (((device,), block.writes) for device, block in g.block.items()),
    ),
)

PROCESSES: tuple[One[ProcessUse], ...] = (
    (_gauge("jobs_processes", "Processes of the job."), lambda p: p.processes),
    (
        _gauge("jobs_memory_rss_bytes", "Resident memory of the job's processes; shared pages count once per process."),
        lambda p: p.resident_bytes,
    ),
    (
        _gauge("jobs_held_processes", "Processes that are stopped or wait for a disk, for a minute or longer."),
        lambda p: p.held_processes,
    ),
    (
        _counter(
            "jobs_run_queue_wait_seconds_total",
            "Time in which threads of the job were ready to run but had no core; that of a sleeping thread is added "
            "when it runs again.",
        ),
        lambda p: p.queue_seconds,
    ),
    (_gauge("jobs_open_files", "Open file descriptors of the job's processes."), lambda p: p.open_files),
    (_gauge("jobs_distinct_files", "Distinct files the job has open."), lambda p: p.distinct_files),
    (_gauge("jobs_uses_scratch", "1 if the job has a file on scratch open."), lambda p: _scaled(p.uses_scratch, 1)),
    (
        _gauge(
            "jobs_open_files_worst_ratio",
            "Highest share of the open-file limit used by any process of the job (0 to 1).",
        ),
        lambda p: p.worst_file_ratio,
    ),
    (
        _counter("jobs_io_read_bytes_total", "Bytes read by system calls of the job, from any file system or pipe."),
        lambda p: p.io.read_chars if p.io else None,
    ),
    (
        _counter("jobs_io_write_bytes_total", "Bytes written by system calls of the job, to any file system or pipe."),
        lambda p: p.io.write_chars if p.io else None,
    ),
    (_counter("jobs_io_reads_total", "Read system calls of the job."), lambda p: p.io.reads if p.io else None),
    (_counter("jobs_io_writes_total", "Write system calls of the job."), lambda p: p.io.writes if p.io else None),
    (
        _counter(
            "jobs_storage_read_bytes_total",
            "Bytes of the job fetched from file systems; not pipes, devices, tmpfs or page cache.",
        ),
        lambda p: p.io.read_bytes if p.io else None,
    ),
    (
        _counter(
            "jobs_storage_write_bytes_total", "Bytes of the job written to file systems; not pipes, devices or tmpfs."
        ),
        lambda p: p.io.write_bytes if p.io else None,
    ),
)

SEVERAL_OF_PROCESSES: tuple[Several[ProcessUse], ...] = (
    (
        _gauge("jobs_threads", "Threads of the job by state (running, sleeping, waiting for disk, ...).", "state"),
        lambda p: _labelled(p.threads_in),
    ),
    (
        _gauge(
            "jobs_held_process_seconds",
            "For how long a process of the job is stopped or waits for a disk, without any CPU time, from a minute on; "
            "the five longest. A suspended job has only such processes.",
            "pid",
            "program",
            "task",
            "state",
        ),
        lambda p: (((str(one.pid), one.program, one.task, one.state), one.seconds) for one in p.held),
    ),
    (_gauge("jobs_program_threads", "Threads of the job by program.", "program"), lambda p: _labelled(p.threads_of)),
    (
        _counter(
            "jobs_program_cpu_seconds_total", "CPU time of the job by program, the busiest ones by name.", "program"
        ),
        lambda p: _labelled(p.cpu_seconds_of),
    ),
    (
        _gauge("jobs_core_threads", "Threads of the job by the core they last ran on.", "core"),
        lambda p: _labelled(p.threads_on_core),
    ),
    (
        _counter(
            "jobs_page_faults_total",
            "Page faults of the job's processes: minor, or major if a disk had to be read.",
            "kind",
        ),
        lambda p: _labelled({"minor": p.minor_faults, "major": p.major_faults}),
    ),
    (
        _counter("jobs_context_switches_total", "Context switches of the job's processes.", "kind"),
        lambda p: _labelled({"voluntary": p.voluntary_switches, "involuntary": p.involuntary_switches}),
    ),
)


def _labelled(numbers: Mapping[str, float | None] | Mapping[int, float]) -> Iterator[tuple[Labels, float]]:
    return (((str(name),), n) for name, n in numbers.items() if n is not None)


TICKS_PER_SECOND = 100

COMPAT_PROCESSES = _compat("jobs_spawned_processes", "Processes of the job.")
FILES = _compat("jobs_opened_files", "Distinct files the job has open.")
THREADS = _compat(
    "jobs_thread_count", "Threads of one process of the job, the one with the most, by program.", "proc_name"
)
USER_TIME = _compat("jobs_user_time", "CPU time of the job in user mode, in hundredths of a second.")
SYSTEM_TIME = _compat("jobs_system_time", "CPU time of the job in kernel mode, in hundredths of a second.")
CPU_TIME = _compat("jobs_cpu_time_total", "CPU time of the job in seconds.")
CORE_TIME = _compat("jobs_cpu_time_core", "CPU time of the job per core, in seconds.", "core")
PERCENT = _compat("jobs_cpu_percent", "CPU usage of the job since the previous reading; 100 is one core.")
PERCENT_PER_CORE = _compat("jobs_cpu_percent_per_core", "CPU usage of the job divided by its number of cores.")
RSS = _compat("jobs_rss", "Resident memory of the job's processes in megabytes.")
READ = _compat("jobs_read_mb", "Megabytes that the job read from storage.")
WRITE = _compat("jobs_write_mb", "Megabytes that the job wrote to storage.")
READS = _compat("jobs_read_count", "Read system calls of the job.")
WRITES = _compat("jobs_write_count", "Write system calls of the job.")

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
