# SPDX-License-Identifier: Apache-2.0
"""Summarize one run of a job: accounting and measurements in, what was requested and used out.

Values of the whole job are given only where every node reported its part; values of single nodes are in their own rows.
A job that was too short to be scraped, or that no node reported, has those of accounting: run time, CPU time, MaxRSS.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from slurmscope.jobs.checkpoints import Checkpoints, find_checkpoints
from slurmscope.jobs.curves import align, peak, step_seconds, sum_over
from slurmscope.jobs.energy import summarize_energy
from slurmscope.jobs.gpus import node_gpu_sizes, summarize_gpus, while_running
from slurmscope.jobs.measured_run import REACH_STEPS, MeasuredRun, counted_by_node, cover, prepare_run, run_ratios
from slurmscope.jobs.process_samples import summarize_profile, summarize_traces
from slurmscope.jobs.processes import HeldTask
from slurmscope.jobs.queries import GPU_CURVES
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS
from slurmscope.jobs.resources import (
    chosen_cores,
    needed_bytes,
    node_cpus,
    node_limits,
    summarize_cpu,
    summarize_memory,
    working_memory,
    working_peaks,
)
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.stragglers import find_oversubscribed, find_silent_parts, find_slow_parts
from slurmscope.jobs.summary import (
    FilesystemSummary,
    GpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)

MAX_FILESYSTEMS = 20
EDGE_POINTS = 3
"""Points at each end of a curve whose windows reach out of the run."""

_FILESYSTEM_TOTALS = {
    "read_bytes": "filesystem_read",
    "write_bytes": "filesystem_write",
    "metadata_operations": "filesystem_metadata",
}
_CURVES = frozenset(
    {
        *_FILESYSTEM_TOTALS.values(),
        "traced_memory_node",
        "profiled_memory_node",
        "cpu",
        "cpu_queue",
        "cpu_throttled",
        "held",
        "ended",
        "write",
        "memory_anon",
        "memory_shared",
        "memory_rss",
        "open_files",
        "running_threads",
        "gpu",
        *GPU_CURVES,
    }
)


def summarize(record: JobRecord, measured: Measured, *, now_seconds: float) -> JobSummary:
    """Summarize one run, until its end or until now."""
    run = prepare_run(record, measured, now_seconds=now_seconds, curves=_CURVES)
    if run.seconds <= 0:
        return JobSummary(
            record=record,
            run_seconds=0.0,
            time=UsedShare(requested=record.time_limit_seconds, used=0.0),
            memory=MemorySummary(requested_bytes=record.memory_bytes),
            gpu=GpuSummary(requested=record.gpus),
        )
    working = working_memory(run, points=MAX_CHART_POINTS)
    limits = node_limits(run)
    peaks = working_peaks(working)
    nodes = _nodes(run, needed_bytes(run, working), limits)
    coverage = cover(run, run.by_node("cpu"), run.curves.get("cpu", ()))
    gpu = summarize_gpus(run)
    return JobSummary(
        record=record,
        run_seconds=run.seconds,
        time=UsedShare(requested=record.time_limit_seconds, used=run.seconds),
        cpu=summarize_cpu(run, nodes, coverage),
        memory=summarize_memory(run, working, limits),
        gpu=gpu,
        energy=summarize_energy(run, gpu, coverage),
        io=_io(run),
        nodes=nodes,
        program_threads=_program_threads(run),
        mean_running_threads=_running_threads(run),
        sent_bytes=_sent_bytes(run),
        held=_held(run),
        slow_parts=find_slow_parts(run),
        oversubscribed_nodes=find_oversubscribed(run),
        silent_parts=find_silent_parts(run),
        checkpoints=_checkpoints(run),
        traces=summarize_traces(run, peaks),
        profile=summarize_profile(run, peaks),
        coverage=coverage,
    )


def _nodes(run: MeasuredRun, peaks: Mapping[str, float], limits: Mapping[str, float]) -> tuple[NodeSummary, ...]:
    """Make one row for every node of the job, including those without measurements."""
    cpus, cpu, cores = node_cpus(run), run.by_node("cpu"), _cores_by_node(run)
    gpu, read, write = run.by_node("gpu"), run.by_node("read"), run.by_node("write")
    gpu_sizes = node_gpu_sizes(run)
    ratios, seconds = run_ratios(run, run.curves.get("cpu", ())), counted_by_node(run)
    return tuple(
        NodeSummary(
            node=node,
            cpus=cpus.get(node),
            cpu_seconds=cpu.get(node),
            mean_cores=cpu[node] / seconds[node] if node in cpu and seconds[node] else None,
            working_peak_bytes=peaks.get(node),
            limit_bytes=limits.get(node),
            gpu_utilization=while_running(run, gpu.get(node)),
            gpu_memory_size_bytes=gpu_sizes.get(node),
            read_bytes=read.get(node),
            write_bytes=write.get(node),
            core_seconds=chosen_cores(cores.get(node, {}), cpus.get(node)),
            run_ratio=ratios.get(node, 0.0),
        )
        for node in run.nodes
    )


def _cores_by_node(run: MeasuredRun) -> Mapping[str, Mapping[str, float]]:
    cores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (node, core), seconds in run.totals.get("cpu_core", {}).items():
        cores[node][core] = seconds
    return cores


def _io(run: MeasuredRun) -> IoSummary:
    filesystems = _filesystems(run)
    fetched, stored = run.whole("storage_read"), run.whole("storage_write")
    operations = [one.metadata_operations for one in filesystems if one.metadata_operations is not None]
    return IoSummary(
        read_bytes=run.whole("read"),
        write_bytes=run.whole("write"),
        reads=run.whole("reads"),
        writes=run.whole("writes"),
        storage_bytes=None if fetched is None or stored is None else fetched + stored,
        peak_open_files=_peak(run, "open_files"),
        mean_open_files=run.whole("mean_open_files"),
        uses_scratch=_uses_scratch(run),
        metadata_operations=math.fsum(operations) if operations else None,
        filesystems=filesystems,
    )


def _filesystems(run: MeasuredRun) -> tuple[FilesystemSummary, ...]:
    """Turn mean rates over the run into totals; a target without a file system is no part of one."""
    amounts = {
        quantity: {name: rate * run.span_seconds for (name,), rate in run.totals.get(query, {}).items() if name}
        for quantity, query in _FILESYSTEM_TOTALS.items()
    }
    peaks = {
        f"peak_{quantity}": {series.labels[0]: _peak_rate(series) for series in run.curves.get(query, ())}
        for quantity, query in _FILESYSTEM_TOTALS.items()
    }
    names = sorted({name for found in amounts.values() for name in found})[:MAX_FILESYSTEMS]
    return tuple(
        FilesystemSummary(name=name, **{field: found.get(name) for field, found in {**amounts, **peaks}.items()})
        for name in names
    )


def _peak_rate(series: Series) -> float:
    """Return the highest rate, without those at both ends: rates over part of a window are extrapolated."""
    return max(series.values[EDGE_POINTS:-EDGE_POINTS] or series.values)


def _uses_scratch(run: MeasuredRun) -> bool | None:
    """Return whether any node saw scratch in use; None where none did but not every node reported."""
    reported = run.by_node("uses_scratch")
    if any(reported.values()):
        return True
    return False if run.is_whole(reported) else None


def _program_threads(run: MeasuredRun) -> Mapping[str, float]:
    """Add up over nodes the most threads that each program had there at once."""
    threads: defaultdict[str, float] = defaultdict(float)
    for (_node, program), count in run.totals.get("program_threads", {}).items():
        threads[program] += count
    return dict(threads)


def _sent_bytes(run: MeasuredRun) -> Mapping[str, float]:
    sent: defaultdict[str, float] = defaultdict(float)
    for (_node, transport), amount in run.totals.get("network", {}).items():
        sent[transport] += amount
    return dict(sent) if run.is_whole(node for node, _transport in run.totals.get("network", {})) else {}


def _checkpoints(run: MeasuredRun) -> Checkpoints | None:
    written = align(run.curves.get("write", ()))
    return find_checkpoints(written.times, sum_over(written))


def _held(run: MeasuredRun) -> tuple[HeldTask, ...]:
    reach = REACH_STEPS * (step_seconds(run.curves.get("cpu", ())) or run.span_seconds)
    last = {series.labels: series.times[-1] for series in run.curves.get("held", ())}
    held = [
        HeldTask(
            node,
            pid,
            program,
            task,
            state,
            seconds,
            is_over=run.end_seconds - last.get(labels, run.end_seconds) > reach,
        )
        for labels, seconds in run.totals.get("held", {}).items()
        for node, pid, program, task, state in [labels]
    ]
    return tuple(sorted(held, key=lambda task: (-task.seconds, *task)))


def _summed(run: MeasuredRun, curve: str) -> list[float]:
    aligned = align(run.curves.get(curve, ()))
    if not run.is_whole(labels[0] for labels in aligned.rows):
        return []
    return [value for value in sum_over(aligned) if value is not None]


def _peak(run: MeasuredRun, curve: str) -> float | None:
    return peak(tuple(_summed(run, curve)))


def _running_threads(run: MeasuredRun) -> float | None:
    """Return how many threads were runnable on average; the series is absent while none is."""
    running = {series.labels[0]: series.values for series in run.curves.get("running_threads", ())}
    seen = {node for node, _program in run.totals.get("program_threads", {})} | running.keys()
    if not run.is_whole(seen):
        return None
    points = {series.labels[0]: len(series.values) for series in run.curves.get("cpu", ())}
    return math.fsum(sum(running.get(n, ())) / max(1, len(running.get(n, ())), points.get(n, 0)) for n in seen)
