# SPDX-License-Identifier: Apache-2.0
"""Find out why a job did not end well: which step failed first, how, and where its output is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurmscope.figures import format_bytes, format_seconds
from slurmscope.model.failure import Failure
from slurmscope.model.job_record import JobRecord, StepRecord
from slurmscope.model.report import Chart, JobReport
from slurmscope.model.summary import JobSummary
from slurmscope.rules.exit_status import CRASH_SIGNALS, LAST_SIGNAL, Ending, describe_exit
from slurmscope.rules.known import was_oom_killed
from slurmscope.rules.output_files import find_output_files

MIN_POINTS = 10
"""Fewer points of a curve are not continued."""

_BAD_STATES = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL"})
_OUT_OF_MEMORY = "OUT_OF_MEMORY"
_CANCELLED = "CANCELLED"
_OOM_ADVICE = "Request more memory, or reduce what the program needs at once."
_RETRY_ADVICE = "The job did not cause this: submit it again."
_STATES = {
    "NODE_FAIL": Ending("A node of the job failed.", _RETRY_ADVICE),
    "BOOT_FAIL": Ending("A node of the job failed to boot.", _RETRY_ADVICE),
    "PREEMPTED": Ending("Slurm stopped the job in favour of one with higher priority.", _RETRY_ADVICE),
    "DEADLINE": Ending(
        "Slurm ended the job because it could not finish before its deadline.", "Set a later --deadline, or none."
    ),
}


def explain_failure(report: JobReport) -> Failure | None:
    """Return what went wrong in a job; None for one that runs, or whose steps all ended without an error."""
    record = report.record
    if not record.has_ended or record.state == "REQUEUED":
        return None
    step = find_first_failed(record)
    if record.state == "COMPLETED" and step is None:
        return None
    files = find_output_files(record)
    failure = Failure(
        explanation="",
        step="" if step is None else step.name,
        nodes=_nodes_of(record, step),
        end_seconds=None if step is None else step.end_seconds,
        exit_code=record.exit_code if step is None else step.exit_code,
        exit_signal=record.exit_signal if step is None else step.exit_signal,
        stdout=files.stdout,
        stderr=files.stderr,
        is_output_assumed=files.is_assumed,
    )
    ending = _describe(report.summary, step)
    failure = replace(failure, explanation=ending.text, advice=ending.advice)
    return _add_memory(failure, report) if was_oom_killed(report.summary) else failure


def find_first_failed(record: JobRecord) -> StepRecord | None:
    """Return the step that failed first; the script ends with the error of its steps, so it comes last."""
    steps = [step for step in record.steps if step.name != "extern"]
    failed = [step for step in steps if _has_failed(step) or (record.state == "FAILED" and _was_killed(step))]
    return min(failed, key=_order, default=None)


def _order(step: StepRecord) -> tuple[bool, bool, bool, int]:
    """Steps that fail before those that are killed with them."""
    return not step.name[:1].isdecimal(), not _has_failed(step), step.end_seconds is None, step.end_seconds or 0


def _has_failed(step: StepRecord) -> bool:
    """A step that crashed is "cancelled" for Slurm, like one that ends with its job."""
    if step.state == _CANCELLED:
        return step.exit_signal in CRASH_SIGNALS
    return step.state in _BAD_STATES or (step.state == "COMPLETED" and bool(step.exit_code))


def _was_killed(step: StepRecord) -> bool:
    return step.state == _CANCELLED and 0 < (step.exit_signal or 0) <= LAST_SIGNAL


def _describe(summary: JobSummary, step: StepRecord | None) -> Ending:
    record = summary.record
    if record.state in _STATES:
        known = _STATES[record.state]
        node = f"Node {record.failed_node}" if record.failed_node else "A node of the job"
        return Ending(known.text.replace("A node of the job", node), known.advice)
    if record.state == "TIMEOUT":
        return _describe_timeout(record)
    if record.state == _CANCELLED and step is None:
        return _describe_cancelled(summary)
    if step is None:
        ending = describe_exit(record.exit_code, record.exit_signal)
        return Ending(f"The job {ending.text}.", ending.advice) if ending else Ending("The job failed.")
    return _describe_step(record, step)


def _describe_step(record: JobRecord, step: StepRecord) -> Ending:
    subject = name_step(step.name)
    if step.state == _OUT_OF_MEMORY:
        ending = Ending("OOM-killed: the kernel killed a process at the memory limit", _OOM_ADVICE)
    else:
        ending = describe_exit(step.exit_code, step.exit_signal) or Ending("failed without an exit code")
    verb = "was " if ending.text.startswith(("killed", "OOM")) else ""
    goes_on = " The job completed all the same: check whether the script should stop there."
    return Ending(
        f"{subject} {verb}{ending.text}.{goes_on if record.state == 'COMPLETED' else ''}",
        ending.advice,
    )


def _describe_timeout(record: JobRecord) -> Ending:
    limit = record.time_limit_seconds
    after = f" of {format_seconds(limit)}" if limit else ""
    return Ending(
        f"Slurm ended the job at its time limit{after}.",
        "Request more time, or let the program write checkpoints that the next job continues from.",
    )


def _describe_cancelled(summary: JobSummary) -> Ending:
    who = _name_canceller(summary.record)
    if summary.record.start_seconds is None:
        return Ending(f"The job was cancelled{who} before it started.", "")
    return Ending(f"The job was cancelled{who} after {format_seconds(summary.run_seconds)}.", "")


def _name_canceller(record: JobRecord) -> str:
    """Return who cancelled a job without the name: not everyone who may see the job may see the names of others."""
    uid = record.cancelled_by_uid
    if uid is None or record.uid is None:
        return ""
    if uid == record.uid:
        return " by its owner"
    return " by an administrator or by Slurm" if uid == 0 else " by an administrator or coordinator"


def name_step(name: str) -> str:
    """Return the name of a step at the beginning of a sentence."""
    return {"batch": "The batch script", "interactive": "The interactive step"}.get(name, f"Step {name}")


def _nodes_of(record: JobRecord, step: StepRecord | None) -> str:
    """Return where a step ran: the script is on the first node of the job."""
    if step is not None and step.node_list:
        return step.node_list
    if step is not None and step.name == "batch" and record.nodes:
        return record.nodes[0]
    return record.nodes[0] if len(record.nodes) == 1 else ""


def _add_memory(failure: Failure, report: JobReport) -> Failure:
    """Add the task with the most memory, and the need of a job whose memory grew to the end."""
    needed = extrapolate_memory(report)
    text = failure.explanation
    if task := _largest_task(report.summary):
        text += f" The most memory had {task}."
    if needed is not None:
        limit = format_seconds(report.summary.time.asked)
        text += (
            f" Its memory still grew: at the rate of the second half of its run it would have needed "
            f"{format_bytes(needed)} per node by its time limit of {limit}."
        )
    return replace(failure, explanation=text, largest_task=task, needed_bytes=needed)


def _largest_task(summary: JobSummary) -> str:
    """Describe the traced process or the task with the highest peak; empty where none was measured."""
    tasks = [
        (each.peak_memory_bytes, f"task {each.task} of step {each.step} on {each.node}")
        for each in summary.profile.tasks
    ] + [
        (each.peak_memory_bytes, f"{each.command} (process {each.pid} on {each.node})")
        for each in summary.traces.processes
    ]
    known = [(peak, name) for peak, name in tasks if peak]
    peak, name = max(known, default=(0.0, ""))
    return f"{name}, with {format_bytes(peak)}" if name else ""


def extrapolate_memory(report: JobReport) -> float | None:
    """Continue the memory curve of the fullest node up to the time limit, at the rate of the second half of the run.

    None for memory that did not grow to the end, or without a time limit; never below the kernel's peak.
    """
    summary, limit = report.summary, report.summary.time.asked
    chart = next((chart for chart in report.charts if chart.name == "memory"), None)
    if chart is None or limit is None or summary.run_seconds >= limit:
        return None
    points = _fullest(chart)
    half = points[len(points) // 2 :]
    if len(points) < MIN_POINTS or half[-1][1] <= half[0][1] or half[-1][0] <= half[0][0]:
        return None
    rate = (half[-1][1] - half[0][1]) / (half[-1][0] - half[0][0])
    charged = (summary.memory.charged_peak_bytes or 0.0) / max(1, summary.record.node_count)
    last = max(half[-1][1], charged)
    return last + rate * (limit - summary.run_seconds)


def _fullest(chart: Chart) -> Sequence[tuple[float, float]]:
    """Return the known points of the line that ends highest."""
    lines = [
        [(time, value) for time, value in zip(chart.times, line.values, strict=False) if value is not None]
        for line in chart.lines
    ]
    return max((line for line in lines if line), key=lambda line: line[-1][1], default=[])
