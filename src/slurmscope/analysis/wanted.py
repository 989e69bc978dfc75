# SPDX-License-Identifier: Apache-2.0
"""List every question that a job report puts to the time series, each one asked once for many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from slurmscope.model.series import NODE_LABEL, How, Wanted

_NODE = (NODE_LABEL,)
_CORE = (NODE_LABEL, "core")


def _curve(metric: str, how: How, each: tuple[str, ...] = _NODE, by: tuple[str, ...] = _NODE) -> Wanted:
    return Wanted(metric=metric, how=how, each=each, by=by)


CURVES: Mapping[str, Wanted] = MappingProxyType(
    {
        "cpu": _curve("jobs_cpu_seconds_total", How.RATE),
        "cpu_user": _curve("jobs_cpu_user_seconds_total", How.RATE, by=()),
        "cpu_system": _curve("jobs_cpu_system_seconds_total", How.RATE, by=()),
        "cpu_core": _curve("jobs_cpu_core_seconds_total", How.RATE, each=_CORE, by=_CORE),
        "memory_anon": _curve("jobs_memory_anon_bytes", How.MAX),
        "memory_shared": _curve("jobs_memory_shmem_bytes", How.MAX),
        "memory_charged": _curve("jobs_memory_current_bytes", How.MAX),
        "read": _curve("jobs_io_read_bytes_total", How.RATE),
        "write": _curve("jobs_io_write_bytes_total", How.RATE),
        "open_files": _curve("jobs_distinct_files", How.MAX),
        "running_threads": Wanted(
            metric="jobs_threads", how=How.MEAN, each=(NODE_LABEL, "state"), by=_NODE, where=(("state", "running"),)
        ),
        "gpu": _curve("jobs_gpu_utilization_ratio", How.MEAN),
        "gpu_memory": _curve("jobs_gpu_memory_bytes", How.MAX),
    }
)
"""Questions whose answers are drawn."""


TOTALS: Mapping[str, Wanted] = MappingProxyType(
    {
        "cpu": _curve("jobs_cpu_seconds_total", How.MAX),
        "cpu_user": _curve("jobs_cpu_user_seconds_total", How.MAX),
        "cpu_system": _curve("jobs_cpu_system_seconds_total", How.MAX),
        "cpu_core": _curve("jobs_cpu_core_seconds_total", How.MAX, each=_CORE, by=_CORE),
        # Between two scrapes: a point of a curve is a mean over minutes.
        "busy_peak": _curve("jobs_busy_cores", How.MAX),
        "cores": _curve("jobs_cores", How.MAX),
        "memory_peak": _curve("jobs_memory_peak_bytes", How.MAX),
        "memory_limit": _curve("jobs_memory_limit_bytes", How.MAX),
        "oom_kills": Wanted(
            metric="jobs_memory_events_total",
            how=How.MAX,
            each=(NODE_LABEL, "event"),
            by=_NODE,
            where=(("event", "oom_kill"),),
        ),
        "read": _curve("jobs_io_read_bytes_total", How.TOTAL),
        "write": _curve("jobs_io_write_bytes_total", How.TOTAL),
        "reads": _curve("jobs_io_reads_total", How.TOTAL),
        "writes": _curve("jobs_io_writes_total", How.TOTAL),
        "mean_open_files": _curve("jobs_distinct_files", How.MEAN),
        "uses_scratch": _curve("jobs_uses_scratch", How.MAX),
        "program_threads": Wanted(
            metric="jobs_program_threads", how=How.MAX, each=(NODE_LABEL, "program"), by=(NODE_LABEL, "program")
        ),
        "gpu": _curve("jobs_gpu_utilization_ratio", How.MEAN),
        "gpu_memory": _curve("jobs_gpu_memory_bytes", How.MAX),
        "gpu_held_idle": Wanted(
            metric="jobs_gpu_held_idle", how=How.MEAN, each=(NODE_LABEL, "gpu", "mig"), by=(NODE_LABEL, "gpu", "mig")
        ),
    }
)
"""Questions that are answered by one number for each series of a run."""
