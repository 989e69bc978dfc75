# SPDX-License-Identifier: Apache-2.0
"""Keep the curves of a command, and make its report: the same summary, rules and charts as for a job."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from slurmscope.core.tres import Gres
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.curves import growth_ratio, idle_tail_seconds
from slurmscope.jobs.energy import summarize_energy
from slurmscope.jobs.findings import judge
from slurmscope.jobs.gpus import summarize_gpus
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)
from slurmscope.jobs.traced_run import RunDetails, RunReport, TracedRun, TreeSample
from slurmscope.run.gpus import gpu_coverage, gpu_curves, measured_gpus, used_gpus

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
    for name, series in gpu_curves(run):
        curves[name] = (*curves.get(name, ()), series)
    return Measured(curves=curves)


def summarize_run(run: TracedRun, measured: Measured) -> JobSummary:
    """Summarize a run; all of it was measured, from start to end."""
    record = make_record(run)
    gpus = measured_gpus(run, measured, record)
    gpu = replace(summarize_gpus(gpus), requested=record.gpus, coverage=gpu_coverage(run, gpus))
    return JobSummary(
        record=record,
        run_seconds=run.wall_seconds,
        time=UsedShare(used=run.wall_seconds),
        cpu=_cpu(run, measured, record),
        memory=_memory(run, measured, record),
        gpu=gpu,
        energy=summarize_energy(gpus, gpu, gpu.coverage),
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
    slurm, allowance, gpus = run.slurm, run.allowance, len(used_gpus(run))
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
        gres=(Gres(name="gpu", count=gpus),) if gpus else (),
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        cpu_seconds=run.last.cpu_seconds,
        work_dir=run.work_dir,
    )


def detail_run(run: TracedRun) -> RunDetails:
    """Return what the report of a command has in addition to that of a job."""
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


MOST_SAMPLES = 1000
SHORTEST_SECONDS = 0.001
"""Unix times have a resolution of a quarter of a microsecond, too little to divide a shorter run."""


class SampleHistory:
    """Keep at most ``MOST_SAMPLES`` samples: when there are more, neighbours become one."""

    def __init__(self) -> None:
        self._samples: list[TreeSample] = []

    def add(self, sample: TreeSample) -> None:
        self._samples.append(sample)
        if len(self._samples) > MOST_SAMPLES:
            # The first and the last stay as they are: they are the start of the run and its newest totals.
            first, *middle, last = self._samples
            pairs = zip(middle[::2], middle[1::2], strict=False)
            odd = middle[-1:] if len(middle) % 2 else []
            self._samples = [first, *(_merge(*pair) for pair in pairs), *odd, last]

    def samples(self) -> tuple[TreeSample, ...]:
        return tuple(self._samples)


def _merge(earlier: TreeSample, later: TreeSample) -> TreeSample:
    return later._replace(
        resident_bytes=max(earlier.resident_bytes, later.resident_bytes),
        processes=max(earlier.processes, later.processes),
        threads=max(earlier.threads, later.threads),
    )


def make_axis(samples: Sequence[TreeSample], points: int = MAX_CHART_POINTS) -> tuple[float, ...]:
    """Return the ends of evenly spaced intervals, not more than there are samples; empty for a run too short for that.

    The times of samples never decrease.
    """
    start, end = (samples[0].time_seconds, samples[-1].time_seconds) if samples else (0.0, 0.0)
    if end - start < SHORTEST_SECONDS:
        return ()
    count = min(points, len(samples) - 1)
    return (*(start + (end - start) * index / count for index in range(1, count)), end)


def rate_curve(
    samples: Sequence[TreeSample], axis: Sequence[float], total: Callable[[TreeSample], float | None], label: str
) -> Series | None:
    """Return how fast a counter grew in each interval; None where it was not measured throughout."""
    times = [sample.time_seconds for sample in samples]
    totals = [value for sample in samples if (value := total(sample)) is not None]
    if len(totals) != len(samples) or not axis:
        return None
    at = [totals[0], *(_interpolate(times, totals, moment) for moment in axis)]
    width = axis[0] - times[0]
    rates = tuple(max(0.0, after - before) / width for before, after in pairwise(at))
    return Series((label,), tuple(axis), rates)


def size_curve(
    samples: Sequence[TreeSample], axis: Sequence[float], size: Callable[[TreeSample], float], label: str
) -> Series | None:
    """Return the highest size in each interval, or the last one known where an interval has no sample."""
    if not axis:
        return None
    values, known, index = list[float](), size(samples[0]), 0
    for moment in axis:
        inside = list[float]()
        while index < len(samples) and samples[index].time_seconds <= moment:
            inside.append(size(samples[index]))
            index += 1
        values.append(max(inside, default=known))
        known = inside[-1] if inside else known
    return Series((label,), tuple(axis), tuple(values))


def _interpolate(times: Sequence[float], totals: Sequence[float], moment: float) -> float:
    """Return a total at a moment after the first time, and not after the last."""
    after = bisect_left(times, moment)
    part = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return totals[after - 1] + (totals[after] - totals[after - 1]) * part
