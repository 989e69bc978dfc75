# SPDX-License-Identifier: Apache-2.0
"""Find out what need not be read of each job, because none of the metrics made from it is exported.

::

    jobs_cpu_seconds_total{slurm_job="4711",slurm_node="n17"} 93021.4
    jobs_memory_events_total{slurm_job="4711",slurm_node="n17",event="oom_kill"} 1
    jobs_info{slurm_job="4711",slurm_node="n17",user="alice",uid="1001",account="physics",has_ended="false"} 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.core.settings import setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge, info
from slurmscope.node.job_metrics import (
    CGROUP,
    COMPAT_METRICS,
    JOB,
    PROCESSES,
    SEVERAL,
    SEVERAL_OF_PROCESSES,
    One,
    Several,
    Use,
    compat_families,
    label_jobs,
)
from slurmscope.node.job_use import CgroupUse, GroupKey, JobUse, NodeJobs

INFO = info(
    "jobs_info",
    "User of a job, and account and partition as its environment claims, which users can change; "
    "has_ended marks the final values of an ended job.",
    *JOB, "user", "uid", "account", "partition", "has_ended",
)  # fmt: skip
BUSY = gauge("jobs_busy_cores", "Mean number of cores the job kept busy since the previous reading.", *JOB)
PEAK_FINAL = gauge(
    "jobs_memory_peak_final",
    "1 if the peak memory of an ended job was read after its last process had ended; 0 while the job runs, and at its "
    "end if its cgroup was removed too soon.",
    *JOB,
)
COUNT = gauge("jobs_on_node", "Jobs on this node, ended ones excluded.")
STALE = gauge("jobs_stale_cgroups", "Leftover job cgroups without any process.")
LAYOUT = info("jobs_layout_info", "How jobs are detected: v1, v2, hybrid, processes or unsupported.", "layout")
AVAILABLE = gauge(
    "slurmscope_source_available",
    "1 if the source can be read, 0 if it is missing or access is denied.",
    "source",
)
READ_ERRORS = counter(
    "slurmscope_node_read_errors_total",
    "Files of jobs and processes that could not be read or parsed, by kind; job counts jobs that failed as a whole, "
    "process_time readings of a job that had to keep the last values of its processes, process_hang processes whose "
    "files hang in the kernel.",
    "what",
)
_STEP = (*JOB, "step", "task")
STEPS: tuple[One[CgroupUse], ...] = (
    (counter("jobs_step_cpu_seconds_total", "CPU time of a step or task.", *_STEP), lambda g: g.cpu.total_seconds),
    (
        gauge("jobs_step_memory_current_bytes", "Memory charged to a step or task.", *_STEP),
        lambda g: g.memory.current_bytes,
    ),
    (
        gauge("jobs_step_memory_peak_bytes", "Peak memory charged to a step or task.", *_STEP),
        lambda g: g.memory.peak_bytes,
    ),
    (
        counter("jobs_step_oom_kills_total", "Processes of a step or task killed by the OOM killer.", *_STEP),
        lambda g: g.memory.events.get("oom_kill"),
    ),
)

ACCOUNT = "SLURM_JOB_ACCOUNT"
PARTITION = "SLURM_JOB_PARTITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUseOptions:
    """How detailed the metrics of each job are."""

    steps: bool = setting(False, "Also expose the usage of each step, and of its tasks where cgroups have them.")


def collect(options: JobUseOptions, *, node_jobs: NodeJobs) -> Iterator[Family]:
    """Yield one family after the other over all jobs; values that were not measured are left out."""
    jobs = list(label_jobs(node_jobs).items())
    yield Family(COUNT, {(): sum(not job.has_ended for job in node_jobs.jobs)})
    yield Family(STALE, {} if node_jobs.stale_cgroups is None else {(): node_jobs.stale_cgroups})
    yield Family(LAYOUT, {(node_jobs.layout,): 1.0})
    yield Family(AVAILABLE, {(source,): float(can) for source, can in sorted(node_jobs.available.items())})
    yield Family(READ_ERRORS, {(what,): count for what, count in sorted(node_jobs.read_errors.items())})
    yield Family(INFO, {(*labels, *_names(job, node_jobs)): 1.0 for labels, job in jobs})
    yield Family(BUSY, {labels: job.busy_cores for labels, job in jobs if job.busy_cores is not None})
    whole = [(labels, job.groups[GroupKey()]) for labels, job in jobs if GroupKey() in job.groups]
    finals = {labels: float(job.is_peak_final) for labels, job in jobs}
    yield Family(PEAK_FINAL, {labels: finals[labels] for labels, use in whole if use.memory.peak_bytes is not None})
    yield from _families(whole, CGROUP, SEVERAL)
    processes = [(labels, job.processes) for labels, job in jobs if job.processes]
    yield from _families(processes, PROCESSES, SEVERAL_OF_PROCESSES)
    if options.steps:
        groups = ((labels, key, group) for labels, job in jobs for key, group in job.groups.items())
        steps = [((*labels, key.step, key.task), group) for labels, key, group in groups if key != GroupKey()]
        yield from _families(steps, STEPS)
    yield from compat_families(jobs)


def _names(job: JobUse, node_jobs: NodeJobs) -> Labels:
    uid = "" if job.uid is None else str(job.uid)
    user = uid if job.uid is None else node_jobs.users.get(job.uid, uid)
    names = job.environment
    return user, uid, names.get(ACCOUNT, ""), names.get(PARTITION, ""), "true" if job.has_ended else "false"


def _families(
    uses: list[tuple[Labels, Use]], ones: Iterable[One[Use]], several: Iterable[Several[Use]] = ()
) -> Iterator[Family]:
    for metric, value in ones:
        yield Family(metric, {labels: n for labels, use in uses if (n := value(use)) is not None})
    for metric, values in several:
        yield Family(metric, {(*labels, *further): n for labels, use in uses for further, n in values(use)})


COLLECTOR = Collector(
    name="job_use",
    role=Role.NODE,
    help="CPU, memory, I/O, processes and pressure of every job on this node.",
    needs=("node_jobs",),
    metrics=(
        *(COUNT, STALE, LAYOUT, AVAILABLE, READ_ERRORS, INFO, BUSY, PEAK_FINAL),
        *(metric for metric, _ in (*CGROUP, *SEVERAL, *PROCESSES, *SEVERAL_OF_PROCESSES, *STEPS)),
        *COMPAT_METRICS,
    ),
    collect=collect,
    options=JobUseOptions,
)


_BLOCK = tuple(f"jobs_block_{what}_total" for what in ("read_bytes", "write_bytes", "reads", "writes"))
_CURRENT = ("jobs_memory_current_bytes", "jobs_step_memory_current_bytes")
_PRESSURE = ("jobs_pressure_seconds_total",)

METRICS_OF_FILES: Mapping[str, tuple[str, ...]] = {
    "memory.current": _CURRENT,
    "memory.usage_in_bytes": _CURRENT,
    "memory.swap.current": ("jobs_memory_swap_bytes",),
    "memory.kmem.usage_in_bytes": ("jobs_memory_kernel_bytes",),
    "cpu.pressure": _PRESSURE,
    "memory.pressure": _PRESSURE,
    "io.pressure": _PRESSURE,
    "pids.current": ("jobs_pids",),
    "memory.numa_stat": ("jobs_memory_numa_bytes",),
    "io.stat": _BLOCK,
    "blkio.throttle.io_service_bytes_recursive": _BLOCK,
    "blkio.throttle.io_serviced_recursive": _BLOCK,
}
"""Files of cgroups, of both versions, from which nothing but these metrics is made."""

_SWITCHES = ("jobs_context_switches_total",)
_QUEUE = ("jobs_run_queue_wait_seconds_total",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What is read of each job besides what always is."""

    unneeded_files: frozenset[str]
    switches: bool
    queue: bool
    steps: bool


def find_needs(is_wanted: Callable[[Metric], bool]) -> Needs:
    """Return what the wanted metrics of jobs are made from."""
    wanted = {metric.name for metric in COLLECTOR.metrics if is_wanted(metric)}

    def is_needed(names: Iterable[str]) -> bool:
        return not wanted.isdisjoint(names)

    return Needs(
        unneeded_files=frozenset(file for file, names in METRICS_OF_FILES.items() if not is_needed(names)),
        switches=is_needed(_SWITCHES),
        queue=is_needed(_QUEUE),
        steps=is_needed(metric.name for metric, _ in STEPS),
    )
