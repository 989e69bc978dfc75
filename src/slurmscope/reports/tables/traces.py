# SPDX-License-Identifier: Apache-2.0
"""Tabulate the traced processes of a job, and say where they disagree with what the node agents measured."""

from __future__ import annotations

from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio, format_seconds
from slurmscope.model.report import JobReport
from slurmscope.model.summary import ProcessSummary, TraceDifference
from slurmscope.reports.formatting import show
from slurmscope.reports.tables.nodes import TextTable

_HEAD = ("Command", "Rank", "Node", "CPU time", "Memory", "Threads", "Disk read", "Disk write")

_NOT_TRACED = "processes that do not run under slurmscope run are not traced"
_REASONS = {
    ("cpu_seconds", False): f"{_NOT_TRACED}.",
    ("cpu_seconds", True): "the node agents missed part of the run, or the senders' values are wrong.",
    ("memory_bytes", False): f"{_NOT_TRACED}, and a peak between two samples is missed.",
    ("memory_bytes", True): (
        "resident memory counts pages that processes share once for each of them, counts mapped files, and an ended "
        "process until its last sample expires."
    ),
}
"""Why the traced value may be lower or higher."""


def make_trace_table(report: JobReport) -> TextTable:
    """Make one row for each process; without traced processes there is none."""
    traces = report.summary.traces
    has_steps = len({process.step for process in traces.processes}) > 1
    rows = tuple(_row(process, has_steps=has_steps) for process in traces.processes)
    others = f"{traces.others:,} more with less CPU time." if traces.others else ""
    return TextTable(head=_HEAD, rows=rows, note=others)


def trace_sentences(report: JobReport) -> tuple[str, ...]:
    """Say in one sentence each where traced processes and node agents disagree."""
    return tuple(map(_sentence, report.summary.traces.differences))


def _row(process: ProcessSummary, *, has_steps: bool) -> tuple[str, ...]:
    step = f" (step {process.step})" if has_steps and process.step else ""
    texts = (f"{process.command}{step}", process.rank, process.node)
    numbers = (
        format_seconds(process.cpu_seconds),
        format_bytes(process.peak_memory_bytes),
        format_count(process.peak_threads),
        format_bytes(process.read_bytes),
        format_bytes(process.write_bytes),
    )
    return (*(show(text, 80) or "–" for text in texts), *("–" if text == NOT_MEASURED else text for text in numbers))


def _sentence(difference: TraceDifference) -> str:
    traced, measured, is_more = difference.traced, difference.measured, difference.traced > difference.measured
    share = f"{format_ratio(abs(traced - measured) / measured)} " if measured else ""
    than = f"{share}{'more' if is_more else 'less'} than the"
    reason = _REASONS[difference.quantity, is_more]
    if difference.quantity == "cpu_seconds":
        return (
            f"Traced processes used {format_seconds(traced)} of CPU time, {than} {format_seconds(measured)} that the "
            f"node agents measured: {reason}"
        )
    return (
        f"Traced processes had up to {format_bytes(traced)} of memory, {than} {format_bytes(measured)} that the node "
        f"agents measured: {reason}"
    )
