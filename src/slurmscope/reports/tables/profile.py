# SPDX-License-Identifier: Apache-2.0
"""Tabulate Slurm's own samples of steps and tasks, beside what the node agents measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.model.report import JobReport
from slurmscope.model.summary import ProfileComparison, ProfileSummary, StepProfile, TaskProfile
from slurmscope.reports.formatting import show
from slurmscope.reports.tables.nodes import TextTable

_HEAD = ("Step", "Task", "Node", "CPU time", "Memory", "Read", "Written")
_GPU_HEAD = ("GPUs", "GPU memory")
"""Columns that are left out where no step has them."""

_MAX_SENSORS = 4

_MEANING = "As Slurm's own plugins sampled profiled steps, at intervals. Memory of a step is that of its largest task."
_QUANTITIES: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "cpu_seconds": ("CPU time", format_seconds),
    "memory_bytes": ("Highest memory of all tasks", format_bytes),
    "read_bytes": ("Bytes read", format_bytes),
    "write_bytes": ("Bytes written", format_bytes),
}


def make_profile_table(report: JobReport) -> TextTable:
    """Make a row for each step, and below it one for each of its tasks; without samples there is none."""
    profile = report.summary.profile
    has_gpus = any(step.mean_gpus is not None or step.peak_gpu_memory_bytes is not None for step in profile.steps)
    head = _HEAD + _GPU_HEAD if has_gpus else _HEAD
    rows = tuple(row[: len(head)] for step in profile.steps for row in _rows(step, profile.tasks))
    others = " ".join(_others(profile))
    return TextTable(head=head, rows=rows, note=f"{_MEANING} {others}".rstrip() if rows else "")


def profile_sentences(report: JobReport) -> tuple[str, ...]:
    """Say what was sampled of whole nodes, and compare the other numbers with those of the node agents."""
    profile = report.summary.profile
    of_nodes = (_node_sentence(step) for step in profile.steps)
    return (*filter(None, of_nodes), *map(_comparison_sentence, profile.comparisons))


def _others(profile: ProfileSummary) -> Iterator[str]:
    if profile.other_steps:
        yield f"{format_some(profile.other_steps, 'more step')} with less CPU time."
    if profile.other_tasks:
        yield f"{format_some(profile.other_tasks, 'more task')} of these steps with less CPU time."


def _rows(step: StepProfile, of_all: tuple[TaskProfile, ...]) -> Iterator[tuple[str, ...]]:
    tasks = [task for task in of_all if task.step == step.step]
    several = f"all {step.tasks:,}" if step.tasks > 1 else ""
    nodes = format_some(len(step.nodes), "node") if step.nodes else ""
    yield (
        show(step.step, 40),
        show(tasks[0].task, 20) if step.tasks == 1 and tasks else several,
        show(step.nodes[0], 64) if len(step.nodes) == 1 else nodes,
        *_numbers(step, step.peak_task_memory_bytes),
    )
    if step.tasks > 1:
        for task in tasks:
            names = (show(task.step, 40), show(task.task, 20), show(task.node, 64))
            yield (*names, *_numbers(task, task.peak_memory_bytes))


def _numbers(of: StepProfile | TaskProfile, memory_bytes: float | None) -> tuple[str, ...]:
    texts = (
        format_seconds(of.cpu_seconds),
        format_bytes(memory_bytes),
        format_bytes(of.read_bytes),
        format_bytes(of.write_bytes),
        format_count(of.mean_gpus),
        format_bytes(of.peak_gpu_memory_bytes),
    )
    return tuple("–" if text == NOT_MEASURED else text for text in texts)


def _node_sentence(step: StepProfile) -> str:
    """Say what the nodes of a step did while it ran; empty if nothing of that was sampled."""
    parts = [
        ("mean power", _power(step)),
        ("Lustre", _both_ways(step.lustre_read_bytes, "read", step.lustre_write_bytes, "written")),
        ("network", _both_ways(step.received_bytes, "received", step.sent_bytes, "sent")),
    ]
    texts = [f"{name} {text}" for name, text in parts if text]
    return f"Nodes of step {show(step.step, 40)} while it ran: {'; '.join(texts)}." if texts else ""


def _power(step: StepProfile) -> str:
    """Format the power by sensor; that of the whole nodes needs no name."""
    sensors = [
        f"{format_count(watts)} W" if sensor == "node" else f"{format_count(watts)} W ({show(sensor, 20)})"
        for sensor, watts in list(step.mean_power_watts.items())[:_MAX_SENSORS]
    ]
    return ", ".join([*sensors, "…"] if len(step.mean_power_watts) > _MAX_SENSORS else sensors)


def _both_ways(first: float | None, first_verb: str, second: float | None, second_verb: str) -> str:
    amounts = ((first, first_verb), (second, second_verb))
    return ", ".join(f"{format_bytes(amount)} {verb}" for amount, verb in amounts if amount is not None)


def _comparison_sentence(comparison: ProfileComparison) -> str:
    name, shown = _QUANTITIES[comparison.quantity]
    sampled, measured = comparison.sampled, comparison.measured
    both = f"{name}: {shown(sampled)} in Slurm's samples, {shown(measured)} measured by the node agents"
    if sampled == measured:
        return f"{both}; no difference."
    share = f"{format_ratio(abs(sampled - measured) / measured)} " if measured else ""
    return f"{both}; the samples have {share}{'more' if sampled > measured else 'less'}."
