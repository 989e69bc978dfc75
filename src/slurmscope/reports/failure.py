# SPDX-License-Identifier: Apache-2.0
"""Describe what went wrong in a job, once for all renderings."""

from __future__ import annotations

from datetime import UTC, tzinfo

from slurmscope.model.failure import Failure
from slurmscope.model.finding import Severity
from slurmscope.model.report import JobReport
from slurmscope.reports.contents import LabelledText
from slurmscope.reports.formatting import format_time, show
from slurmscope.rules.failure import explain_failure, name_step

TITLE = "What went wrong"
_CAUSES = frozenset({"oom_kill", "timed_out", "node_failed"})
"""Findings that are themselves what went wrong."""
_ASSUMED = " (Slurm's default; the script may set another file with --output)"


def failure_rows(report: JobReport, zone: tzinfo | None = UTC) -> tuple[LabelledText, ...]:
    """Return labelled lines, safe to show; none for a job in which nothing went wrong."""
    failure = explain_failure(report)
    if failure is None:
        return ()
    rows = (
        LabelledText("Cause", failure.explanation),
        LabelledText("Failed first", _place(failure, zone)),
        LabelledText("What to do", failure.advice),
        LabelledText("Also found", _findings(report)),
        *_outputs(failure),
    )
    return tuple(LabelledText(row.label, show(row.text, 1000)) for row in rows if row.text)


def _place(failure: Failure, zone: tzinfo | None) -> str:
    if not failure.step:
        return ""
    where = f" on {failure.nodes}" if failure.nodes else ""
    when = "" if failure.end_seconds is None else f", at {format_time(failure.end_seconds, zone)}"
    return f"{name_step(failure.step)}{where}{when}"


def _findings(report: JobReport) -> str:
    """Name the findings that may have to do with it, but not those that are the cause; they follow below."""
    others = (finding for finding in report.findings if finding.rule not in _CAUSES)
    return "; ".join(finding.title for finding in others if finding.severity is not Severity.INFO)


def _outputs(failure: Failure) -> tuple[LabelledText, ...]:
    note = _ASSUMED if failure.is_output_assumed else ""
    if not failure.stderr or failure.stderr == failure.stdout:
        return (LabelledText("Output", f"{failure.stdout}{note}" if failure.stdout else ""),)
    return (
        LabelledText("Output", f"{failure.stdout}{note}" if failure.stdout else ""),
        LabelledText("Error output", failure.stderr),
    )
