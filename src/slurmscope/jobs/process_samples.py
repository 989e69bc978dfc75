# SPDX-License-Identifier: Apache-2.0
"""Summarize traced processes and Slurm's own samples of a job, and compare both with what the node agents measured."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurmscope.jobs.curves import peak, sum_known
from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.processes import (
    ProcessSummary,
    ProfileComparison,
    ProfileSummary,
    StepProfile,
    TaskProfile,
    TraceDifference,
    TraceSummary,
)
from slurmscope.jobs.series import Series

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


MAX_STEPS = 12
MAX_TASKS = 12
"""Steps and tasks shown for a job; the others are counted."""

_OF_TASKS = {
    "cpu_seconds": "profiled_cpu",
    "peak_memory_bytes": "profiled_memory",
    "read_bytes": "profiled_read",
    "write_bytes": "profiled_write",
    "mean_gpus": "profiled_gpu",
    "peak_gpu_memory_bytes": "profiled_gpu_memory",
}
_SUMS = ("cpu_seconds", "read_bytes", "write_bytes", "mean_gpus", "peak_gpu_memory_bytes")
"""Of a step these are the sums over its tasks."""
_OF_STEPS = {
    "lustre_read_bytes": "profiled_lustre_read",
    "lustre_write_bytes": "profiled_lustre_write",
    "received_bytes": "profiled_received",
    "sent_bytes": "profiled_sent",
}
MAX_DIGITS = 20


def summarize_profile(run: MeasuredRun, working_peaks: Mapping[str, float]) -> ProfileSummary:
    """Summarize the samples; ``working_peaks`` is the memory by node that the agents measured."""
    tasks = _tasks(run)
    names = _busiest_steps(run, tasks)
    shown = set(names[:MAX_STEPS])
    of_shown = sorted((task for task in tasks if task.step in shown), key=_busiest_first)
    return ProfileSummary(
        steps=tuple(_step(run, name, of_shown) for name in sorted(shown, key=step_order)),
        other_steps=max(0, len(names) - MAX_STEPS),
        tasks=tuple(sorted(of_shown[:MAX_TASKS], key=_task_order)),
        other_tasks=max(0, len(of_shown) - MAX_TASKS),
        comparisons=tuple(_compare(run, tasks, working_peaks)),
    )


def step_order(step: str) -> tuple[int, str]:
    """Return where a step belongs: batch, extern and others before numbers."""
    number = _number(step.partition("+")[0])
    return -1 if number is None else number, step


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def _busiest_steps(run: MeasuredRun, tasks: Iterable[TaskProfile]) -> list[str]:
    cpu: defaultdict[str, float] = defaultdict(float)
    for task in tasks:
        cpu[task.step] += task.cpu_seconds or 0.0
    for name in (*_OF_STEPS.values(), "profiled_power"):
        for labels in run.totals.get(name, {}):
            cpu[labels[1]] += 0.0
    return sorted(cpu, key=lambda step: (-cpu[step], step_order(step)))


def _tasks(run: MeasuredRun) -> list[TaskProfile]:
    totals = {field: run.totals.get(query, {}) for field, query in _OF_TASKS.items()}
    return [
        TaskProfile(node=key[0], step=key[1], task=key[2], **{field: found.get(key) for field, found in totals.items()})
        for key in {key for found in totals.values() for key in found}
    ]


def _busiest_first(task: TaskProfile) -> tuple[object, ...]:
    return -(task.cpu_seconds or 0.0), _task_order(task)


def _task_order(task: TaskProfile) -> tuple[object, ...]:
    return step_order(task.step), _number(task.task) or 0, task.task, task.node


def _step(run: MeasuredRun, name: str, of_all: Iterable[TaskProfile]) -> StepProfile:
    tasks = [task for task in of_all if task.step == name]
    power: defaultdict[str, float] = defaultdict(float)
    for (_node, step, sensor), watts in sorted(run.totals.get("profiled_power", {}).items()):
        if step == name:
            power[sensor] += watts
    of_nodes = {
        field: sum_known(value for labels, value in run.totals.get(query, {}).items() if labels[1] == name)
        for field, query in _OF_STEPS.items()
    }
    return StepProfile(
        step=name,
        tasks=len(tasks),
        nodes=tuple(sorted({task.node for task in tasks})),
        peak_task_memory_bytes=peak(task.peak_memory_bytes for task in tasks),
        mean_power_watts=dict(power),
        **{field: sum_known(getattr(task, field) for task in tasks) for field in _SUMS},
        **of_nodes,
    )


def _compare(
    run: MeasuredRun, tasks: list[TaskProfile], working_peaks: Mapping[str, float]
) -> Iterator[ProfileComparison]:
    memory = {series.labels[0]: max(series.values) for series in run.curves.get("profiled_memory_node", ())}
    yield from _both("cpu_seconds", _by_node(tasks, "cpu_seconds"), run.by_node("cpu"))
    yield from _both("memory_bytes", memory, working_peaks)
    yield from _both("read_bytes", _by_node(tasks, "read_bytes"), run.by_node("read"))
    yield from _both("write_bytes", _by_node(tasks, "write_bytes"), run.by_node("write"))


def _by_node(tasks: Iterable[TaskProfile], field: str) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for task in tasks:
        if (value := getattr(task, field)) is not None:
            sums[task.node] += value
    return sums


def _both(quantity: str, sampled: Mapping[str, float], measured: Mapping[str, float]) -> Iterator[ProfileComparison]:
    """Compare sums over the nodes that have both."""
    if nodes := sampled.keys() & measured.keys():
        yield ProfileComparison(
            quantity=quantity,
            sampled=math.fsum(sampled[node] for node in nodes),
            measured=math.fsum(measured[node] for node in nodes),
        )
