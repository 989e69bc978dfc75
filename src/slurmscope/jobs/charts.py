# SPDX-License-Identifier: Apache-2.0
"""Make the charts of a job from its curves; what was not measured has no chart.

A chart has at most ``MAX_LINES`` lines. More could not be distinguished, so the lowest, the median and the highest
value at each time are drawn instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

from slurmscope.jobs.curves import Aligned, Combine, align, sum_known, sum_over
from slurmscope.jobs.measured_run import MeasuredRun, prepare_run
from slurmscope.jobs.process_samples import label_processes, process_curves
from slurmscope.jobs.queries import GPU_CURVES, TRACED_BY_NODE, TRACED_CURVES
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, ChartLine, JobReport
from slurmscope.jobs.resources import working_memory
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summary import JobSummary

MAX_LINES = 15
FLAT_SHARE = 0.05
_DETAILS = frozenset({"cpu_split", "cpu_core", "traced_cpu_node", "traced_memory_node"})
"""Charts that show another one in more detail."""
TRACED = "traced processes"
AGENTS = "whole job, by node agents"

Reference = Callable[[JobSummary], float | None]
CurvesOf = Callable[[MeasuredRun], Iterable[Series]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Describe how one curve is drawn; ``combine`` thins it: peaks of sizes are kept, rates are averaged."""

    name: str
    title: str
    unit: str
    subject: Subject
    help: str
    combine: Combine = fmean
    reference: Reference | None = None
    reference_label: str = ""
    beside: CurvesOf = lambda _run: ()
    """For the sum of traced processes: the curves of the node agents, whose sum is drawn too."""


def make_charts(summary: JobSummary, measured: Measured) -> tuple[Chart, ...]:
    """Make every chart that has data, in the order in which a page shows them: of GPU jobs those of GPUs first.

    Curves of each GPU replace the means of nodes.
    """
    run = prepare_run(summary.record, measured, now_seconds=summary.end_seconds)
    replaced = {mean for each, mean in _MEANS_OF_NODES.items() if run.curves.get(each)}
    made = (_chart(plan, _aligned(plan, run, summary), summary) for plan in _PLANS if plan.name not in replaced)
    charts = [chart for chart in made if chart is not None]
    return tuple(sorted(charts, key=lambda chart: chart.subject is not Subject.GPU))


def align_chart(name: str, run: MeasuredRun, summary: JobSummary) -> Aligned:
    """Return the curves of a chart, with every line."""
    return _aligned(next(plan for plan in _PLANS if plan.name == name), run, summary)


_MEANS_OF_NODES = {"gpu_busy": "gpu", "gpu_held_memory": "gpu_memory"}


def _aligned(plan: _Plan, run: MeasuredRun, summary: JobSummary) -> Aligned:
    if plan.name == "memory":
        return working_memory(run, points=MAX_CHART_POINTS)
    if plan.name == "cpu_split":
        return _split(run)
    if plan.name in TRACED_CURVES:
        return _traced(plan, run, summary)
    if plan.name in TRACED_BY_NODE:
        return _traced_sum(plan, run)
    curves = tuple(series for series in run.curves.get(plan.name, ()) if series.labels != ("",))
    if plan.name in GPU_CURVES:
        return _by_gpu(curves, plan.combine)
    if plan.name == "cpu_core":
        own = {(node.node, core) for node in summary.nodes for core in node.core_seconds}
        curves = tuple(series for series in curves if series.labels in own)
    return align(curves, combine=plan.combine)


def _by_gpu(curves: Iterable[Series], combine: Combine) -> Aligned:
    """Return the curves of GPUs under their names for people; a job on one node needs no name of it."""
    found = list(curves)
    is_one_node = len({series.labels[0] for series in found}) < 2
    named = [
        Series((name_gpu(series.labels, is_one_node=is_one_node),), series.times, series.values) for series in found
    ]
    return align(named, combine=combine)


def name_gpu(labels: Sequence[str], *, is_one_node: bool) -> str:
    """Return the name of a GPU by its node, index and MIG instance: ``n1 GPU 0``."""
    node, gpu, mig = labels
    name = f"GPU {gpu} MIG {mig}" if mig else f"GPU {gpu}"
    return name if is_one_node else f"{node} {name}"


def _traced(plan: _Plan, run: MeasuredRun, summary: JobSummary) -> Aligned:
    """Return the curves of traced processes under their names for people."""
    processes = summary.traces.processes
    labels = label_processes(processes)
    aligned = align(tuple(process_curves(run, plan.name, processes)), combine=plan.combine)
    return Aligned(aligned.times, {(labels[key],): values for key, values in aligned.rows.items()})


def _traced_sum(plan: _Plan, run: MeasuredRun) -> Aligned:
    """Return the sum of all traced processes, and that of what the node agents measured."""
    sides = {TRACED: run.curves.get(plan.name, ()), AGENTS: tuple(plan.beside(run))}
    if not all(sides.values()):
        return Aligned((), {})
    curves = [Series((side, *one.labels), one.times, one.values) for side, some in sides.items() for one in some]
    aligned = align(curves, combine=plan.combine)
    rows = {side: [values for key, values in aligned.rows.items() if key[0] == side] for side in sides}
    # A node without a traced process adds nothing; an agent without a value makes the sum unknown.
    traced = tuple(sum_known(column) for column in zip(*rows[TRACED], strict=True))
    agents = sum_over(Aligned(aligned.times, {(str(place),): row for place, row in enumerate(rows[AGENTS])}))
    return Aligned(aligned.times, {(TRACED,): traced, (AGENTS,): agents})


def _working(run: MeasuredRun) -> Iterator[Series]:
    aligned = working_memory(run, points=MAX_CHART_POINTS)
    for labels, values in aligned.rows.items():
        known = [(time, value) for time, value in zip(aligned.times, values, strict=True) if value is not None]
        yield Series(labels, tuple(time for time, _ in known), tuple(value for _, value in known))


def _split(run: MeasuredRun) -> Aligned:
    parts = (("user", "cpu_user"), ("system", "cpu_system"))
    named = [
        Series((label,), series.times, series.values) for label, name in parts for series in run.curves.get(name, ())
    ]
    return align(named)


def _chart(plan: _Plan, aligned: Aligned, summary: JobSummary) -> Chart | None:
    if not aligned.rows:
        return None
    reference = plan.reference(summary) if plan.reference else None
    return Chart(
        name=plan.name,
        title=plan.title,
        unit=plan.unit,
        subject=plan.subject,
        times=aligned.times,
        lines=fold_lines(
            [ChartLine(label=" core ".join(labels), values=values) for labels, values in aligned.rows.items()]
        ),
        reference=reference,
        reference_label=plan.reference_label if reference is not None else "",
        help=plan.help,
    )


def fold_lines(lines: Sequence[ChartLine]) -> tuple[ChartLine, ...]:
    """Return the lines, or the lowest, the median and the highest of too many."""
    if len(lines) <= MAX_LINES:
        return tuple(lines)
    columns = [
        sorted(value for value in column if value is not None)
        for column in zip(*(line.values for line in lines), strict=True)
    ]
    chosen = (("lowest", itemgetter(0)), ("median", _middle), ("highest", itemgetter(-1)))
    return tuple(
        ChartLine(label=f"{label} of {len(lines)}", values=tuple(choose(c) if c else None for c in columns))
        for label, choose in chosen
    )


def is_flat(chart: Chart) -> bool:
    """Return whether nothing happens in a chart: all of its values are within a twentieth of its scale."""
    known = [value for line in chart.lines for value in line.values if value is not None and math.isfinite(value)]
    scale = max([1.0 if chart.unit == "ratio" else 0.0, chart.reference or 0.0, *known])
    return not known or max(known) - min(known) <= FLAT_SHARE * scale


class ChosenCharts(NamedTuple):
    """Charts that show what a job did, and those of them in which nothing happened."""

    shown: tuple[Chart, ...]
    flat: tuple[Chart, ...]


def choose_charts(report: JobReport, limit: int = MAX_LINES) -> ChosenCharts:
    """Choose the charts that matter: those of GPUs first, then those of findings, whose first one may be flat."""
    marked, has_gpus = report.subjects, bool(report.record.gpus)
    drawn = [chart for chart in report.charts if chart.times and chart.name not in _DETAILS]
    ranked = sorted(
        drawn, key=lambda chart: (not (has_gpus and chart.subject is Subject.GPU), chart.subject not in marked)
    )
    leading = {chart.subject: chart.name for chart in reversed(ranked) if chart.subject in marked}
    telling = [chart for chart in ranked if leading.get(chart.subject) == chart.name or not is_flat(chart)]
    flat = tuple(chart for chart in ranked if chart not in telling)
    return ChosenCharts(tuple((telling or ranked)[:limit]), flat if telling else flat[limit:])


def _middle(ordered: Sequence[float]) -> float:
    """Return the median; the one of the standard library would sort again."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _cores_per_node(summary: JobSummary) -> float | None:
    return _alike([node.cpus for node in summary.nodes])


def _memory_per_node(summary: JobSummary) -> float | None:
    """Return the limit that all nodes have in common; on a single node without one, what was requested."""
    if len(summary.nodes) == 1 and summary.nodes[0].limit_bytes is None:
        return summary.memory.requested_bytes
    return _alike([node.limit_bytes for node in summary.nodes])


def _gpu_memory_per_node(summary: JobSummary) -> float | None:
    return _alike([node.gpu_memory_size_bytes for node in summary.nodes])


def _one_gpu_memory(summary: JobSummary) -> float | None:
    return _alike([device.memory_size_bytes for device in summary.gpu.devices])


def _all_cores(summary: JobSummary) -> float | None:
    return float(summary.record.cpus) if summary.record.cpus else None


def _alike(values: list[float | None]) -> float | None:
    """Return the value that all nodes share; None when they differ."""
    return values[0] if values and len(set(values)) == 1 else None


_PLANS = (
    _Plan("gpu_busy", "GPU busy", "ratio", Subject.GPU,
          "Share of time in which a kernel of any kind ran on each GPU; what it did there, the next charts show."),
    _Plan("gpu_sm", "GPU multiprocessors active", "ratio", Subject.GPU,
          "Share of the multiprocessors (SM) of each GPU that had work."),
    _Plan("gpu_tensor", "Tensor cores active", "ratio", Subject.GPU,
          "Share of time in which the tensor cores of each GPU worked."),
    _Plan("gpu_held_memory", "Memory of each GPU", "bytes", Subject.GPU,
          "GPU memory of the job's processes on each GPU.", combine=max, reference=_one_gpu_memory,
          reference_label="memory of a GPU"),
    _Plan("gpu_power", "GPU power", "watts", Subject.GPU,
          "Mean power of each GPU, by its energy counter."),
    _Plan("cpu", "Busy cores", "cores", Subject.CPU,
          "How many cores the job kept busy on each node.", reference=_cores_per_node,
          reference_label="allocated cores"),
    _Plan("memory", "Memory in use", "bytes", Subject.MEMORY,
          "Anonymous and shared memory on each node: what the job needs. Without file cache.", combine=max,
          reference=_memory_per_node, reference_label="memory limit"),
    _Plan("gpu", "GPU utilization", "ratio", Subject.GPU,
          "Share of time in which the job's GPUs were busy, mean per node."),
    _Plan("gpu_memory", "GPU memory", "bytes", Subject.GPU,
          "GPU memory of the job's processes on each node.", combine=max, reference=_gpu_memory_per_node,
          reference_label="memory of the GPUs"),
    _Plan("read", "Reading", "bytes/s", Subject.FILES,
          "What the job read on each node, from any file system or pipe."),
    _Plan("write", "Writing", "bytes/s", Subject.FILES,
          "What the job wrote on each node, to any file system or pipe."),
    _Plan("filesystem_read", "Reading by file system", "bytes/s", Subject.FILES,
          "What the job read from each shared file system, as its servers counted it."),
    _Plan("filesystem_write", "Writing by file system", "bytes/s", Subject.FILES,
          "What the job wrote to each shared file system, as its servers counted it."),
    _Plan("filesystem_metadata", "Metadata operations per second", "count", Subject.FILES,
          "Requests that transfer no data (open, stat, create, remove), by shared file system."),
    _Plan("cpu_split", "User and system time", "cores", Subject.CPU,
          "Cores busy in user mode (the program itself) and in system mode (the kernel), over all nodes.",
          reference=_all_cores, reference_label="allocated cores"),
    _Plan("cpu_core", "Per core", "ratio", Subject.CPU,
          "How busy each core of the job was."),
    _Plan("running_threads", "Runnable threads", "count", Subject.THREADS,
          "Runnable threads on each node. Threads beyond the number of cores wait for a core.",
          reference=_cores_per_node, reference_label="allocated cores"),
    _Plan("open_files", "Open files", "count", Subject.FILES,
          "Different files that the job had open on each node.", combine=max),
    _Plan("traced_cpu_node", "Busy cores, traced and measured", "cores", Subject.CPU,
          "Cores that all traced processes kept busy, and what the node agents measured of the job.",
          beside=lambda run: run.curves.get("cpu", ())),
    _Plan("traced_cpu", "Busy cores by traced process", "cores", Subject.CPU,
          "How many cores each traced process kept busy."),
    _Plan("traced_memory_node", "Memory, traced and measured", "bytes", Subject.MEMORY,
          "Resident memory of all traced processes, and what the node agents measured of the job.", combine=max,
          beside=_working),
    _Plan("traced_memory", "Memory by traced process", "bytes", Subject.MEMORY,
          "Resident memory of each traced process.", combine=max),
    _Plan("traced_threads", "Threads by traced process", "count", Subject.THREADS,
          "Threads of each traced process.", combine=max),
    _Plan("traced_read", "Disk reads by traced process", "bytes/s", Subject.FILES,
          "What storage delivered to each traced process."),
    _Plan("traced_write", "Disk writes by traced process", "bytes/s", Subject.FILES,
          "What each traced process sent to storage."),
)  # fmt: skip
