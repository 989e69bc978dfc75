# SPDX-License-Identifier: Apache-2.0
"""Merge the lines that findings suggest with what other runs of the same name needed into one header.

The next request is never below the need of this run plus a margin, nor below what completed runs needed. Without
evidence there is no line: a failed run is none for a smaller request, and unknown memory gives no ``--mem``.

Only completed runs are evidence for a smaller request. A run that was killed at its limit needed more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, linear_regression
from typing import NamedTuple

from slurmscope.core.units import format_bytes, format_seconds, format_some, parse_time_limit
from slurmscope.jobs.header_options import (
    RequestedAmount,
    SizeChanges,
    change_memory,
    change_size,
    change_time,
    freed_resources,
    in_order,
    parse_suggestion,
    submitted_size,
    suggested_bytes,
    with_memory,
    without_odd_lines,
    write_note,
)
from slurmscope.jobs.memory_shares import MEMORY_OPTIONS, even_need_bytes, may_lower_memory, spread_ratio
from slurmscope.jobs.report import JobReport, OtherRun, Resubmission
from slurmscope.jobs.rule import (
    is_memory_measured,
    needed_node_bytes,
    peak_cores,
    requested_node_bytes,
    step_node_bytes,
    was_oom_killed,
)
from slurmscope.jobs.suggestions import (
    MEMORY_MARGIN,
    OOM_MARGIN,
    is_worthwhile,
    largest_node_bytes,
    least_limit_seconds,
    shortened_limit_seconds,
    suggest_after_oom_bytes,
    suggest_memory_bytes,
    suggest_time_seconds,
)
from slurmscope.jobs.summary import JobSummary

MIN_RUNS = 5
"""Completed runs from which on a smaller request may be based on them alone."""
GROWTH_RUNS = 8
"""Runs from which on their growth over time is extrapolated."""
PERCENTILE = 0.95


class PastNeed(NamedTuple):
    """What the next run is expected to need, and the largest need of a completed run."""

    expected: float
    largest: float
    runs: int
    completed: int

    @property
    def is_proven(self) -> bool:
        """Return whether enough runs completed to request less."""
        return self.completed >= MIN_RUNS


def past_seconds(runs: Sequence[OtherRun]) -> PastNeed | None:
    return _past(runs, _needed_seconds)


def past_bytes(runs: Sequence[OtherRun]) -> PastNeed | None:
    return _past(runs, _needed_bytes)


def _needed_seconds(run: OtherRun) -> float | None:
    if run.state == "TIMEOUT":
        return run.limit_seconds
    return run.run_seconds if run.state == "COMPLETED" else None


def _needed_bytes(run: OtherRun) -> float | None:
    if run.state == "OUT_OF_MEMORY":
        # The margin of an OOM-killed job is larger: its real need is unknown.
        return run.requested_bytes and run.requested_bytes * OOM_MARGIN / MEMORY_MARGIN
    return run.peak_bytes


def _past(runs: Sequence[OtherRun], needed: Callable[[OtherRun], float | None]) -> PastNeed | None:
    ordered = sorted(runs, key=lambda run: run.start_seconds)
    known = [(run, need) for run in ordered if (need := needed(run)) is not None]
    if not known:
        return None
    needs = [need for _, need in known]
    completed = [need for run, need in known if run.state == "COMPLETED"]
    expected = max([_percentile(needs), *_grown(completed)])
    return PastNeed(expected, max(completed, default=expected), len(known), len(completed))


def _percentile(needs: Sequence[float]) -> float:
    """Return the nearest rank: of up to 20 runs the largest."""
    return sorted(needs)[math.ceil(PERCENTILE * len(needs)) - 1]


def _grown(needs: Sequence[float]) -> list[float]:
    """Return the need of the next run if runs keep growing, with the deviation seen so far; nothing if they do not."""
    count = len(needs)
    if count < GROWTH_RUNS:
        return []
    slope, intercept = linear_regression(range(count), needs)
    # Less than this from the first run to the last is noise.
    if slope * count < 0.1 * fmean(needs):
        return []
    deviation = max(need - (intercept + slope * index) for index, need in enumerate(needs))
    return [intercept + slope * count + deviation]


TIGHT_RATIO = 0.9
"""A request is too small for a run like this one if it used more than this share of it."""
LARGEST_MARGIN = 1.05
"""A run as large as the largest one must fit."""

_KEPT_MEMORY = "Fewer {what} alone would also mean less memory."


class _Proposal(NamedTuple):
    """An amount to request, up to which request it is evidence for more, and whether it is evidence for less."""

    amount: float
    reason: str
    raises_up_to: float = 0.0
    may_lower: bool = False


def suggest_resubmission(report: JobReport, runs: Sequence[OtherRun] = ()) -> Resubmission | None:
    """Return the header for the next run, without changes where there is nothing to change; None for other jobs.

    Those are jobs that have not ended, or never started. ``runs`` are other runs of the same user, name and size.
    """
    summary, record = report.summary, report.record
    if not record.has_ended or record.start_seconds is None or not record.cpus:
        return None
    report = replace(report, findings=without_odd_lines(report.findings))
    sized = SizeChanges((), submitted_size(summary)) if _is_lone_task(report, runs) else change_size(report, runs)
    limit, memory = _decide_time(report, runs, sized), _decide_memory(report, runs, sized)
    size, changes = sized.size, list(sized.changes)
    if memory and (change := change_memory(summary, memory, size)):
        size = with_memory(summary, size, change)
        changes.append(change)
    if limit:
        size = replace(size, limit_seconds=limit.value)
        changes.append(change_time(summary, limit))
    submitted = submitted_size(summary)
    return Resubmission(
        changes=in_order(changes),
        other_runs=len(runs),
        submitted=submitted,
        suggested=size,
        freed=freed_resources(submitted, size, summary.run_seconds),
        note=write_note(summary, changes),
    )


def _decide_time(report: JobReport, runs: Sequence[OtherRun], sized: SizeChanges) -> RequestedAmount | None:
    summary, limit = report.summary, report.summary.time.requested
    # Where Slurm shortened the limit, --time is not what was too short.
    if not limit or limit < shortened_limit_seconds(summary):
        return None
    found = [
        _Proposal(seconds, finding.title, seconds, may_lower=not _is_lone_task(report, runs))
        for finding in report.findings
        if (seconds := _suggested_seconds(finding.suggestion))
    ]
    # More time does not help a job that hangs.
    if report.record.state == "TIMEOUT" and not found:
        return None
    peak = peak_cores(summary) or sized.size.cpus
    slower = max(1.0, peak / sized.size.cpus) if _has_fewer_cores(summary, sized) else 1.0
    own = summary.run_seconds * slower
    proposals = [
        *found,
        _Proposal(suggest_time_seconds(own), f"This run took {format_seconds(own)}.", own / TIGHT_RATIO),
    ]
    if past := past_seconds(runs):
        proposals.append(_past_proposal(past, slower, suggest_time_seconds, format_seconds))
    if least := least_limit_seconds(summary):
        proposals.append(_Proposal(least, "Slurm rejects a time limit below --time-min."))
    # A run that failed early did not show that its limit is too short.
    is_short = report.record.state == "TIMEOUT" or (report.record.state == "COMPLETED" and own > TIGHT_RATIO * limit)
    return _decide(limit, proposals, most=math.inf if is_short else limit)


def _decide_memory(report: JobReport, runs: Sequence[OtherRun], sized: SizeChanges) -> RequestedAmount | None:
    summary, kept = report.summary, sized.size.memory_bytes
    if kept is None or sized.is_packed:
        return None
    requested = kept / sized.size.nodes
    is_smaller, is_lone = _is_smaller(summary, sized), _is_lone_task(report, runs)
    kept_memory = _KEPT_MEMORY.format(what="cores" if _has_fewer_cores(summary, sized) else "GPUs")
    found = [
        _Proposal(size, kept_memory if _sets_cores(finding.suggestion) else finding.title, size, not is_lone)
        for finding in report.findings
        if (size := suggested_bytes(summary, finding)) and (is_smaller or not _sets_cores(finding.suggestion))
    ]
    need, is_unused = even_need_bytes(summary) or needed_node_bytes(summary), _has_unused_memory(report) and not is_lone
    proposals = found
    if need:
        reason = f"This run needed {format_bytes(needed_node_bytes(summary))}."
        proposals.append(_Proposal(suggest_memory_bytes(need), reason, need / TIGHT_RATIO, is_unused))
    # Another finding may have left out the line of this one.
    if _has_finding(report, "oom_kill") and (enough := suggest_after_oom_bytes(summary)):
        proposals.append(_Proposal(enough, "The job ran out of memory.", enough))
    if step := step_node_bytes(summary):
        proposals.append(_Proposal(step, f"A step requests {format_bytes(step)} of it with srun."))
    if past := past_bytes(runs):
        more = spread_ratio(summary) or 1.0
        made = _past_proposal(past, more, suggest_memory_bytes, lambda amount: format_bytes(amount / more))
        proposals.append(made._replace(may_lower=made.may_lower and is_memory_measured(summary.memory)))
    options = report.record.options
    if found and _has_fewer_cores(summary, sized) and "mem-per-cpu" in options:
        best = _largest(proposals)
        return best._replace(value=min(best.value, _most_bytes(summary, need)))
    # Whole nodes come with all of their memory.
    if "exclusive" in options or not may_lower_memory(summary):
        proposals = [each._replace(may_lower=False) for each in proposals]
    return _decide(requested, proposals, most=_most_bytes(summary, need))


def _most_bytes(summary: JobSummary, need: float) -> float:
    """Return the most memory per node to suggest: as submitted where more does not help, else that of a node."""
    submitted = requested_node_bytes(summary) or need
    if was_oom_killed(summary):
        is_short = suggest_after_oom_bytes(summary) is not None
    else:
        is_short = need > TIGHT_RATIO * submitted
    return max(submitted, largest_node_bytes(summary) or math.inf) if is_short else submitted


def _decide(requested: float, proposals: Sequence[_Proposal], *, most: float) -> RequestedAmount | None:
    """Return the largest proposal, up to ``most``, where it makes a difference, and its direction has evidence."""
    if not proposals:
        return None
    best = _largest(proposals)
    best = best._replace(value=min(best.value, most))
    if best.value > requested:
        return best if any(each.raises_up_to > requested for each in proposals) else None
    may_lower = any(each.may_lower for each in proposals)
    return best if may_lower and is_worthwhile(requested, best.value) else None


def _largest(proposals: Sequence[_Proposal]) -> RequestedAmount:
    """Return the largest amount; of equal ones the first, which is that of a finding."""
    best = max(proposals, key=lambda proposal: proposal.amount)
    return RequestedAmount(best.amount, best.reason)


def _past_proposal(
    past: PastNeed, slower: float, suggest: Callable[..., int], write: Callable[[float], str]
) -> _Proposal:
    need = past.expected * slower
    amount = max(suggest(need), suggest(past.largest * slower, LARGEST_MARGIN))
    reason = f"By {format_some(past.runs, 'other run')} of this job, the next one may need {write(need)}."
    # A run that was ended at its limit needed more than that.
    return _Proposal(amount, reason, 1.01 * need, past.is_proven)


def _is_lone_task(report: JobReport, runs: Sequence[OtherRun]) -> bool:
    """Return whether this is a task of an array of which no other is known: the header is for all of them."""
    return report.record.array_task_id is not None and not runs


def _is_smaller(summary: JobSummary, sized: SizeChanges) -> bool:
    return _has_fewer_cores(summary, sized) or sized.size.gpus < submitted_size(summary).gpus


def _has_fewer_cores(summary: JobSummary, sized: SizeChanges) -> bool:
    return sized.size.cpus < submitted_size(summary).cpus


def _suggested_seconds(suggestion: str) -> int | None:
    text = parse_suggestion(suggestion).get("time")
    return parse_time_limit(text) if text else None


def _has_unused_memory(report: JobReport) -> bool:
    """Return whether measured memory was not needed to the end, be it as a consequence of another finding."""
    is_known = report.record.state == "COMPLETED" and is_memory_measured(report.summary.memory)
    return is_known and _has_finding(report, "memory_over_requested")


def _has_finding(report: JobReport, rule: str) -> bool:
    return any(each.rule == rule for finding in report.findings for each in finding.with_consequences)


def _sets_cores(suggestion: str) -> bool:
    return any(name not in MEMORY_OPTIONS for name in parse_suggestion(suggestion))
