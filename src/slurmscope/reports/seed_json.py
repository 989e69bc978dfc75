# SPDX-License-Identifier: Apache-2.0
"""Render the use of a job under the keys of the older job web application, for programs that read those.

Memory and data are in units of 1024 * 1024 bytes, which that application called MB.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.model.report import JobReport
from slurmscope.reports.words import format_elapsed

EXPECTED_PERCENT_PER_CORE = 80

_MIB = 1 << 20


def render_seed_usage(report: JobReport) -> dict[str, object]:
    """Return a dictionary for JSON, with None for what was not measured."""
    record, io = report.record, report.summary.io
    scratch = io.uses_scratch
    return {
        "jobid": record.shown_id,
        "sponsor": record.account,
        "username": record.user,
        "runtime": format_elapsed(report.summary.run_seconds),
        "uses_scratch": None if scratch is None else str(scratch),
        "alloc_tres": {
            # Billing is not part of our records.
            "billing": None,
            "alloc_cpu": record.cpus,
            "alloc_mem": None if record.memory_bytes is None else f"{record.memory_bytes // _MIB}M",
            "alloc_nodes": record.node_count,
        },
        "threads": dict(report.summary.program_threads),
        "cpu": _cpu(report),
        "ram": _ram(report),
        "io": {
            "opened_files": io.mean_open_files,
            "read": {"amount": _mib(io.read_bytes), "unit": "MB", "count": io.reads},
            "write": {"amount": _mib(io.write_bytes), "unit": "MB", "count": io.writes},
        },
    }


def _cpu(report: JobReport) -> Mapping[str, object]:
    cpu, cores = report.summary.cpu, report.record.cpus
    return {
        "available": {"amount": cores, "unit": "cores"},
        "used": {"amount": cpu.cores_used, "unit": "cores"},
        "time_core": _cores(report),
        "time_total": {"time": cpu.time.used, "unit": "s"},
        "avg_usage_job": {
            "usage": _percent(cpu.mean_cores),
            "lowest_expected_usage": EXPECTED_PERCENT_PER_CORE * cores,
            "unit": "%",
        },
        "max_usage_job": {"usage": _percent(cpu.peak_cores), "unit": "%"},
    }


def _cores(report: JobReport) -> list[Mapping[str, object]]:
    times = [
        (f"{node.node}_core_{core}", seconds)
        for node in report.summary.nodes
        for core, seconds in node.core_seconds.items()
    ]
    whole = sum(seconds for _, seconds in times)
    return [
        {"core": name, "time": seconds, "unit": "s", "percent_of_total": 100 * seconds / whole if whole else 0.0}
        for name, seconds in times
    ]


def _ram(report: JobReport) -> Mapping[str, object]:
    memory = report.summary.memory
    return {
        "used": {"amount": _mib(memory.best_peak_bytes), "unit": "MB", "usage": memory.ratio},
        "available": {"amount": _mib(memory.asked_bytes), "unit": "MB"},
    }


def _mib(amount: float | None) -> float | None:
    return None if amount is None else amount / _MIB


def _percent(cores: float | None) -> float | None:
    """Return a percentage in which 100 is one core."""
    return None if cores is None else 100 * cores
