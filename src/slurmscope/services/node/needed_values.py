# SPDX-License-Identifier: Apache-2.0
"""Find out what need not be read of each job, because none of the metrics made from it is exported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slurmscope.collectors.job_use import COLLECTOR, STEPS
from slurmscope.metrics.family import Metric

_BLOCK = (
    "jobs_block_read_bytes_total",
    "jobs_block_write_bytes_total",
    "jobs_block_reads_total",
    "jobs_block_writes_total",
)
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
    "io.stat": _BLOCK,
    "blkio.throttle.io_service_bytes_recursive": _BLOCK,
    "blkio.throttle.io_serviced_recursive": _BLOCK,
}
"""Files of cgroups, of both versions, from which nothing but these metrics is made."""

_SWITCHES = ("jobs_context_switches_total",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Hold what is read of each job besides what always is."""

    unneeded_files: frozenset[str]
    switches: bool
    steps: bool


def find_needs(is_wanted: Callable[[Metric], bool]) -> Needs:
    """Return what the wanted metrics of jobs are made from."""
    wanted = {metric.name for metric in COLLECTOR.metrics if is_wanted(metric)}

    def is_needed(names: Iterable[str]) -> bool:
        return not wanted.isdisjoint(names)

    return Needs(
        unneeded_files=frozenset(file for file, names in METRICS_OF_FILES.items() if not is_needed(names)),
        switches=is_needed(_SWITCHES),
        steps=is_needed(one.metric.name for one in STEPS),
    )
