# SPDX-License-Identifier: Apache-2.0
"""Check whether a process, a node or a GPU of a job kept the others waiting, or a node had too few cores for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slurmscope.core.units import format_ratio, format_seconds, format_some
from slurmscope.jobs.processes import HeldTask, SilentPart, SlowPart
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, was_suspended
from slurmscope.jobs.summary import JobSummary

LISTED_PROCESSES = 3
LISTED_PARTS = 3
NAME_LENGTH = 40
_STATES = {"stopped": "was stopped by a signal", "disk_sleep": "waited for a disk or file system"}


def _process_held(summary: JobSummary, values: Thresholds) -> Match | None:
    # Slurm stops all processes of a job that it suspends.
    held = [task for task in summary.held if task.seconds >= values["min_held_seconds"] and task.state in _STATES]
    if not held or was_suspended(summary) or summary.record.state == "SUSPENDED":
        return None
    held.sort(key=lambda task: task.is_over)
    is_now = not held[0].is_over and not summary.record.has_ended
    worst = "; ".join(map(_describe, held[:LISTED_PROCESSES]))
    rest = len(held) - LISTED_PROCESSES
    more = f"; and {format_some(rest, 'more process', 'more processes')}" if rest > 0 else ""
    return Match(
        explanation=f"{worst}{more}. The other processes of the job may have waited for it.",
        numbers={"held_seconds": held[0].seconds, "held_processes": float(len(held))},
        advice=_ADVICE[held[0].state] if is_now else _ADVICE_LATER,
        severity=Severity.CRITICAL if is_now else None,
    )


_ADVICE = {
    "stopped": "Continue it on its node with kill -CONT PID, or cancel the job: until then it only costs time.",
    "disk_sleep": "Check the file system that the process uses on this node, and tell your cluster's support.",
}
_ADVICE_LATER = (
    "If it happens again, tell your cluster's support the node, the time and the files that the program uses."
)


def _describe(task: HeldTask) -> str:
    rank = f" (task {task.task})" if task.task else ""
    return (
        f"Process {task.pid} ({task.program[:NAME_LENGTH]}){rank} on {task.node} {_STATES[task.state]} "
        f"for {format_seconds(task.seconds)}"
    )


def _straggler(summary: JobSummary, values: Thresholds) -> Match | None:
    slow = _long_parts(summary, summary.slow_parts, values)
    if not slow:
        return None
    return Match(
        explanation=f"{_list_parts(slow, _describe_slow)} If the others work in step with it, all of them waited.",
        numbers=_numbers(slow),
        severity=_severity_now(summary, slow, values),
        advice=_SLOW_GPU_ADVICE if slow[0].gpu else "",
    )


def _node_oversubscribed(summary: JobSummary, values: Thresholds) -> Match | None:
    crowded = _long_parts(summary, summary.oversubscribed_nodes, values)
    return Match(explanation=_list_parts(crowded, _describe_shares), numbers=_numbers(crowded)) if crowded else None


def _numbers(slow: Sequence[SlowPart]) -> dict[str, float]:
    return {"factor": slow[0].factor, "slow_seconds": slow[0].seconds, "slow_parts": float(len(slow))}


def _long_parts(summary: JobSummary, parts: Sequence[SlowPart], values: Thresholds) -> list[SlowPart]:
    if _is_incomparable(summary):
        return []
    return [p for p in parts if p.seconds >= values["min_slow_seconds"] and p.factor >= values["min_factor"]]


def _is_incomparable(summary: JobSummary) -> bool:
    """Return whether parts of the job cannot be compared over time; accounting counts a suspension when it is over."""
    return was_suspended(summary) or summary.record.state == "SUSPENDED" or not summary.coverage.is_good


def _severity_now(summary: JobSummary, slow: Iterable[SlowPart], values: Thresholds) -> Severity | None:
    """Return that of a running job which is slow now; None for one that was."""
    latest = max(part.since_seconds + part.seconds for part in slow)
    is_now = summary.end_seconds - latest <= values["min_slow_seconds"]
    return Severity.CRITICAL if is_now and not summary.record.has_ended else None


def _list_parts(slow: Sequence[SlowPart], describe: Callable[[SlowPart], str]) -> str:
    rest = len(slow) - LISTED_PARTS
    more = f" {format_some(rest, 'more of them was', 'more of them were')} slow." if rest > 0 else ""
    return f"{' '.join(map(describe, slow[:LISTED_PARTS]))}{more}"


def _describe_slow(part: SlowPart) -> str:
    if not part.gpu:
        return f"A CPU limit held {part.node} back. {_describe_shares(part)}"
    return (
        f"GPU {part.gpu} of {part.node} was busy for {format_ratio(part.own_ratio)} of the time and the other GPUs for "
        f"{format_ratio(part.others_ratio)}, for {format_seconds(part.seconds)}, and all did the same work: each step "
        f"took {part.factor:.1f} times as long."
    )


def _describe_shares(part: SlowPart) -> str:
    own, others = format_ratio(part.own_ratio), format_ratio(part.others_ratio)
    return (
        f"Processes on {part.node} had a core for {own} of the time in which they could run, those on other nodes for "
        f"{others}, for {format_seconds(part.seconds)}: the same work took {part.factor:.1f} times as long there."
    )


_SLOW_GPU_ADVICE = (
    "Look at what feeds this GPU: its data loader, the file system of its node, and its clock (gpu_throttled). If the "
    "same node is slow in the next run, exclude it with --exclude=NODE, and tell your cluster's support."
)


def _part_stopped(summary: JobSummary, values: Thresholds) -> Match | None:
    silent = [part for part in summary.silent_parts if part.seconds >= values["min_silent_seconds"]]
    if not silent or _is_incomparable(summary):
        return None
    rest = len(silent) - LISTED_PARTS
    more = f"; and {format_some(rest, 'more', 'more')}" if rest > 0 else ""
    worked_on = "worked on" if summary.record.has_ended else "go on"
    return Match(
        explanation=f"{'; '.join(map(_describe_silent, silent[:LISTED_PARTS]))}{more}, while the others {worked_on}.",
        numbers={"silent_seconds": silent[0].seconds, "silent_parts": float(len(silent))},
    )


def _describe_silent(part: SilentPart) -> str:
    name = f"GPU {part.gpu} of {part.node}" if part.gpu else f"Node {part.node}"
    return f"{name} did nothing in the last {format_seconds(part.seconds)}"


RULES = (
    Rule(
        id="straggler",
        title="A part of the job was slower than the others",
        subject=Subject.NODES,
        severity=Severity.WARNING,
        needs="for nodes, the time that a CPU limit held the job back; for GPUs, how busy each was and counters of the "
        "hardware (Hopper and later); never suspended",
        advice="Jobs have a CPU limit on that node (cpu.max of their cgroup): tell your cluster's support, and exclude "
        "the node with --exclude=NODE until then.",
        check=_straggler,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_slow_seconds", "seconds", 300.0, "Report parts that were slow for so long without a pause."),
            Threshold("min_factor", "ratio", 1.25, "Report parts in which the same work took so many times as long."),
        ),
        explains=("cpu_queued", "node_imbalance", "gpu_some_idle"),
    ),
    Rule(
        id="node_oversubscribed",
        title="Threads waited for a core on some nodes",
        subject=Subject.NODES,
        severity=Severity.WARNING,
        needs="the time that threads of every node waited for a core; never suspended",
        advice="Look on that node for more threads of the job than cores there, or tasks bound to the same core "
        "(--cpu-bind). If there are none, other programs use the job's cores (top): tell your cluster's support.",
        check=_node_oversubscribed,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_slow_seconds", "seconds", 300.0, "Report nodes where that went on for so long."),
            Threshold("min_factor", "ratio", 1.25, "Report nodes where the same work took so many times as long."),
        ),
        explains=("cpu_queued",),
    ),
    Rule(
        id="part_stopped",
        title="A part of the job stopped before the others",
        subject=Subject.NODES,
        severity=Severity.WARNING,
        needs="CPU time of every node over time, or how busy each GPU was; never suspended",
        advice="Its tasks have died, hang, or were ready earlier: compare the output of the tasks. srun "
        "--kill-on-bad-exit=1 ends a step when one of its tasks fails, so that the others do not wait for it.",
        check=_part_stopped,
        min_run_seconds=0.0,
        thresholds=(Threshold("min_silent_seconds", "seconds", 600.0, "Report parts that did nothing for so long."),),
        explains=("node_imbalance", "gpu_some_idle"),
    ),
    Rule(
        id="process_held",
        title="A process was stopped or waited for a disk",
        subject=Subject.TIME,
        severity=Severity.WARNING,
        needs="the states of processes; never suspended",
        advice=_ADVICE_LATER,
        check=_process_held,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_held_seconds", "seconds", 120.0, "Report processes that were held for at least so long."),
        ),
    ),
)
