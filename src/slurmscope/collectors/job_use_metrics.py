# SPDX-License-Identifier: Apache-2.0
"""Declare what is told of a job on a node, each metric beside the place its value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurmscope.metrics.family import Metric, counter, gauge
from slurmscope.model.job_use import CgroupUse, ProcessUse

JOB = ("slurm_job", "slurm_node")
"""Labels of every series of a job."""

OptionalNumber = float | None


@dataclass(frozen=True, slots=True)
class FromCgroup:
    """Take one number from a job's cgroup."""

    metric: Metric
    value: Callable[[CgroupUse], OptionalNumber]


@dataclass(frozen=True, slots=True)
class FromProcesses:
    """Take one number from a job's processes."""

    metric: Metric
    value: Callable[[ProcessUse], OptionalNumber]


@dataclass(frozen=True, slots=True)
class Several:
    """Take several numbers, each with the values of further labels."""

    metric: Metric
    values: Callable[[CgroupUse], Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True)
class SeveralOfProcesses:
    """Take several numbers from a job's processes, each with the values of further labels."""

    metric: Metric
    values: Callable[[ProcessUse], Iterable[tuple[tuple[str, ...], float]]]


CGROUP = (
    FromCgroup(counter("jobs_cpu_seconds_total", "CPU time of the job.", *JOB), lambda g: g.cpu.total_seconds),
    FromCgroup(
        counter("jobs_cpu_user_seconds_total", "CPU time of the job in user mode.", *JOB), lambda g: g.cpu.user_seconds
    ),
    FromCgroup(
        counter("jobs_cpu_system_seconds_total", "CPU time of the job in the kernel.", *JOB),
        lambda g: g.cpu.system_seconds,
    ),
    FromCgroup(
        gauge("jobs_cores", "Cores that the job may run on; absent where it is not confined.", *JOB),
        lambda g: None if g.cpu.cores is None else len(g.cpu.cores),
    ),
    FromCgroup(
        counter("jobs_cpu_periods_total", "Scheduling periods in which the job had a CPU limit.", *JOB),
        lambda g: g.cpu.periods,
    ),
    FromCgroup(
        counter("jobs_cpu_throttled_periods_total", "Scheduling periods in which the job hit its CPU limit.", *JOB),
        lambda g: g.cpu.throttled_periods,
    ),
    FromCgroup(
        counter("jobs_cpu_throttled_seconds_total", "Time the job was kept from running by its CPU limit.", *JOB),
        lambda g: g.cpu.throttled_seconds,
    ),
    FromCgroup(
        gauge("jobs_memory_current_bytes", "Memory charged to the job, file cache included.", *JOB),
        lambda g: g.memory.current_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_anon_bytes", "Memory of the job that is backed by no file.", *JOB),
        lambda g: g.memory.anon_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_file_bytes", "File cache charged to the job; the kernel takes it back when needed.", *JOB),
        lambda g: g.memory.file_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_shmem_bytes", "Shared memory and files in memory (tmpfs) of the job.", *JOB),
        lambda g: g.memory.shmem_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_kernel_bytes", "Memory of the kernel that is charged to the job.", *JOB),
        lambda g: g.memory.kernel_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_mapped_file_bytes", "Files that the job has mapped into memory.", *JOB),
        lambda g: g.memory.mapped_file_bytes,
    ),
    FromCgroup(gauge("jobs_memory_swap_bytes", "Swap space that the job uses.", *JOB), lambda g: g.memory.swap_bytes),
    FromCgroup(
        gauge("jobs_memory_peak_bytes", "Most memory that was ever charged to the job.", *JOB),
        lambda g: g.memory.peak_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_limit_bytes", "Memory the job may have, its own or an inherited limit.", *JOB),
        lambda g: g.memory.limit_bytes,
    ),
    FromCgroup(
        gauge("jobs_memory_swap_limit_bytes", "Swap space the job may have.", *JOB),
        lambda g: g.memory.swap_limit_bytes,
    ),
    FromCgroup(gauge("jobs_pids", "Processes and threads charged to the job.", *JOB), lambda g: g.pids),
    FromCgroup(gauge("jobs_pids_limit", "Processes and threads the job may have.", *JOB), lambda g: g.pids_limit),
)

SEVERAL = (
    Several(
        counter(
            "jobs_cpu_core_seconds_total", "CPU time of the job on one core, where the kernel tells (v1).", *JOB, "core"
        ),
        lambda g: (((str(core),), seconds) for core, seconds in g.cpu.core_seconds.items()),
    ),
    Several(
        counter(
            "jobs_memory_events_total",
            "How often the job hit a limit of memory or was killed for it, as the kernel names the event.",
            *JOB,
            "event",
        ),
        lambda g: (((event,), count) for event, count in g.memory.events.items()),
    ),
    Several(
        counter(
            "jobs_pressure_seconds_total",
            "Time in which some or all (full) processes of the job waited for cpu, memory or io.",
            *JOB,
            "resource",
            "kind",
        ),
        lambda g: g.pressure_seconds.items(),
    ),
    Several(
        counter("jobs_block_read_bytes_total", "What the job read from a block device.", *JOB, "device"),
        lambda g: (((device,), block.read_bytes) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_write_bytes_total", "What the job wrote to a block device.", *JOB, "device"),
        lambda g: (((device,), block.write_bytes) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_reads_total", "Reads of the job from a block device.", *JOB, "device"),
        lambda g: (((device,), block.reads) for device, block in g.block.items()),
    ),
    Several(
        counter("jobs_block_writes_total", "Writes of the job to a block device.", *JOB, "device"),
        lambda g: (((device,), block.writes) for device, block in g.block.items()),
    ),
)

PROCESSES = (
    FromProcesses(gauge("jobs_processes", "Processes of the job.", *JOB), lambda p: p.processes),
    FromProcesses(
        gauge("jobs_memory_rss_bytes", "Resident memory of the job's processes, shared pages counted each time.", *JOB),
        lambda p: p.resident_bytes,
    ),
    FromProcesses(gauge("jobs_open_files", "Open descriptors of the job's processes.", *JOB), lambda p: p.open_files),
    FromProcesses(
        gauge("jobs_distinct_files", "Different files that the job has open.", *JOB), lambda p: p.distinct_files
    ),
    FromProcesses(
        gauge(
            "jobs_open_files_worst_ratio",
            "Open descriptors of the process nearest to its limit, over that limit.",
            *JOB,
        ),
        lambda p: p.worst_file_ratio,
    ),
    FromProcesses(
        counter("jobs_io_read_bytes_total", "What the job asked to read, from whatever file system or pipe.", *JOB),
        lambda p: p.io.read_chars if p.io else None,
    ),
    FromProcesses(
        counter("jobs_io_write_bytes_total", "What the job asked to write, to whatever file system or pipe.", *JOB),
        lambda p: p.io.write_chars if p.io else None,
    ),
    FromProcesses(
        counter("jobs_io_reads_total", "Calls of the job that read.", *JOB), lambda p: p.io.reads if p.io else None
    ),
    FromProcesses(
        counter("jobs_io_writes_total", "Calls of the job that write.", *JOB), lambda p: p.io.writes if p.io else None
    ),
    FromProcesses(
        counter("jobs_storage_read_bytes_total", "What really had to be read from local storage.", *JOB),
        lambda p: p.io.read_bytes if p.io else None,
    ),
    FromProcesses(
        counter("jobs_storage_write_bytes_total", "What really had to be written to local storage.", *JOB),
        lambda p: p.io.write_bytes if p.io else None,
    ),
)

SEVERAL_OF_PROCESSES = (
    SeveralOfProcesses(
        gauge(
            "jobs_threads",
            "Threads of the job by what they do: running, sleeping, waiting for disk and so on.",
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
            "CPU time of the job's programs, the busiest ones by name.",
            *JOB,
            "program",
        ),
        lambda p: (((program,), seconds) for program, seconds in p.cpu_seconds_of.items()),
    ),
    SeveralOfProcesses(
        gauge(
            "jobs_core_threads",
            "Threads of the job that ran last on a core; an estimate of where it runs.",
            *JOB,
            "core",
        ),
        lambda p: (((str(core),), count) for core, count in p.threads_on_core.items()),
    ),
    SeveralOfProcesses(
        counter(
            "jobs_page_faults_total",
            "Page faults of the job's processes: minor, or major when a disk was read.",
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
