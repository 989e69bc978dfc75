# SPDX-License-Identifier: Apache-2.0
"""Summarize the traced processes of a job, and compare them with what the node agents measured."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.series import Series
from slurmscope.jobs.summary import ProcessSummary, TraceDifference, TraceSummary

MAX_PROCESSES = 12
"""Processes shown for a job; the others are counted."""

CPU_TOLERANCE_RATIO = 0.1
CPU_TOLERANCE_SECONDS = 10.0
SAMPLING_SECONDS = 60.0
"""Samples of both sides are up to this far apart: what the job uses in this time is no difference."""
MEMORY_TOLERANCE_RATIO = 0.25
MEMORY_TOLERANCE_BYTES = float(64 << 20)

ProcessKey = tuple[str, ...]
"""Values of ``PROCESS_LABELS``."""
TotalsByName = Mapping[str, Mapping[ProcessKey, float]]


def order_processes(totals: TotalsByName) -> list[ProcessKey]:
    """Return all traced processes, those with the most CPU time first, then those with the most memory."""
    cpu, memory = totals.get("traced_cpu", {}), totals.get("traced_memory", {})
    return sorted({*cpu, *memory}, key=lambda key: (-cpu.get(key, -1.0), -memory.get(key, -1.0), key))


def summarize_traces(run: MeasuredRun, working_peaks: Mapping[str, float]) -> TraceSummary:
    """Summarize traced processes; ``working_peaks`` is the memory by node that the agents measured."""
    ordered = order_processes(run.totals)
    if not ordered:
        return TraceSummary()
    return TraceSummary(
        processes=tuple(_process(key, run.totals) for key in ordered[:MAX_PROCESSES]),
        others=max(0, len(ordered) - MAX_PROCESSES),
        differences=(*_cpu_difference(run), *_memory_difference(run, working_peaks)),
    )


def process_curves(run: MeasuredRun, name: str, processes: Iterable[ProcessSummary]) -> Iterator[Series]:
    """Yield the curves of these processes; busy cores are as the sender states them where it sends no CPU time."""
    curves = {series.labels: series for series in run.curves.get(name, ())}
    if name == "traced_cpu":
        curves = {series.labels: series for series in run.curves.get("traced_cores", ())} | curves
    for process in processes:
        if (series := curves.get(_key(process))) is not None:
            yield series


def label_processes(processes: Sequence[ProcessSummary]) -> dict[ProcessKey, str]:
    """Name each process for people, with its step and PID where two would have the same name."""
    names = {_key(process): _name(process) for process in processes}
    uses = Counter(names.values())
    return {
        key: name if uses[name] == 1 else f"{name} ({f'step {key[1]}, ' if key[1] else ''}PID {key[3]})"
        for key, name in names.items()
    }


def _key(process: ProcessSummary) -> ProcessKey:
    return process.node, process.step, process.rank, process.pid, process.command


def _name(process: ProcessSummary) -> str:
    command = process.command or "process"
    return f"rank {process.rank}: {command} on {process.node}" if process.rank else f"{command} on {process.node}"


_TOTALS = {
    "cpu_seconds": "traced_cpu",
    "peak_memory_bytes": "traced_memory",
    "peak_threads": "traced_threads",
    "read_bytes": "traced_read",
    "write_bytes": "traced_write",
}


def _process(key: ProcessKey, totals: TotalsByName) -> ProcessSummary:
    node, step, rank, pid, command = key
    numbers = {field: totals.get(name, {}).get(key) for field, name in _TOTALS.items()}
    return ProcessSummary(node=node, step=step, rank=rank, pid=pid, command=command, **numbers)


def _cpu_difference(run: MeasuredRun) -> Iterator[TraceDifference]:
    traced: defaultdict[str, float] = defaultdict(float)
    for key, seconds in run.totals.get("traced_cpu", {}).items():
        traced[key[0]] += seconds
    ratio = max(CPU_TOLERANCE_RATIO, SAMPLING_SECONDS / run.seconds)
    yield from _difference("cpu_seconds", traced, run.by_node("cpu"), (ratio, CPU_TOLERANCE_SECONDS))


def _memory_difference(run: MeasuredRun, working_peaks: Mapping[str, float]) -> Iterator[TraceDifference]:
    """Compare the highest sums over all processes of each node."""
    traced = {series.labels[0]: max(series.values) for series in run.curves.get("traced_memory_node", ())}
    tolerance = (MEMORY_TOLERANCE_RATIO, MEMORY_TOLERANCE_BYTES)
    yield from _difference("memory_bytes", traced, working_peaks, tolerance)


def _difference(
    quantity: str, traced: Mapping[str, float], measured: Mapping[str, float], tolerance: tuple[float, float]
) -> Iterator[TraceDifference]:
    """Compare sums over the nodes whose agents measured; both tolerances, relative and absolute, must be exceeded."""
    if not traced or not measured:
        return
    ours, theirs = math.fsum(traced.get(node, 0.0) for node in measured), math.fsum(measured.values())
    ratio, least = tolerance
    if abs(ours - theirs) > max(least, ratio * theirs):
        yield TraceDifference(quantity=quantity, traced=ours, measured=theirs)
