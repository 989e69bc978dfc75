# SPDX-License-Identifier: Apache-2.0
"""Tabulate the nodes and GPUs of a job, its traced processes, and Slurm's own samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from slurmscope.core.units import (
    NOT_MEASURED,
    format_bytes,
    format_count,
    format_energy,
    format_ratio,
    format_seconds,
    format_some,
)
from slurmscope.jobs.processes import (
    ProcessSummary,
    ProfileComparison,
    ProfileSummary,
    StepProfile,
    TaskProfile,
    TraceDifference,
)
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.report import JobReport, SiteSection
from slurmscope.jobs.rules.gpu import describe_fault, describe_xid
from slurmscope.jobs.summary import GpuFault, GpuWork, HeldGpu, NodeSummary, OtherGpus

MAX_NODE_ROWS = 20
MAX_FAULTS = 5

_STATISTICS: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("lowest", min), ("median", median), ("highest", max)
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Rows of text, and a note about them where one is needed."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    names: int = 3
    """The first columns, which are words; numbers follow."""


def make_node_table(report: JobReport) -> TextTable:
    """Make one row for each node, or three for all nodes; of one node, the numbers are those of the job."""
    nodes = report.summary.nodes if len(report.summary.nodes) > 1 else ()
    head = ("Node", *(column for column, _, _ in _COLUMNS))
    if len(nodes) <= MAX_NODE_ROWS:
        return TextTable(head=head, rows=tuple((show(node.node, 64), *_cells([node], min)) for node in nodes))
    return TextTable(
        head=head,
        rows=tuple((name, *_cells(nodes, statistic)) for name, statistic in _STATISTICS),
        note=f"{len(nodes):,} nodes; each value is taken over all nodes, a row is not one node.",
    )


def _cells(nodes: Sequence[NodeSummary], statistic: Callable[[Sequence[float]], float]) -> tuple[str, ...]:
    columns = [([value for node in nodes if (value := read(node)) is not None], write) for _, read, write in _COLUMNS]
    return tuple(write(statistic(known)) if known else "–" for known, write in columns)


def _cpu_ratio(node: NodeSummary) -> float | None:
    return node.mean_cores / node.cpus if node.mean_cores is not None and node.cpus else None


_COLUMNS: tuple[tuple[str, Callable[[NodeSummary], float | None], Callable[[float | None], str]], ...] = (
    ("CPU", _cpu_ratio, format_ratio),
    ("Busy cores", lambda node: node.mean_cores, format_count),
    ("Memory", lambda node: node.working_peak_bytes, format_bytes),
    ("Limit", lambda node: node.limit_bytes, format_bytes),
    ("GPU", lambda node: node.gpu_utilization, format_ratio),
    ("Read", lambda node: node.read_bytes, format_bytes),
    ("Written", lambda node: node.write_bytes, format_bytes),
)


_GPUS_HEAD = ("Node", "GPU", "Model", "Utilization", "Memory, peak", "Size", "Share")
_MODEL = _GPUS_HEAD.index("Model")
_WORK_COLUMNS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("SM", "sm_ratio", format_ratio),
    ("Tensor cores", "tensor_ratio", format_ratio),
    ("Memory bandwidth", "dram_ratio", format_ratio),
    ("Energy", "energy_joules", format_energy),
)
"""What GPUs do when they are busy; columns without any number are left out."""
_SHORT_UUID = len("GPU-01234567")
"""Beginning of a UUID that distinguishes GPUs of a node."""

_SHARED = (
    "Other jobs share some of these GPUs: the numbers are those of this job; utilization, work and energy are "
    "estimated from its processes."
)
_DCGM = "SM, tensor cores and memory bandwidth were measured by dcgm-exporter."
_BUSY_ALONE = (
    "These GPUs do not count which of their parts worked, as those from Hopper on do: that a kernel ran does not mean "
    "that it did much."
)
_UNCOUNTED = {
    "driver": "the driver counts nothing for this device",
    "mps": "MPS does the work of all its clients in one process",
    "other_processes": "most of the work on it was done outside of jobs",
    "process_times": "the driver does not say how long each process used it",
}
"""Why the work of a job on a GPU was not counted, by the agent's word for it."""
_OTHERS = "The last row sums up the remaining GPUs; none of them was less busy than those above."


def make_gpu_table(report: JobReport) -> TextTable:
    """Make the rows of the GPUs that node agents measured; without any there are none."""
    gpu = report.summary.gpu
    measured: list[HeldGpu | OtherGpus] = [*gpu.devices, *([gpu.others] if gpu.others else [])]
    columns = [column for column in _WORK_COLUMNS if any(getattr(of.work, column[1]) is not None for of in measured)]

    def numbers(of: HeldGpu | OtherGpus) -> tuple[str, ...]:
        return *_gpu_numbers(of), *_dashed(*(show_number(getattr(of.work, name)) for _, name, show_number in columns))

    rows = tuple((*_names(device), *numbers(device)) for device in gpu.devices)
    told = " ".join(finding.explanation for finding in report.findings)
    notes = _fault_notes([fault for fault in gpu.faults if describe_fault(fault) not in told])
    if gpu.others is not None:
        rows = (*rows, (format_some(gpu.others.count, "more GPU"), "", "", *numbers(gpu.others)))
        notes.append(_OTHERS)
    if any(of.work.throttled_seconds for of in measured):
        columns.append(("Reduced clocks", "", format_seconds))
        cells = [_throttled(of.work) for of in measured]
        rows = tuple((*row, cell) for row, cell in zip(rows, cells, strict=True))
    if gpu.is_shared:
        notes.append(_SHARED)
    works = [of.work for of in measured]
    if any(work.busy_ratio is not None for work in works) and all(work.sm_ratio is None for work in works):
        notes.append(_BUSY_ALONE)
    if any(of.work.is_from_dcgm for of in measured):
        notes.append(_DCGM)
    notes += _uncounted_notes(gpu.devices)
    head, names = (*_GPUS_HEAD, *(title for title, _, _ in columns)), _MODEL + 1
    models = {device.model for device in gpu.devices}
    if len(models) == 1 and "" not in models:
        # One for all of them needs no column, which would be the widest.
        notes.insert(0, f"Model: {show(models.pop(), 64)}.")
        head, rows, names = _without(head, _MODEL), tuple(_without(row, _MODEL) for row in rows), _MODEL
    return TextTable(head=head, rows=rows, note=" ".join(notes), names=names)


def _without(cells: tuple[str, ...], column: int) -> tuple[str, ...]:
    return cells[:column] + cells[column + 1 :]


def _throttled(work: GpuWork) -> str:
    """List the times at reduced clocks by reason, longest first; reasons may hold at the same time."""
    known = sorted(((time, reason) for reason, time in work.throttled_seconds.items() if time >= 1), reverse=True)
    texts = [f"{format_seconds(time)} ({reason.replace('_', ' ')})" for time, reason in known]
    return show(", ".join(texts), 120) if texts else format_seconds(0.0) if work.throttled_seconds else "–"


def _uncounted_notes(devices: Sequence[HeldGpu]) -> list[str]:
    """Say of which GPUs the work was not counted, and why; words of a newer agent are unknown."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for device in devices:
        if device.uncounted in _UNCOUNTED:
            found[device.uncounted].append(device.gpu if not device.mig else f"{device.gpu} MIG {device.mig}")
    return [
        f"The work on GPU {show(', '.join(dict.fromkeys(gpus)), 60)} was not counted: {_UNCOUNTED[reason]}."
        for reason, gpus in sorted(found.items())
    ]


def _fault_notes(faults: Sequence[GpuFault]) -> list[str]:
    """Say what each error of a GPU means, in the order of their times."""
    return [show(f"{describe_fault(fault)}: {describe_xid(fault.xid).meaning}", 300) for fault in faults[:MAX_FAULTS]]


def _names(device: HeldGpu) -> tuple[str, str, str]:
    number = f"{device.gpu} MIG {device.mig}" if device.mig else device.gpu
    uuid = f" ({device.uuid[:_SHORT_UUID]})" if device.uuid else ""
    return show(device.node, 64), show(f"{number}{uuid}", 40), show(device.model, 40)


def _gpu_numbers(of: HeldGpu | OtherGpus) -> tuple[str, ...]:
    memory = (format_bytes(of.peak_memory_bytes), format_bytes(of.memory_size_bytes), format_ratio(of.memory_ratio))
    return _dashed(format_ratio(of.mean_utilization), *memory)


def _dashed(*texts: str) -> tuple[str, ...]:
    return tuple("–" if text == NOT_MEASURED else text for text in texts)


_STEP_HEAD = ("Step", "Task", "Node", "CPU time", "Memory", "Read", "Written")
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
    head = _STEP_HEAD + _GPU_HEAD if has_gpus else _STEP_HEAD
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
        *_profile_numbers(step, step.peak_task_memory_bytes),
    )
    if step.tasks > 1:
        for task in tasks:
            names = (show(task.step, 40), show(task.task, 20), show(task.node, 64))
            yield (*names, *_profile_numbers(task, task.peak_memory_bytes))


def _profile_numbers(of: StepProfile | TaskProfile, memory_bytes: float | None) -> tuple[str, ...]:
    amounts = map(format_bytes, (memory_bytes, of.read_bytes, of.write_bytes))
    gpus = (format_count(of.mean_gpus), format_bytes(of.peak_gpu_memory_bytes))
    return _dashed(format_seconds(of.cpu_seconds), *amounts, *gpus)


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


_TRACE_HEAD = ("Command", "Rank", "Node", "CPU time", "Memory", "Threads", "Disk read", "Disk write")

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
    return TextTable(head=_TRACE_HEAD, rows=rows, note=others)


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
    return (*(show(text, 80) or "–" for text in texts), *_dashed(*numbers))


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


@dataclass(frozen=True, slots=True)
class SourceSection:
    """A table whose first three columns are names, and sentences about it."""

    name: str
    title: str
    table: TextTable
    sentences: tuple[str, ...] = ()


def source_sections(report: JobReport) -> tuple[SourceSection, ...]:
    """Return the sections that have rows."""
    sections = (
        SourceSection("gpus", "GPUs", make_gpu_table(report)),
        SourceSection("traces", "Traced processes", make_trace_table(report), trace_sentences(report)),
        SourceSection("profile", "Slurm's own samples", make_profile_table(report), profile_sentences(report)),
        *map(_site_section, report.site_sections),
    )
    return tuple(section for section in sections if section.table.rows)


def _site_section(section: SiteSection) -> SourceSection:
    rows = tuple(tuple(show(cell) for cell in row) for row in section.rows)
    table = TextTable(head=tuple(show(cell, 40) for cell in section.head), rows=rows, names=1)
    return SourceSection(f"site-{section.id}", show(section.title), table)
