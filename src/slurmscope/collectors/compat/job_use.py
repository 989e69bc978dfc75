# SPDX-License-Identifier: Apache-2.0
"""Export what a job uses under the metric names of the older node agent.

Names without a unit keep the older unit: megabytes are 1,048,576 bytes, user and system time are in hundredths of a
second. All processes and tasks count, and totals do not fall when a process ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmscope.collectors.job_use_metrics import JOB
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge
from slurmscope.model.job_use import CgroupUse, GroupKey, JobUse

MIB = 1024 * 1024
TICKS_PER_SECOND = 100

PROCESSES = compat_gauge("jobs_spawned_processes", "Processes of the job.", *JOB)
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
    PROCESSES, FILES, THREADS, USER_TIME, SYSTEM_TIME, CPU_TIME, CORE_TIME, PERCENT, PERCENT_PER_CORE, RSS, READ,
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
    yield PROCESSES, (), use.processes
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
