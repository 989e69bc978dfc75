# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its time limit, and what it lost at its end."""

from __future__ import annotations

from slurmscope.core.units import format_count, format_ratio, format_seconds
from slurmscope.jobs.checkpoints import Checkpoints
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, was_suspended
from slurmscope.jobs.suggestions import (
    SHORTENED_ADVICE,
    is_worthwhile,
    least_limit_seconds,
    shortened_limit_seconds,
    suggest_time_seconds,
    time_line,
)
from slurmscope.jobs.summary import JobSummary

WARNING_USED_RATIO = 0.1
STUCK_RATIO = 0.1
"""A job that was idle for this last share of its run hung: more time does not help it."""

_STUCK_ADVICE = (
    "Find out what the program waited for before requesting more time: the end of its output shows how far it got."
)


def _over_requested(summary: JobSummary, values: Thresholds) -> Match | None:
    limit, ratio, run_seconds = summary.time.requested, summary.time.ratio, summary.run_seconds
    if summary.record.state != "COMPLETED" or limit is None or ratio is None:
        return None
    if limit - run_seconds < values["min_unused_seconds"] or ratio >= values["min_used_ratio"]:
        return None
    enough = max(suggest_time_seconds(run_seconds), least_limit_seconds(summary))
    return Match(
        explanation=f"The time limit was {format_seconds(limit)}; the job ended after {format_seconds(run_seconds)} "
        f"({format_ratio(ratio)}).",
        numbers={"limit_seconds": limit, "run_seconds": run_seconds, "used_ratio": ratio},
        suggestion=time_line(enough) if is_worthwhile(limit, enough) else "",
        severity=Severity.WARNING if ratio < WARNING_USED_RATIO else None,
    )


def _timed_out(summary: JobSummary, _values: Thresholds) -> Match | None:
    if summary.record.state != "TIMEOUT":
        return None
    limit, idle_seconds = summary.time.requested, _stuck_seconds(summary)
    after = f" after {format_seconds(limit)}" if limit else ""
    enough = time_line(suggest_time_seconds(max(limit, summary.run_seconds))) if limit else ""
    stuck = f" It had been idle for the last {format_seconds(idle_seconds)}." if idle_seconds else ""
    is_shortened = bool(limit and limit < shortened_limit_seconds(summary))
    return Match(
        explanation=f"Slurm ended the job at its time limit{after}.{stuck}",
        numbers={"limit_seconds": limit} if limit else {},
        # More time does not help a job that hangs.
        suggestion="" if idle_seconds or is_shortened else enough,
        advice=_STUCK_ADVICE if idle_seconds else SHORTENED_ADVICE if is_shortened else "",
    )


def _stuck_seconds(summary: JobSummary) -> float:
    """Return for how long a job that hung was idle before its end; 0 if it did not hang."""
    tail = summary.cpu.idle_tail_seconds
    if tail is None or was_suspended(summary) or not tail >= STUCK_RATIO * summary.run_seconds > 0:
        return 0.0
    return tail


LEAST_LOST_SECONDS = 1800.0
LOST_STATES = frozenset({"TIMEOUT", "DEADLINE", "NODE_FAIL", "PREEMPTED", "FAILED", "OUT_OF_MEMORY"})
FASTER = 4
MOST_WRITING_RATIO = 0.05


def _lost_since_checkpoint(summary: JobSummary, values: Thresholds) -> Match | None:
    checkpoints, cpus = summary.checkpoints, summary.record.cpus
    if checkpoints is None or summary.record.state not in LOST_STATES or not cpus or was_suspended(summary):
        return None
    lost = summary.end_seconds - checkpoints.last_seconds
    if lost < LEAST_LOST_SECONDS or lost * cpus < values["min_lost_core_seconds"]:
        return None
    return Match(
        explanation=f"It seems to have written {checkpoints.number:,} checkpoints, one every "
        f"{format_seconds(checkpoints.interval_seconds)}, and the last one {format_seconds(lost)} before its end: "
        f"{format_count(lost * cpus / 3600)} core-hours were lost.{_with_more(checkpoints, lost, cpus)}",
        numbers={
            "lost_seconds": lost,
            "lost_core_seconds": lost * cpus,
            "interval_seconds": checkpoints.interval_seconds,
        },
    )


def _with_more(checkpoints: Checkpoints, lost: float, cpus: int) -> str:
    """Return what a shorter interval would have saved, unless most of the time would go into writing."""
    shorter = max(checkpoints.interval_seconds / FASTER, checkpoints.write_seconds / MOST_WRITING_RATIO)
    if shorter > checkpoints.interval_seconds / 2 or shorter >= lost:
        return ""
    saved = format_count((lost - shorter) * cpus / 3600)
    cost = checkpoints.write_seconds / shorter - checkpoints.write_seconds / checkpoints.interval_seconds
    return (
        f" One every {format_seconds(shorter)} would have saved at least {saved} of them, "
        f"for {format_ratio(cost)} more time to write."
    )


def _too_short(summary: JobSummary, values: Thresholds) -> Match | None:
    run_seconds = summary.run_seconds
    if summary.record.state != "COMPLETED" or not 0 < run_seconds < values["min_run_seconds"]:
        return None
    return Match(
        explanation=f"The job ran for {format_seconds(run_seconds)}. Starting and ending a job takes about as long.",
        numbers={"run_seconds": run_seconds},
    )


RULES = (
    Rule(
        id="timed_out",
        title="The time limit was reached",
        subject=Subject.TIME,
        severity=Severity.CRITICAL,
        needs="the job's state",
        advice="Request more time, or let the program write checkpoints, so that the next job can continue from there.",
        check=_timed_out,
        min_run_seconds=0.0,
    ),
    Rule(
        id="lost_since_checkpoint",
        title="Work since the last checkpoint was lost",
        subject=Subject.TIME,
        severity=Severity.INFO,
        needs="what the job wrote over time, in regular bursts; it did not complete, and was never suspended",
        advice="Write checkpoints more often, and one when Slurm announces the end of the job "
        "(#SBATCH --signal=B:USR1@300).",
        check=_lost_since_checkpoint,
        thresholds=(Threshold("min_lost_core_seconds", "seconds", 36_000.0, "Ignore jobs that lost less CPU time."),),
    ),
    Rule(
        id="time_over_requested",
        title="The time limit was much longer than needed",
        subject=Subject.TIME,
        severity=Severity.INFO,
        needs="run time and time limit of a completed job",
        advice="Request half as much time again as the job needs. Shorter jobs fit into gaps and start sooner.",
        check=_over_requested,
        min_run_seconds=900.0,
        thresholds=(
            Threshold("min_used_ratio", "ratio", 0.5, "Report jobs that used less than this share of their limit."),
            Threshold("min_unused_seconds", "seconds", 3600.0, "Ignore less unused time."),
        ),
    ),
    Rule(
        id="too_short",
        title="The job was very short",
        subject=Subject.TIME,
        severity=Severity.INFO,
        needs="run time of a completed job",
        advice="If there are many of these, run several of them one after the other in one job.",
        check=_too_short,
        min_run_seconds=0.0,
        thresholds=(Threshold("min_run_seconds", "seconds", 60.0, "Report jobs that ran for less."),),
    ),
)
