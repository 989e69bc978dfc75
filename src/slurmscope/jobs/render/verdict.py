# SPDX-License-Identifier: Apache-2.0
"""Format the findings of a job, and join the worst one and the cause of a failure to one verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from slurmscope.core.units import format_ratio, format_seconds
from slurmscope.jobs.failure import CAUSES, Failure, explain_failure, failure_rows
from slurmscope.jobs.render.formatting import LabelledText, show
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS, Finding, Severity

FINE, QUIET = "fine", "quiet"
_PROCESS_ENDED = 45.0
_NOTHING_FOUND = "No findings: the measurements show nothing to change."
_PLACES = frozenset({"Failed first", "Output", "Error output"})
"""Rows of a failure that no finding repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happened, in one card; ``others`` are further findings, worst first."""

    title: str
    tone: str
    """A severity, fine, or quiet: it colours the card."""
    severity: Severity | None = None
    sentences: tuple[str, ...] = ()
    rows: tuple[LabelledText, ...] = ()
    suggestion: str = ""
    """The line for the job script, of a finding that is not part of a header for the next run."""
    consequences: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()


def make_verdict(report: JobReport, zone: tzinfo | None = UTC) -> Verdict:
    """Return the verdict about a job; texts are safe to show. ``zone`` is the time zone of its rows."""
    found, failure, cause = findings(report), explain_failure(report), find_cause(report)
    if failure is not None and cause is None:
        return _of_failure(report, failure, found, zone)
    main = cause or next(iter(found), None)
    if main is None:
        return Verdict(title=no_findings(report), tone=FINE if is_fine(report) else QUIET)
    return Verdict(
        title=main.title,
        tone=Severity.CRITICAL if cause and report.record.state == "FAILED" else main.severity,
        severity=main.severity,
        sentences=tuple(filter(None, (main.explanation, main.advice))),
        rows=() if failure is None else _rows(report, failure, zone),
        suggestion=main.suggestion,
        consequences=main.consequences,
        others=tuple(finding for finding in found if finding != main),
    )


def find_cause(report: JobReport) -> Finding | None:
    """Return the finding that says why a job ended, so that nothing else needs to."""
    return next((finding for finding in findings(report) if _is_cause(finding, report.record.state)), None)


def _is_cause(finding: Finding, state: str) -> bool:
    """Return whether a finding is why a job ended; that GPU work of a process ended (Xid 45) follows from its end."""
    if finding.rule == "gpu_fault":
        return state == "FAILED" and finding.numbers.get("xid") != _PROCESS_ENDED
    return finding.rule in CAUSES or (finding.rule == "gpu_stuck" and state in {"CANCELLED", "TIMEOUT"})


def _of_failure(report: JobReport, failure: Failure, found: tuple[Finding, ...], zone: tzinfo | None) -> Verdict:
    """Return the verdict about a failure that no rule explains; a job that was cancelled did nothing wrong."""
    happened, dot, more = show(failure.explanation).partition(". ")
    is_bad = report.record.state not in {"CANCELLED", "COMPLETED"}
    return Verdict(
        title=happened + dot.strip(),
        tone=Severity.CRITICAL if is_bad else QUIET,
        sentences=tuple(filter(None, (more, show(failure.advice), "" if found else no_findings(report)))),
        rows=_rows(report, failure, zone),
        others=found,
    )


def _rows(report: JobReport, failure: Failure, zone: tzinfo | None) -> tuple[LabelledText, ...]:
    rows = tuple(row for row in failure_rows(report, zone) if row.label in _PLACES)
    return (LabelledText("Most memory", show(failure.largest_task)), *rows) if failure.largest_task else rows


def findings(report: JobReport) -> tuple[Finding, ...]:
    """Return findings, worst first, safe to show; their lines are left out where one header replaces them."""
    ordered = sorted(report.findings, key=lambda finding: finding.severity.rank)
    return tuple(_shown(finding, has_line=report.resubmission is None) for finding in ordered)


def _shown(finding: Finding, *, has_line: bool) -> Finding:
    return replace(
        finding,
        rule=show(finding.rule),
        title=show(finding.title),
        explanation=show(finding.explanation),
        advice=show(finding.advice),
        suggestion=show(finding.suggestion) if has_line else "",
        consequences=tuple(_shown(other, has_line=False) for other in finding.consequences),
    )


def no_findings(report: JobReport) -> str:
    """Explain why there are no findings."""
    if report.record.start_seconds is None:
        return "No findings: the job has not run."
    if report.record.state == "FAILED":
        failure = explain_failure(report)
        # An exit code of 1 or 2 is any error.
        is_named = failure is not None and (bool(failure.exit_signal) or (failure.exit_code or 0) > 2)
        unexplained = "No findings: what the job used does not explain why it failed."
        return "No findings about what the job used." if is_named else unexplained
    if _is_short(report):
        return _too_short(report)
    if not report.record.has_ended:
        return "No findings yet: the job is still running."
    if _has_header(report):
        return "No findings, but the next run should request something else: see its header."
    is_sure = report.summary.coverage.is_good
    return _NOTHING_FOUND if is_sure else "No findings, but too little was measured to be sure."


def is_fine(report: JobReport) -> bool:
    """Return whether a job has ended without a problem and was measured well enough to say so."""
    has_worked = report.record.state == "COMPLETED"
    is_judged = report.summary.coverage.is_good and not _is_short(report)
    return has_worked and not report.findings and is_judged and not _has_header(report)


def _has_header(report: JobReport) -> bool:
    return report.resubmission is not None and bool(report.resubmission.changes)


def _is_short(report: JobReport) -> bool:
    return report.summary.run_seconds < MIN_JUDGED_SECONDS


def _too_short(report: JobReport) -> str:
    """Give the numbers that were measured, without a judgement."""
    summary, verb = report.summary, "ran" if report.record.has_ended else "has run"
    shares = {"CPU": summary.cpu.time.ratio, "memory": summary.memory.ratio, "GPU": summary.gpu.mean_utilization}
    known = ", ".join(f"{label} {format_ratio(ratio)}" for label, ratio in shares.items() if ratio is not None)
    text = (
        f"Too short to judge: the job {verb} for {format_seconds(summary.run_seconds)}, and most rules need "
        f"{format_seconds(MIN_JUDGED_SECONDS)}."
    )
    return f"{text} It used: {known}." if known else text
