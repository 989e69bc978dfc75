# SPDX-License-Identifier: Apache-2.0
"""Summarize Slurm's own samples of steps and tasks, beside what the node agents measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.summary import ProfileComparison, ProfileSummary, StepProfile, TaskProfile

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
        field: _sum(value for labels, value in run.totals.get(query, {}).items() if labels[1] == name)
        for field, query in _OF_STEPS.items()
    }
    return StepProfile(
        step=name,
        tasks=len(tasks),
        nodes=tuple(sorted({task.node for task in tasks})),
        peak_task_memory_bytes=max(_known(task.peak_memory_bytes for task in tasks), default=None),
        mean_power_watts=dict(power),
        **{field: _sum(getattr(task, field) for task in tasks) for field in _SUMS},
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


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return math.fsum(known) if known else None
