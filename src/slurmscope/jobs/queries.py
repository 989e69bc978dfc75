# SPDX-License-Identifier: Apache-2.0
"""Define the time series queries of a job report; each is sent once for many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurmscope.jobs.series import NODE_LABEL, Aggregation, DerivedLabel, SeriesQuery

_NODE = (NODE_LABEL,)
_PORTS = (NODE_LABEL, "transport")
_PAGES = (NODE_LABEL, "kind")
_HELD = (NODE_LABEL, "pid", "program", "task", "state")
_CORE = (NODE_LABEL, "core")


_FILESYSTEM = "filesystem"
LUSTRE_READ = "lustre_job_read_bytes_total"
LUSTRE_WRITE = "lustre_job_write_bytes_total"
LUSTRE_OPERATIONS = "lustre_job_stats_total"


def _by_filesystem(metric: str, targets: str = "OST|MDT") -> SeriesQuery:
    """Query a Lustre exporter's counter by file system; other targets have no file system."""
    filesystem = DerivedLabel(_FILESYSTEM, "target", f"(.+)-(?:{targets})[0-9a-fA-F]{{4}}")
    # Two servers may have the same target, but what has no target is of another source on each of them.
    source = (DerivedLabel("source", "instance", "(.*)"), DerivedLabel("source", "target", "().+"))
    operation = ("operation",) if metric == LUSTRE_OPERATIONS else ()
    return SeriesQuery(
        metric=metric,
        how=Aggregation.RATE,
        each=("jobid", "target", "source", *operation, _FILESYSTEM),
        by=(_FILESYSTEM,),
        job_label="jobid",
        derived=(filesystem, *source),
        is_foreign=True,
    )


_LUSTRE = {
    "filesystem_read": _by_filesystem(LUSTRE_READ),
    "filesystem_write": _by_filesystem(LUSTRE_WRITE),
    "filesystem_metadata": _by_filesystem(LUSTRE_OPERATIONS, "MDT"),
}


PROCESS_LABELS = (NODE_LABEL, "step", "rank", "pid", "command")
"""Labels that identify a traced process of a job."""


def _traced(metric: str, how: Aggregation, by: tuple[str, ...] = PROCESS_LABELS) -> SeriesQuery:
    return SeriesQuery(metric=f"slurm_trace_{metric}", how=how, each=PROCESS_LABELS, by=by)


TRACED_CURVES: Mapping[str, SeriesQuery] = {
    "traced_cpu": _traced("cpu_seconds_total", Aggregation.RATE),
    # Where the sender does not measure CPU time.
    "traced_cores": _traced("cpu_cores", Aggregation.MEAN),
    "traced_memory": _traced("memory_rss_bytes", Aggregation.MAX),
    "traced_threads": _traced("threads", Aggregation.MAX),
    "traced_read": _traced("read_bytes_total", Aggregation.RATE),
    "traced_write": _traced("write_bytes_total", Aggregation.RATE),
}
TRACED_TOTALS: Mapping[str, SeriesQuery] = {
    "traced_threads": _traced("threads", Aggregation.MAX),
    "traced_read": _traced("read_bytes_total", Aggregation.MAX),
    "traced_write": _traced("write_bytes_total", Aggregation.MAX),
}
"""Queries for a few processes of jobs that are known to be traced."""

TRACED_BY_NODE: Mapping[str, SeriesQuery] = {
    "traced_cpu_node": _traced("cpu_seconds_total", Aggregation.RATE, by=(NODE_LABEL,)),
    "traced_memory_node": _traced("memory_rss_bytes", Aggregation.MAX, by=(NODE_LABEL,)),
}
"""Queries for the sum over all processes of jobs that are known to be traced."""


TASK_LABELS = (NODE_LABEL, "step", "task")
"""Labels that identify a task of a job in Slurm's own samples."""

_STEP = (NODE_LABEL, "step")


def _profiled(metric: str, how: Aggregation, each: tuple[str, ...], by: tuple[str, ...] | None = None) -> SeriesQuery:
    return SeriesQuery(metric=f"slurm_profile_{metric}", how=how, each=each, by=each if by is None else by)


PROFILED_TOTALS: Mapping[str, SeriesQuery] = {
    "profiled_cpu": _profiled("task_cpu_seconds_total", Aggregation.TOTAL, TASK_LABELS),
    "profiled_memory": _profiled("task_resident_bytes", Aggregation.MAX, TASK_LABELS),
    "profiled_read": _profiled("task_read_bytes_total", Aggregation.TOTAL, TASK_LABELS),
    "profiled_write": _profiled("task_write_bytes_total", Aggregation.TOTAL, TASK_LABELS),
    "profiled_gpu": _profiled("task_gpu_utilization_ratio", Aggregation.MEAN, TASK_LABELS),
    "profiled_gpu_memory": _profiled("task_gpu_memory_bytes", Aggregation.MAX, TASK_LABELS),
    "profiled_power": _profiled("power_watts", Aggregation.MEAN, (*_STEP, "sensor")),
    "profiled_lustre_read": _profiled("filesystem_read_bytes_total", Aggregation.TOTAL, _STEP),
    "profiled_lustre_write": _profiled("filesystem_write_bytes_total", Aggregation.TOTAL, _STEP),
    "profiled_received": _profiled("network_receive_bytes_total", Aggregation.TOTAL, _STEP),
    "profiled_sent": _profiled("network_transmit_bytes_total", Aggregation.TOTAL, _STEP),
}
"""Queries for jobs that are known to be profiled by Slurm."""

PROFILED_CURVES: Mapping[str, SeriesQuery] = {
    "profiled_memory_node": _profiled("task_resident_bytes", Aggregation.MAX, TASK_LABELS, by=_NODE)
}
"""The same, over time."""


def _curve(metric: str, how: Aggregation, each: tuple[str, ...] = _NODE, by: tuple[str, ...] = _NODE) -> SeriesQuery:
    return SeriesQuery(metric=metric, how=how, each=each, by=by)


GPU_LABELS = (NODE_LABEL, "gpu", "mig")
"""Labels that identify a GPU or MIG instance of a job."""


def _held(metric: str, how: Aggregation, labels: tuple[str, ...] = GPU_LABELS) -> SeriesQuery:
    return SeriesQuery(metric=f"jobs_gpu_held_{metric}", how=how, each=labels, by=labels)


FP32 = "fp32"
GPU_LINKS = ("pcie_received", "pcie_transmitted", "nvlink_received", "nvlink_transmitted")
"""Ways of data into a GPU and out of it."""


def _worked(metric: str, *labels: str) -> SeriesQuery:
    labels = labels or GPU_LABELS
    return SeriesQuery(metric=f"jobs_gpu_{metric}_total", how=Aggregation.TOTAL, each=labels, by=labels)


DCGM = ("sm_active", "tensor_active", "fp32_active", "dram_active")
"""What deploy/rules/slurmscope-dcgm.yml records of a site's dcgm-exporter, for GPUs that one job holds."""


def _of_dcgm(name: str) -> SeriesQuery:
    metric = f"slurm_job_gpu:dcgm_{name}:ratio"
    return SeriesQuery(metric=metric, how=Aggregation.MEAN, each=GPU_LABELS, by=GPU_LABELS, is_foreign=True)


GPU_TOTALS: Mapping[str, SeriesQuery] = {
    "gpu_info": _held("device_info", Aggregation.MAX, (*GPU_LABELS, "uuid", "model")),
    "gpu_jobs": _held("jobs", Aggregation.MAX),
    "gpu_memory_size": _held("memory_size_bytes", Aggregation.MAX),
    "gpu_held_memory": _held("memory_bytes", Aggregation.MAX),
    "gpu_held_utilization": _held("utilization_ratio", Aggregation.MEAN),
    "gpu_busy": _worked("busy_seconds"),
    "gpu_sm": _worked("sm_active_seconds"),
    "gpu_tensor": _worked("tensor_active_seconds"),
    "gpu_dram": _worked("dram_active_seconds"),
    "gpu_fp32": replace(_worked("pipe_active_seconds", *GPU_LABELS, "pipe"), where=(("pipe", FP32),)),
    "gpu_energy": _worked("energy_joules"),
    "gpu_throttled": _worked("throttled_seconds", *GPU_LABELS, "reason"),
    "gpu_uncounted": SeriesQuery(
        metric="jobs_gpu_counters_unavailable",
        how=Aggregation.MAX,
        each=(*GPU_LABELS, "reason"),
        by=(*GPU_LABELS, "reason"),
    ),
    **{f"gpu_{link}": _worked(f"{link}_bytes") for link in GPU_LINKS},
    **{f"dcgm_{name}": _of_dcgm(name) for name in DCGM},
}
"""Queries for each GPU of jobs that are known to hold GPUs."""


_FAULT = (*GPU_LABELS, "xid")
GPU_FAULTS: Mapping[str, SeriesQuery] = {
    "gpu_faults": SeriesQuery(metric="jobs_gpu_faults_total", how=Aggregation.MAX, each=_FAULT, by=_FAULT),
    "gpu_fault_time": SeriesQuery(
        metric="jobs_gpu_fault_timestamp_seconds", how=Aggregation.MAX, each=_FAULT, by=_FAULT
    ),
}
"""Queries for errors of these GPUs; one that ended the job is first seen after its end."""
GPU_FAULTS_SECONDS = 300.0
"""How long after the end of a job to look for them."""

ENERGY_LABELS = (NODE_LABEL, "part", "covers")
"""Labels of the parts of a job's energy, as its nodes split theirs among jobs."""
GPU_PART, METERED_GPUS = "gpu", "gpus"
"""The part that GPUs used, and the value of ``covers`` where the node has no other meter."""


def _rate(query: SeriesQuery) -> SeriesQuery:
    return replace(query, how=Aggregation.RATE)


GPU_CURVES: Mapping[str, SeriesQuery] = {
    **{name: _rate(GPU_TOTALS[name]) for name in ("gpu_busy", "gpu_sm", "gpu_tensor")},
    "gpu_held_memory": GPU_TOTALS["gpu_held_memory"],
    "gpu_power": _rate(GPU_TOTALS["gpu_energy"]),
    **{f"gpu_{link}": _rate(GPU_TOTALS[f"gpu_{link}"]) for link in GPU_LINKS},
}
"""The same, over time."""


CURVES: Mapping[str, SeriesQuery] = {
    "cpu": _curve("jobs_cpu_seconds_total", Aggregation.RATE),
    "cpu_user": _curve("jobs_cpu_user_seconds_total", Aggregation.RATE, by=()),
    "cpu_system": _curve("jobs_cpu_system_seconds_total", Aggregation.RATE, by=()),
    "cpu_core": _curve("jobs_cpu_core_seconds_total", Aggregation.RATE, each=_CORE, by=_CORE),
    "cpu_queue": SeriesQuery(metric="jobs_run_queue_wait_seconds_total", how=Aggregation.RATE, may_fall=True),
    "cpu_throttled": _curve("jobs_cpu_throttled_seconds_total", Aggregation.RATE),
    # While a process is held.
    "held": _curve("jobs_held_process_seconds", Aggregation.MAX, each=_HELD, by=_HELD),
    # For a minute after the last process of the job on a node.
    "ended": SeriesQuery(
        metric="jobs_info",
        how=Aggregation.MAX,
        each=(NODE_LABEL, "has_ended"),
        by=_NODE,
        where=(("has_ended", "true"),),
    ),
    "memory_anon": _curve("jobs_memory_anon_bytes", Aggregation.MAX),
    "memory_shared": _curve("jobs_memory_shmem_bytes", Aggregation.MAX),
    # Where the node has no memory controller.
    "memory_rss": _curve("jobs_memory_rss_bytes", Aggregation.MAX),
    "read": SeriesQuery(metric="jobs_io_read_bytes_total", how=Aggregation.RATE, may_fall=True),
    "write": SeriesQuery(metric="jobs_io_write_bytes_total", how=Aggregation.RATE, may_fall=True),
    "open_files": _curve("jobs_distinct_files", Aggregation.MAX),
    "running_threads": SeriesQuery(
        metric="jobs_threads",
        how=Aggregation.MEAN,
        each=(NODE_LABEL, "state"),
        by=_NODE,
        where=(("state", "running"),),
    ),
    "gpu": _curve("jobs_gpu_utilization_ratio", Aggregation.MEAN),
    "gpu_memory": _curve("jobs_gpu_memory_bytes", Aggregation.MAX),
    **GPU_CURVES,
    **_LUSTRE,
    **TRACED_CURVES,
    **TRACED_BY_NODE,
    **PROFILED_CURVES,
}
"""Queries whose results are drawn over time."""


TOTALS: Mapping[str, SeriesQuery] = {
    "cpu": _curve("jobs_cpu_seconds_total", Aggregation.MAX),
    "cpu_user": _curve("jobs_cpu_user_seconds_total", Aggregation.MAX),
    "cpu_system": _curve("jobs_cpu_system_seconds_total", Aggregation.MAX),
    "cpu_core": _curve("jobs_cpu_core_seconds_total", Aggregation.MAX, each=_CORE, by=_CORE),
    "cpu_queue": _curve("jobs_run_queue_wait_seconds_total", Aggregation.TOTAL),
    "refaults": _curve("jobs_memory_refaults_total", Aggregation.TOTAL, each=_PAGES, by=_PAGES),
    # Between two scrapes: a point of a curve is a mean over minutes.
    "busy_peak": _curve("jobs_busy_cores", Aggregation.MAX),
    "cores": _curve("jobs_cores", Aggregation.MAX),
    "memory_peak": _curve("jobs_memory_peak_bytes", Aggregation.MAX),
    "memory_peak_final": _curve("jobs_memory_peak_final", Aggregation.MAX),
    "memory_file": _curve("jobs_memory_file_bytes", Aggregation.MAX),
    "memory_limit": _curve("jobs_memory_limit_bytes", Aggregation.MAX),
    "oom_kills": SeriesQuery(
        metric="jobs_memory_events_total",
        how=Aggregation.MAX,
        each=(NODE_LABEL, "event"),
        by=_NODE,
        where=(("event", "oom_kill"),),
    ),
    "read": _curve("jobs_io_read_bytes_total", Aggregation.TOTAL),
    "write": _curve("jobs_io_write_bytes_total", Aggregation.TOTAL),
    "reads": _curve("jobs_io_reads_total", Aggregation.TOTAL),
    "writes": _curve("jobs_io_writes_total", Aggregation.TOTAL),
    # Without pipes, devices and tmpfs.
    "storage_read": _curve("jobs_storage_read_bytes_total", Aggregation.TOTAL),
    "storage_write": _curve("jobs_storage_write_bytes_total", Aggregation.TOTAL),
    "mean_open_files": _curve("jobs_distinct_files", Aggregation.MEAN),
    "uses_scratch": _curve("jobs_uses_scratch", Aggregation.MAX),
    "program_threads": SeriesQuery(
        metric="jobs_program_threads", how=Aggregation.MAX, each=(NODE_LABEL, "program"), by=(NODE_LABEL, "program")
    ),
    "network": _curve("jobs_network_transmit_bytes_total", Aggregation.TOTAL, each=_PORTS, by=_PORTS),
    "held": _curve("jobs_held_process_seconds", Aggregation.MAX, each=_HELD, by=_HELD),
    "gpu": _curve("jobs_gpu_utilization_ratio", Aggregation.MEAN),
    "gpu_memory": _curve("jobs_gpu_memory_bytes", Aggregation.MAX),
    "energy": _curve("jobs_energy_joules_total", Aggregation.TOTAL, ENERGY_LABELS, ENERGY_LABELS),
    "gpu_held_idle": _held("idle", Aggregation.MEAN),
    **GPU_TOTALS,
    **GPU_FAULTS,
    **_LUSTRE,
    "traced_cpu": _traced("cpu_seconds_total", Aggregation.MAX),
    "traced_memory": _traced("memory_rss_bytes", Aggregation.MAX),
    **TRACED_TOTALS,
    # Whether Slurm profiled any step; the value means nothing.
    "profiled": _profiled("last_sample_timestamp_seconds", Aggregation.MAX, _STEP, by=()),
    **PROFILED_TOTALS,
}
"""Queries for one value per series over the whole run."""

DCGM_SOURCES = ("SM_ACTIVE", "PIPE_TENSOR_ACTIVE", "PIPE_FP32_ACTIVE", "DRAM_ACTIVE")
"""What deploy/rules/slurmscope-dcgm.yml reads, after ``DCGM_FI_PROF_``."""
FOREIGN_METRICS = frozenset(
    (
        *(wanted.metric for queries in (CURVES, TOTALS) for wanted in queries.values() if wanted.is_foreign),
        *(f"DCGM_FI_PROF_{source}" for source in DCGM_SOURCES),
    )
)
"""Metrics of other exporters, and of recording rules, from which reports are made."""


RULE_METRICS = frozenset(
    {
        "gpu_lost",
        "gpu_recovery_action",
        "gpu_xid_last_timestamp_seconds",
        "jobs_held_processes",
        "jobs_processes",
        "slurmscope_certificate_expiry_timestamp_seconds",
        "slurmscope_collector_success",
        "slurmscope_config_last_reload_successful",
        "slurmscope_reading_age_seconds",
        "slurmscope_remote_write_dropped_samples_total",
        "slurmscope_series_dropped_total",
    }
)
"""Metrics of an agent that only the rules in ``deploy/rules`` query."""


def common_conditions(queries: Iterable[SeriesQuery]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the label and its values to which all queries of a metric are restricted, where they are."""
    by_metric: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for query in queries:
        by_metric.setdefault(query.metric, []).append(query.where)
    return {
        metric: (labels.pop(), frozenset(value for where in conditions for _, value in where))
        for metric, conditions in by_metric.items()
        if all(len(where) == 1 for where in conditions)
        and len(labels := {label for where in conditions for label, _ in where}) == 1
    }


REPORT_QUERIES = tuple(query for query in (*CURVES.values(), *TOTALS.values()) if not query.is_foreign)
REPORTS_METRICS = RULE_METRICS | {query.metric for query in REPORT_QUERIES}
"""Metrics of the profile ``reports``."""
REPORTS_CONDITIONS = common_conditions(REPORT_QUERIES)
"""Those of them that are exported with some values of a label only."""
