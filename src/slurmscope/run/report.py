# SPDX-License-Identifier: Apache-2.0
"""Make the report of a command: the same summary, rules and charts as for a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from slurmscope.core.tres import Gres
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.curves import growth_ratio, idle_tail_seconds
from slurmscope.jobs.findings import judge
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summary import (
    NOT_COVERED,
    Coverage,
    CpuSummary,
    GpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)
from slurmscope.jobs.traced_run import RunDetails, RunReport, TracedRun, TreeSample
from slurmscope.run.curves import make_axis, rate_curve, size_curve

WHOLE = Coverage(nodes=1, nodes_measured=1, run_ratio=1.0)
SHARED = Coverage(nodes=1, nodes_measured=1, run_ratio=0.0)
"""Memory that counts shared pages once for each process is no base for findings."""

_RATES: Mapping[str, Callable[[TreeSample], float | None]] = {
    "cpu": lambda sample: sample.cpu_seconds,
    "cpu_user": lambda sample: sample.user_seconds,
    "cpu_system": lambda sample: sample.system_seconds,
    "read": lambda sample: sample.read_chars,
    "write": lambda sample: sample.write_chars,
}
_NODELESS = frozenset({"cpu_user", "cpu_system"})
"""Curves that are sums over nodes, and have no label."""


def measure_run(run: TracedRun) -> Measured:
    """Return the curves of a run by the names that charts know."""
    axis = make_axis(run.samples)
    curves: dict[str, tuple[Series, ...]] = {}
    for name, total in _RATES.items():
        series = rate_curve(run.samples, axis, total, run.host)
        if series is not None:
            curves[name] = (Series((), series.times, series.values) if name in _NODELESS else series,)
    memory = size_curve(run.samples, axis, lambda sample: float(sample.resident_bytes), run.host)
    if memory is not None:
        curves["memory_rss"] = (memory,)
    curves.update((name, (series,)) for name, series in _gpu_curves(run))
    return Measured(curves=curves)


def _gpu_curves(run: TracedRun) -> Iterator[tuple[str, Series]]:
    for name, attribute in (("gpu", "utilization_ratio"), ("gpu_memory", "memory_bytes")):
        points = {sample.time_seconds: getattr(sample, attribute) for sample in run.gpu_samples}
        points = {time: float(value) for time, value in points.items() if value is not None}
        if points:
            yield name, Series((run.host,), tuple(points), tuple(points.values()))


def summarize_run(run: TracedRun, measured: Measured) -> JobSummary:
    """Summarize a run; all of it was measured, from start to end."""
    record = make_record(run)
    return JobSummary(
        record=record,
        run_seconds=run.wall_seconds,
        time=UsedShare(used=run.wall_seconds),
        cpu=_cpu(run, measured, record),
        memory=_memory(run, measured, record),
        gpu=_gpu(run),
        io=_io(run.last),
        nodes=(_node(run),),
        program_threads={program: float(threads) for program, threads in run.program_threads.items()},
        coverage=WHOLE,
        node_cpus=float(record.cpus or 0),
    )


def make_record(run: TracedRun) -> JobRecord:
    """Return what accounting would have recorded about the run.

    Memory counts as requested only where Slurm allocated it to this command alone.
    """
    slurm, allowance = run.slurm, run.allowance
    is_allocated = slurm.job_id is not None and slurm.tasks == 1 and allowance.memory_origin == "cgroup"
    has_failed = run.exit_code != 0 or run.exit_signal != 0
    return JobRecord(
        cluster=slurm.cluster,
        job_id=slurm.job_id or 0,
        name=run.command[0].rpartition("/")[2],
        user=run.user,
        account=slurm.account,
        partition=slurm.partition,
        state="FAILED" if has_failed else "COMPLETED",
        submit_seconds=math.floor(run.start_seconds),
        start_seconds=math.floor(run.start_seconds),
        end_seconds=math.ceil(run.start_seconds + run.wall_seconds),
        nodes=(run.host,),
        node_count=1,
        cpus=math.ceil(allowance.cores),
        memory_bytes=allowance.memory_bytes if is_allocated else None,
        gres=(Gres(name="gpu", count=_gpus(run)),) if _gpus(run) else (),
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        cpu_seconds=run.last.cpu_seconds,
        work_dir=run.work_dir,
    )


def detail_run(run: TracedRun) -> RunDetails:
    """Return what the report of a command has beside that of a job."""
    return RunDetails(
        command=run.command,
        start_seconds=run.start_seconds,
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        cores=run.allowance.cores,
        memory_limit_bytes=run.allowance.memory_bytes,
        memory_limit_origin=run.allowance.memory_origin,
        peak_processes=run.peak_processes,
        peak_threads=run.peak_threads,
        storage_read_bytes=run.last.read_bytes,
        storage_write_bytes=run.last.write_bytes,
        processes_left=run.processes_left,
    )


def _cpu(run: TracedRun, measured: Measured, record: JobRecord) -> CpuSummary:
    busy = measured.curves.get("cpu", ())
    mean_cores = run.last.cpu_seconds / run.wall_seconds if run.wall_seconds > 0 else None
    return CpuSummary(
        time=UsedShare(requested=run.allowance.cores * run.wall_seconds, used=run.last.cpu_seconds, coverage=WHOLE),
        user_seconds=run.last.user_seconds,
        system_seconds=run.last.system_seconds,
        mean_cores=mean_cores,
        peak_cores=max([*busy[0].values, mean_cores or 0.0]) if busy else mean_cores,
        idle_tail_seconds=idle_tail_seconds(
            busy[0].times, busy[0].values, end_seconds=run.last.time_seconds, cpus=record.cpus or 0
        )
        if busy
        else None,
    )


def _memory(run: TracedRun, measured: Measured, record: JobRecord) -> MemorySummary:
    curve = measured.curves.get("memory_rss", ())
    peak = run.peak_resident_bytes
    growth = (
        growth_ratio(
            curve[0].times,
            curve[0].values,
            start_seconds=run.samples[0].time_seconds,
            end_seconds=run.last.time_seconds,
        )
        if curve
        else None
    )
    return MemorySummary(
        requested_bytes=record.memory_bytes,
        limit_bytes=run.allowance.memory_bytes,
        working_peak_bytes=None if peak is None else float(peak),
        growth_ratio=growth,
        oom_kills=run.oom_kills,
        coverage=SHARED if has_shared_pages(run) else WHOLE,
    )


def has_shared_pages(run: TracedRun) -> bool:
    """Return whether processes shared so much memory that their sum is above what they may use together."""
    peak, limit = run.peak_resident_bytes, run.allowance.memory_bytes
    return peak is not None and limit is not None and run.allowance.memory_origin != "ulimit" and peak > limit


def _gpus(run: TracedRun) -> int:
    return max((sample.gpus for sample in run.gpu_samples), default=0)


def _gpu(run: TracedRun) -> GpuSummary:
    """Summarize the GPUs that the command used; before its first and after its last use nothing is known."""
    ratios = [sample.utilization_ratio for sample in run.gpu_samples if sample.utilization_ratio is not None]
    sizes = [sample.memory_bytes for sample in run.gpu_samples if sample.memory_bytes is not None]
    return GpuSummary(
        requested=_gpus(run),
        mean_utilization=fmean(ratios) if ratios else None,
        peak_memory_bytes=float(max(sizes)) if sizes else None,
        coverage=WHOLE if ratios else NOT_COVERED,
    )


def _io(last: TreeSample) -> IoSummary:
    return IoSummary(read_bytes=last.read_chars, write_bytes=last.write_chars, reads=last.reads, writes=last.writes)


def _node(run: TracedRun) -> NodeSummary:
    last, peak = run.last, run.peak_resident_bytes
    return NodeSummary(
        node=run.host,
        cpus=float(math.ceil(run.allowance.cores)),
        cpu_seconds=last.cpu_seconds,
        mean_cores=last.cpu_seconds / run.wall_seconds if run.wall_seconds > 0 else None,
        working_peak_bytes=None if peak is None else float(peak),
        limit_bytes=run.allowance.memory_bytes,
        read_bytes=last.read_chars,
        write_bytes=last.write_chars,
        run_ratio=1.0,
    )


_ABOUT_JOBS = frozenset({Subject.TIME, Subject.NODES})
"""What a command does not choose: time limits, and where it runs."""
_HELP = {
    "cpu": "How many cores the command kept busy.",
    "cpu_split": "Cores busy in user mode (the program itself) and in system mode (the kernel).",
    "memory": "Resident memory of all processes; pages that they share count once for each.",
    "read": "What the command read, from any file system, pipe or socket.",
    "write": "What the command wrote, to any file system, pipe or socket.",
}


def make_run_report(run: TracedRun, *, made_seconds: int) -> RunReport:
    """Summarize a run, check it with all rules, and draw its curves."""
    measured = measure_run(run)
    summary = summarize_run(run, measured)
    report = JobReport(
        summary=summary,
        made_seconds=made_seconds,
        findings=tuple(finding for finding in judge(summary) if finding.subject not in _ABOUT_JOBS),
        charts=tuple(map(_as_measured, make_charts(summary, measured))),
        missing=(*run.problems, *run.losses),
    )
    return RunReport(report=report, run=detail_run(run))


def _as_measured(chart: Chart) -> Chart:
    """Describe what was measured here: one command on one machine, without a cgroup."""
    label = "usable cores" if chart.reference_label == "allocated cores" else chart.reference_label
    return replace(chart, help=_HELP.get(chart.name, chart.help), reference_label=label)
