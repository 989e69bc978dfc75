# SPDX-License-Identifier: Apache-2.0
"""Find out why a job did not end well: which step failed first, how, and where its output is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import NamedTuple

from slurmscope.core.units import format_bytes, format_seconds
from slurmscope.jobs.exit_status import CHECK_OUTPUT, CRASH_SIGNALS, LAST_SIGNAL, Ending, describe_exit
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.jobs.render.formatting import LabelledText, format_time, show
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import STEP_LIMIT_ADVICE, Severity, hit_step_limit, was_oom_killed
from slurmscope.jobs.submit_line import command_name
from slurmscope.jobs.suggestions import SHORTENED_ADVICE, shortened_limit_seconds
from slurmscope.jobs.summary import JobSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong in a job, as far as accounting and measurements say."""

    explanation: str
    """What happened, in one or two sentences."""
    advice: str = ""
    step: str = ""
    """The step that failed first: ``batch`` is the script. Empty where accounting does not say."""
    nodes: str = ""
    """Where that step ran, as Slurm writes it: a single node, or a list."""
    end_seconds: int | None = None
    """When that step ended."""
    exit_code: int | None = None
    exit_signal: int | None = None
    stdout: str = ""
    """Where the output is; empty where it went to a terminal."""
    stderr: str = ""
    is_output_assumed: bool = False
    """Whether these are Slurm's default, which the script may have changed."""
    largest_task: str = ""
    """The task or process with the most memory, where one was measured."""
    needed_bytes: float | None = None
    """Memory per node up to the time limit, if it had continued to grow as it did; only for an OOM-killed job."""


MAX_PATH = 4096
NO_FILE = "/dev/null"
_NOT_IN_ARRAY = 4_294_967_294
_MAX_WIDTH = 10
_PATTERN = re.compile(r"%(?P<width>[0-9]{0,2})(?P<code>[%AaJjNnstuxb])")


class OutputFiles(NamedTuple):
    """The paths; ``is_assumed`` where they are Slurm's default, which the script may have changed."""

    stdout: str
    stderr: str
    is_assumed: bool
    is_discarded: bool = False
    """Whether all output went to /dev/null."""


def find_output_files(record: JobRecord) -> OutputFiles:
    """Return where the output went; empty paths for a job whose output went to a terminal."""
    options = record.options
    stdout = record.stdout or options.get("output", "")
    stderr = record.stderr or options.get("error", "")
    is_batch = command_name(record.submit_line) == "sbatch" or any(step.name == "batch" for step in record.steps)
    if not stdout and not is_batch:
        return OutputFiles("", _place(record, stderr), is_assumed=False)
    if stdout == NO_FILE and stderr in {"", NO_FILE}:
        return OutputFiles("", "", is_assumed=False, is_discarded=True)
    default = "slurm-%j.out" if record.array_task_id is None else "slurm-%A_%a.out"
    out = _place(record, stdout or default)
    return OutputFiles(out, _place(record, stderr) or out, is_assumed=not stdout)


def expand_pattern(pattern: str, record: JobRecord) -> str:
    """Replace ``%j`` and the other patterns of sbatch; a backslash anywhere switches them off."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    return _PATTERN.sub(lambda found: _expand(found["code"], found["width"], record), pattern)


def _place(record: JobRecord, pattern: str) -> str:
    if not pattern or pattern == NO_FILE:
        return ""
    path = expand_pattern(pattern[:MAX_PATH], record)
    is_relative = not path.startswith("/") and bool(record.work_dir)
    return f"{record.work_dir.rstrip('/')}/{path}" if is_relative else path


def _expand(code: str, width: str, record: JobRecord) -> str:
    task = _NOT_IN_ARRAY if record.array_task_id is None else record.array_task_id
    # Of a step and its tasks, the output of the script is that of the first.
    numbers = {
        "A": record.job_id if record.array_job_id is None else record.array_job_id,
        "a": task,
        "b": task % 10,
        "j": record.job_id,
        "J": record.job_id,
        "n": 0,
        "s": 0,
        "t": 0,
    }
    if code in numbers:
        return str(numbers[code]).zfill(min(int(f"0{width}"), _MAX_WIDTH))
    node = record.nodes[0].partition(".")[0] if record.nodes else "%N"
    return {"N": node, "u": record.user, "x": record.name, "%": "%"}[code]


STUCK_RATIO = 0.1
"""A job that was idle for this last share of its run hung, as in the rule about time limits."""
_BAD_STATES = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL"})
_OUT_OF_MEMORY = "OUT_OF_MEMORY"
_CANCELLED = "CANCELLED"
_OOM_ADVICE = "Request more memory, or reduce what the program needs at once."
_LOST_ADVICE = "Its output went to /dev/null: submit it again with --output, to see why."
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
    is_lost = files.is_discarded and ending.advice == CHECK_OUTPUT
    failure = replace(failure, explanation=ending.text, advice=_LOST_ADVICE if is_lost else ending.advice)
    return _add_memory(failure, report) if was_oom_killed(report.summary) else failure


def find_first_failed(record: JobRecord) -> StepRecord | None:
    """Return the step that failed first; the script ends with the error of its steps, so it comes last."""
    steps = [step for step in record.steps if step.name != "extern"]
    failed = [step for step in steps if _has_failed(step) or (record.state == "FAILED" and _was_killed(step))]
    return min(failed, key=_order, default=None)


def _order(step: StepRecord) -> tuple[bool, bool, float]:
    """Steps that fail before those that are killed with them."""
    end_seconds = math.inf if step.end_seconds is None else step.end_seconds
    return not step.name[:1].isdecimal(), not _has_failed(step), end_seconds


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
        return _describe_timeout(summary)
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


def _describe_timeout(summary: JobSummary) -> Ending:
    limit = summary.record.time_limit_seconds
    after = f" of {format_seconds(limit)}" if limit else ""
    stuck_seconds = summary.cpu.idle_tail_seconds or 0.0
    if stuck_seconds >= STUCK_RATIO * summary.run_seconds > 0 and not summary.record.suspended_seconds:
        return Ending(
            f"Slurm ended the job at its time limit{after}. It had been idle for the last "
            f"{format_seconds(stuck_seconds)}.",
            "Find out what the program waited for: more time does not help a job that hangs.",
        )
    is_shortened = bool(limit and limit < shortened_limit_seconds(summary))
    return Ending(
        f"Slurm ended the job at its time limit{after}.",
        SHORTENED_ADVICE
        if is_shortened
        else "Request more time, or let the program write checkpoints that the next job continues from.",
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
    needed = report.summary.memory.expected_bytes
    text, advice = failure.explanation, STEP_LIMIT_ADVICE if hit_step_limit(report.summary) else failure.advice
    if task := _largest_task(report.summary):
        text += f" The most memory had {task}."
    if needed is not None:
        limit = format_seconds(report.summary.time.requested)
        text += (
            f" Its memory still grew: at the rate of the second half of its run it would have needed "
            f"{format_bytes(needed)} per node by its time limit of {limit}."
        )
    return replace(failure, explanation=text, advice=advice, largest_task=task, needed_bytes=needed)


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
    if not known:
        return ""
    peak, name = max(known)
    return f"{name}, with {format_bytes(peak)}"


TITLE = "What went wrong"
_MAX_TEXT = 1000
CAUSES = frozenset({"oom_kill", "timed_out", "node_failed"})
"""Findings that are themselves what went wrong."""
_ASSUMED = " (Slurm's default; the script may set another file with --output)"


def failure_rows(report: JobReport, zone: tzinfo | None = UTC) -> tuple[LabelledText, ...]:
    """Return labelled lines, safe to show; none for a job in which nothing went wrong."""
    failure = explain_failure(report)
    if failure is None:
        return ()
    rows = (
        LabelledText("Cause", failure.explanation),
        LabelledText("Failed first", _describe_place(failure, zone)),
        LabelledText("What to do", failure.advice),
        LabelledText("Also found", _findings(report)),
        *_outputs(failure),
    )
    return tuple(LabelledText(row.label, show(row.text, _MAX_TEXT)) for row in rows if row.text)


def _describe_place(failure: Failure, zone: tzinfo | None) -> str:
    if not failure.step:
        return ""
    where = f" on {failure.nodes}" if failure.nodes else ""
    when = "" if failure.end_seconds is None else f", at {format_time(failure.end_seconds, zone)}"
    return f"{name_step(failure.step)}{where}{when}"


def _findings(report: JobReport) -> str:
    """Name the findings that may have to do with it, but not those that are the cause; they follow below."""
    others = (finding for finding in report.findings if finding.rule not in CAUSES)
    return "; ".join(finding.title for finding in others if finding.severity is not Severity.INFO)


def _outputs(failure: Failure) -> tuple[LabelledText, ...]:
    note = _ASSUMED if failure.is_output_assumed else ""
    if not failure.stderr or failure.stderr == failure.stdout:
        return (LabelledText("Output", f"{failure.stdout}{note}" if failure.stdout else ""),)
    return (
        LabelledText("Output", f"{failure.stdout}{note}" if failure.stdout else ""),
        LabelledText("Error output", failure.stderr),
    )
