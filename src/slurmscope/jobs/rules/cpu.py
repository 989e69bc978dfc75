# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from slurmscope.core.units import format_count, format_ratio, format_seconds, format_some
from slurmscope.jobs.memory_shares import requests_memory_per_core
from slurmscope.jobs.rule import (
    MIN_WORKING_CORES,
    Match,
    Rule,
    Severity,
    Subject,
    Threshold,
    Thresholds,
    busy_ratio,
    has_gpus,
    mean_cores,
    peak_cores,
    requested_cores,
    step_tasks,
    was_suspended,
)
from slurmscope.jobs.suggestions import (
    MIN_GAIN_RATIO,
    fewer_cores_line,
    fewer_cores_sentence,
    is_worthwhile,
)
from slurmscope.jobs.summary import CpuSummary, JobSummary

MIN_RUNNABLE_THREADS = 2.0
"""With this many runnable threads on one busy core, the threads are bound to it."""
SERIAL_CORES, SERIAL_PEAK_CORES = (0.85, 1.05), 1.5
"""A serial program keeps so many cores busy on average, and at most."""
MIN_COMPARED_SECONDS = 60.0
"""Cores with less CPU time on average are not compared."""
CRITICAL_BUSY_RATIO, CRITICAL_CORES, CRITICAL_IDLE_RATIO = 0.25, 8, 0.5
"""Critical are less busy cores, a serial program with so many of them, and longer idle times at the end."""

_WAITING_ADVICE = "Find out what the program waits for: files, the network, or other processes."
_AFFINITY_ADVICE = (
    "More cores do not help while threads are bound to a few: check --cpu-bind of srun, OMP_PROC_BIND, OMP_PLACES, "
    "KMP_AFFINITY and taskset. With several tasks, request the cores of each with --cpus-per-task."
)
_TASKS_ADVICE = (
    "Check why the other tasks did not work: whether the program was built with MPI, and whether its input can be "
    "divided. Only then request fewer tasks, in srun as well."
)
_BUSY_ADVICE = (
    "Nearly all cores were busy at times, so fewer would slow the job down. Check whether the program waits for files, "
    "and whether serial phases can run as separate jobs."
)


def _cpu_idle(summary: JobSummary, values: Thresholds) -> Match | None:
    ratio, mean = busy_ratio(summary), mean_cores(summary)
    if ratio is None or mean is None or has_gpus(summary):
        return None
    # Cores that Slurm allocated beyond the request do not count against the job.
    cpus, requested, enough = summary.record.cpus or 0, requested_cores(summary), _enough_cores(summary)
    if mean >= values["min_busy_ratio"] * requested:
        return None
    text = f"Only {format_count(mean)} of {cpus:,} cores were busy on average"
    if cpus == 1:
        text = "Your one core was not busy all the time"
    used = summary.cpu.cores_used
    has_work = mean >= MIN_WORKING_CORES
    shares = f" {format_some(used, 'core')} did nearly all of the work." if used and used < cpus and has_work else ""
    origin = "requested" if requested == cpus else "allocated"
    sentence = fewer_cores_sentence(summary, enough) if enough else ""
    is_known = peak_cores(summary) is not None and summary.record.node_count == 1
    return Match(
        explanation=f"{text}: {format_ratio(ratio)} of the {origin} CPU time.{shares}{sentence}",
        numbers={"busy_ratio": ratio, "mean_cores": mean, "cores": float(cpus)}
        | ({"enough_cores": float(enough)} if enough else {}),
        suggestion=fewer_cores_line(summary, enough) if enough else "",
        severity=Severity.CRITICAL if mean < CRITICAL_BUSY_RATIO * requested else None,
        advice=_idle_advice(summary, requested) if requested == 1 or (is_known and not enough) else "",
        without=_with_cores(summary, enough) if enough else summary,
    )


def _idle_advice(summary: JobSummary, requested: int) -> str:
    """Return what to do about idle cores that cannot be left out."""
    if requested == 1:
        return _WAITING_ADVICE
    peak = peak_cores(summary) or 0.0
    if peak > (1 - MIN_GAIN_RATIO) * requested:
        return _BUSY_ADVICE
    return _AFFINITY_ADVICE if (summary.mean_running_threads or 0.0) > 2 * peak else _TASKS_ADVICE


def _with_cores(summary: JobSummary, cores: int) -> JobSummary:
    """Return a job on one node as if it had requested only its busiest cores, and kept them busy."""
    record, memory = summary.record, summary.memory
    requested_bytes = memory.requested_bytes
    if requested_bytes and requests_memory_per_core(summary):
        requested_bytes *= cores / (record.cpus or cores)
    return replace(
        summary,
        record=replace(record, cpus=cores, requested_cpus=cores),
        cpu=_with_busy_ratio(summary, 1.0),
        memory=replace(memory, requested_bytes=requested_bytes),
        nodes=tuple(replace(node, core_seconds=_busiest(node.core_seconds, cores)) for node in summary.nodes),
    )


def _busiest(core_seconds: Mapping[str, float], cores: int) -> Mapping[str, float]:
    return dict(sorted(core_seconds.items(), key=lambda core: core[1], reverse=True)[:cores])


def _with_busy_ratio(summary: JobSummary, ratio: float) -> CpuSummary:
    time = summary.cpu.time
    return replace(summary.cpu, time=replace(time, used=ratio * (time.requested or 0.0)))


def _enough_cores(summary: JobSummary) -> int | None:
    """Return the most cores that were busy at once: a mean would slow down the parallel phases.

    Threads that were runnable wanted a core, whether they got one or not. None where that is unknown, or not less than
    the job requested.
    """
    peak = peak_cores(summary)
    if peak is None or summary.record.node_count > 1:
        return None
    # A step that was started with so many tasks cannot start with fewer cores.
    # A mean over the run, in which the program also starts and ends.
    wanted = math.ceil((summary.mean_running_threads or 0.0) - 0.1)
    needed = max(math.floor(peak + 0.5), wanted, step_tasks(summary) or 1)
    return needed if is_worthwhile(requested_cores(summary), needed) else None


def _uneven_over_time(summary: JobSummary, values: Thresholds) -> Match | None:
    mean, peak = mean_cores(summary), peak_cores(summary)
    if mean is None or peak is None or has_gpus(summary) or was_suspended(summary):
        return None
    if requested_cores(summary) < 2 or peak < 1 or mean / peak >= values["min_mean_to_peak_ratio"]:
        return None
    return Match(
        explanation=f"{format_count(peak)} cores were busy at the peak, but only {format_count(mean)} on average "
        f"({format_ratio(mean / peak)} of the peak): there were long phases with less work.",
        numbers={"mean_cores": mean, "peak_cores": peak, "mean_to_peak_ratio": mean / peak},
        without=replace(summary, cpu=_with_busy_ratio(summary, peak / (summary.record.cpus or 1))),
    )


def _core_imbalance(summary: JobSummary, values: Thresholds) -> Match | None:
    cores = {(node.node, core): sec for node in summary.nodes for core, sec in node.core_seconds.items()}
    if not summary.coverage.is_good or len(cores) < 2:
        return None
    fair_seconds = math.fsum(cores.values()) / len(cores)
    if fair_seconds < MIN_COMPARED_SECONDS:
        return None
    behind = [core for core, seconds in cores.items() if seconds < values["min_share_ratio"] * fair_seconds]
    if not behind:
        return None
    node, core = min(behind, key=lambda key: cores[key])
    least = cores[node, core]
    return Match(
        explanation=f"{len(behind):,} of {len(cores):,} cores did less than {format_ratio(values['min_share_ratio'])} "
        f"of a fair share of the work. Core {core} of {node} did the least: {format_seconds(least)} of CPU time, "
        f"while the mean was {format_seconds(fair_seconds)}.",
        numbers={"cores_behind": float(len(behind)), "least_seconds": least, "mean_seconds": fair_seconds},
        without=replace(summary, cpu=_with_busy_ratio(summary, max(cores.values()) / max(1.0, summary.run_seconds))),
    )


def _serial_code(summary: JobSummary, _values: Thresholds) -> Match | None:
    mean, peak = mean_cores(summary), peak_cores(summary)
    cpus = summary.record.cpus or 0
    if mean is None or has_gpus(summary) or requested_cores(summary) < 2 or summary.record.node_count > 1:
        return None
    low, high = SERIAL_CORES
    if not low <= mean <= high or (peak is not None and peak > SERIAL_PEAK_CORES):
        return None
    running, tasks = summary.mean_running_threads or 0.0, step_tasks(summary) or 1
    if running >= max(MIN_RUNNABLE_THREADS, 2 * mean):
        return _pinned(summary, mean, running)
    if tasks > 1:
        return _idle_tasks(summary, mean, tasks)
    return Match(
        explanation=f"{format_count(mean)} of {cpus:,} cores were busy on average: "
        f"the program seems to compute in a single thread.{fewer_cores_sentence(summary, 1)}",
        numbers={"mean_cores": mean, "cores": float(cpus), "enough_cores": 1.0},
        suggestion=fewer_cores_line(summary, 1),
        severity=Severity.CRITICAL if cpus >= CRITICAL_CORES else None,
        without=_with_cores(summary, 1),
    )


def _pinned(summary: JobSummary, mean: float, running: float) -> Match:
    """Explain threads that compete for one core although the job has more: their affinity is wrong."""
    cpus = summary.record.cpus or 0
    return Match(
        explanation=f"{format_count(running)} threads were runnable on average, but only {format_count(mean)} of "
        f"{cpus:,} cores were busy: the threads seem to be bound to one core.",
        numbers={"mean_cores": mean, "cores": float(cpus), "mean_running_threads": running},
        advice=_AFFINITY_ADVICE,
        without=_with_cores(summary, 1),
    )


def _idle_tasks(summary: JobSummary, mean: float, tasks: int) -> Match:
    """Explain a step of several tasks of which one worked: it cannot be started with fewer."""
    cpus = summary.record.cpus or 0
    return Match(
        explanation=f"{format_count(mean)} of {cpus:,} cores were busy on average, although a step had {tasks:,} "
        "tasks: most of them had nothing to do.",
        numbers={"mean_cores": mean, "cores": float(cpus), "tasks": float(tasks)},
        advice=_TASKS_ADVICE,
        without=_with_cores(summary, 1),
    )


def _stopped_early(summary: JobSummary, values: Thresholds) -> Match | None:
    tail = summary.cpu.idle_tail_seconds
    if tail is None or not summary.coverage.is_good or has_gpus(summary) or was_suspended(summary):
        return None
    ratio = tail / summary.run_seconds if summary.run_seconds > 0 else 0.0
    if tail < values["min_idle_seconds"] or ratio < values["min_idle_ratio"]:
        return None
    is_late = summary.record.state == "TIMEOUT"
    when = "before it ended" if summary.record.has_ended else "up to now"
    return Match(
        explanation=f"The job was idle for the last {format_seconds(tail)} {when}: "
        f"{format_ratio(ratio)} of its {format_seconds(summary.run_seconds)}.",
        numbers={"idle_seconds": tail, "idle_ratio": ratio},
        severity=Severity.CRITICAL if ratio >= CRITICAL_IDLE_RATIO or is_late else None,
        without=_without_tail(summary, ratio),
    )


def _without_tail(summary: JobSummary, idle_ratio: float) -> JobSummary:
    """Return the job as if it had ended when it stopped working."""
    busy = summary.cpu.time.ratio or 0.0
    is_late = summary.record.state == "TIMEOUT"
    return replace(
        summary,
        record=replace(summary.record, state="COMPLETED") if is_late else summary.record,
        cpu=_with_busy_ratio(summary, busy / (1 - idle_ratio) if idle_ratio < 1 else 1.0),
    )


RULES = (
    Rule(
        id="cpu_idle",
        title="Cores were idle",
        subject=Subject.CPU,
        severity=Severity.WARNING,
        needs="CPU time on every node, or from accounting for a completed job; no GPUs",
        advice="Request as many cores as the program keeps busy. If it should use more, check how many threads or "
        "tasks it starts, and whether it waits for files.",
        check=_cpu_idle,
        thresholds=(
            Threshold("min_busy_ratio", "ratio", 0.8, "Report a job whose cores are busy for less than this share."),
        ),
        explains=("core_imbalance", "memory_over_requested"),
    ),
    Rule(
        id="cpu_uneven_over_time",
        title="The load varied a lot over time",
        subject=Subject.CPU,
        severity=Severity.INFO,
        needs="CPU time on every node throughout the run; no GPUs; never suspended",
        advice="Find the phases in the chart of busy cores. Run serial phases, such as data preparation, as separate "
        "jobs with one core.",
        check=_uneven_over_time,
        thresholds=(Threshold("min_mean_to_peak_ratio", "ratio", 0.75, "Report a mean below this share of the peak."),),
        explains=("cpu_idle",),
    ),
    Rule(
        id="core_imbalance",
        title="Some cores did much less than others",
        subject=Subject.CPU,
        severity=Severity.WARNING,
        needs="CPU time per core (cgroup v1) of a job that is bound to its cores",
        advice="Divide the work more evenly, and check that tasks are not bound to the same core.",
        check=_core_imbalance,
        thresholds=(Threshold("min_share_ratio", "ratio", 0.8, "Report cores below this share of the mean."),),
        explains=("cpu_idle",),
    ),
    Rule(
        id="serial_code",
        title="Only one core worked",
        subject=Subject.CPU,
        severity=Severity.WARNING,
        needs="CPU time of a job on one node with several cores; no GPUs",
        advice="A serial program does not get faster with more cores. Request one core, or run several instances as a "
        "job array.",
        check=_serial_code,
        explains=("cpu_idle", "cpu_uneven_over_time", "core_imbalance", "memory_over_requested"),
    ),
    Rule(
        id="stopped_early",
        title="The work stopped long before the end",
        subject=Subject.CPU,
        severity=Severity.WARNING,
        needs="CPU time on every node until the end; no GPUs; never suspended",
        advice="Check the end of the job's output: it may have waited for input, a license or another process, or "
        "hung. Let the script end when the work is done.",
        check=_stopped_early,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_idle_seconds", "seconds", 600.0, "Ignore shorter idle times."),
            Threshold("min_idle_ratio", "ratio", 0.1, "Report jobs that were idle for this share of the run."),
        ),
        explains=("cpu_idle", "cpu_uneven_over_time", "timed_out"),
    ),
)
