# SPDX-License-Identifier: Apache-2.0
"""Format the report of a command once for all of its renderings."""

from __future__ import annotations

import shlex
import signal

from slurmscope.figures import (
    NOT_MEASURED,
    format_bytes,
    format_count,
    format_rate,
    format_ratio,
    format_seconds,
    format_some,
)
from slurmscope.model.finding import MIN_JUDGED_SECONDS
from slurmscope.model.report import Chart
from slurmscope.model.traced_run import RunReport
from slurmscope.reports.contents import LabelledText
from slurmscope.reports.formatting import format_time, show

COMMAND_LIMIT = 300

_ORIGINS = {"cgroup": "cgroup limit", "ulimit": "ulimit -v", "machine": "memory of the machine"}


def title(made: RunReport) -> str:
    """Return the command line."""
    return show(shlex.join(made.run.command), COMMAND_LIMIT)


def rows(made: RunReport) -> tuple[LabelledText, ...]:
    """List what the command used."""
    summary, run = made.report.summary, made.run
    cpu, record = summary.cpu, made.report.record
    job = f", job {record.shown_id}" if record.job_id else ""
    found = (
        LabelledText("State", state(made)),
        LabelledText("Host", f"{', '.join(record.nodes)}{job}"),
        LabelledText("Started", format_time(run.start_seconds)),
        LabelledText("Wall time", precise(summary.run_seconds)),
        LabelledText(
            "CPU time",
            f"{precise(cpu.time.used)} (user {precise(cpu.user_seconds)}, system {precise(cpu.system_seconds)})",
        ),
        LabelledText("CPU efficiency", f"{format_ratio(cpu.time.ratio)} of {format_some(run.cores, 'core')}"),
        LabelledText("Memory, peak", _memory(made)),
        LabelledText("Processes, peak", f"{run.peak_processes:,} with {format_some(run.peak_threads, 'thread')}"),
        LabelledText("Read", _amount(summary.io.read_bytes, summary.io.reads, run.storage_read_bytes)),
        LabelledText("Written", _amount(summary.io.write_bytes, summary.io.writes, run.storage_write_bytes)),
        *([LabelledText("GPU", _gpu(made))] if summary.gpu.asked else []),
        *([LabelledText("Still running", _left(run.processes_left))] if run.processes_left else []),
    )
    return tuple(LabelledText(row.label, show(row.text)) for row in found)


def state(made: RunReport) -> str:
    """Return how the command ended."""
    run = made.run
    if run.exit_signal:
        return f"killed by {_signal_name(run.exit_signal)}"
    return f"exit code {run.exit_code}"


def curves(made: RunReport) -> tuple[Chart, ...]:
    """Return the charts that are drawn as small curves."""
    return tuple(chart for chart in made.report.charts if len(chart.lines) == 1)


def peak_text(chart: Chart) -> str:
    """Format the highest value of a small curve."""
    peak = max((value for value in chart.lines[0].values if value is not None), default=None)
    if chart.unit == "cores":
        return f"{format_count(peak)} cores" if peak != 1 else "1 core"
    if chart.unit == "ratio":
        return format_ratio(peak)
    return format_rate(peak) if chart.unit == "bytes/s" else format_bytes(peak)


def no_findings(made: RunReport) -> str:
    """Explain why there are no findings."""
    if made.report.summary.run_seconds < MIN_JUDGED_SECONDS:
        return f"Too short to judge: most rules need {format_seconds(MIN_JUDGED_SECONDS)}."
    return "No findings: the measurements show nothing to change."


def precise(seconds: float | None) -> str:
    """Format a duration; below a minute with hundredths of a second."""
    if seconds is not None and 0 < seconds < 0.005:
        return "under 0.01 s"
    return f"{seconds:.2f} s" if seconds is not None and 0 <= seconds < 60 else format_seconds(seconds)


def _memory(made: RunReport) -> str:
    peak, limit = made.report.summary.memory.working_peak_bytes, made.run.memory_limit_bytes
    if peak is None or not limit:
        return format_bytes(peak)
    origin = _ORIGINS.get(made.run.memory_limit_origin, "limit")
    return f"{format_bytes(peak)} of {format_bytes(limit)} ({format_ratio(peak / limit)}; {origin})"


def _amount(amount: float | None, calls: float | None, storage: float | None) -> str:
    if amount is None:
        return NOT_MEASURED
    return f"{format_bytes(amount)} in {format_some(calls or 0, 'call')}; storage {format_bytes(storage)}"


def _gpu(made: RunReport) -> str:
    gpu = made.report.summary.gpu
    use = f"{format_ratio(gpu.mean_utilization)} of {format_some(gpu.asked, 'GPU')}"
    return f"{use}; memory {format_bytes(gpu.peak_memory_bytes)}"


def _left(count: int) -> str:
    return f"{format_some(count, 'process', 'processes')}, counted until the command ended"


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
