# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.render.formatting import LabelledText
from slurmscope.jobs.render.verdict import make_verdict
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from tests.fakes.reports import make_finding, make_record, make_report


def failed(state: str, rule: str = "", **changed: object) -> JobReport:
    """Make the report of a job in this state, with a finding that is its cause."""
    report = make_report(make_record(1, state=state, **changed))
    if not rule:
        return report
    cause = replace(report.findings[0], rule=rule, title="Title of the cause", severity=Severity.CRITICAL)
    return replace(report, findings=(*report.findings, cause))


def test_cause_and_its_finding_are_one() -> None:
    verdict = make_verdict(failed("TIMEOUT", "timed_out"))
    assert ("Title of the cause", Severity.CRITICAL) == (verdict.title, verdict.tone)
    assert "Title of the cause" not in [finding.title for finding in verdict.others]
    # Slurm's own sentence would say the same again.
    assert "Slurm ended the job at its time limit" not in " ".join(verdict.sentences)
    assert ["Output"] == [row.label for row in verdict.rows]


def test_failure_without_a_rule_is_named_by_what_happened() -> None:
    report = failed("FAILED", exit_code=127)
    verdict = make_verdict(report)
    assert "The job ended with exit code 127: command not found." == verdict.title
    assert Severity.CRITICAL == verdict.tone
    assert {finding.title for finding in report.findings} == {finding.title for finding in verdict.others}


def test_cancelled_job_is_no_failure_of_its_own() -> None:
    verdict = make_verdict(replace(failed("CANCELLED"), findings=()))
    assert "quiet" == verdict.tone
    assert verdict.title.startswith("The job was cancelled")


def test_worst_finding_is_first() -> None:
    verdict = make_verdict(make_report())
    assert "Title of cpu_idle" == verdict.title
    assert [] == [finding for finding in verdict.others if finding.title == verdict.title]


@pytest.mark.parametrize(("state", "tone"), [("COMPLETED", "fine"), ("RUNNING", "quiet")])
def test_job_without_findings_says_so(state: str, tone: str) -> None:
    verdict = make_verdict(
        replace(failed(state, end_seconds=None if state == "RUNNING" else 1_790_007_200), findings=())
    )
    assert tone == verdict.tone
    assert verdict.title.startswith("No findings")


def test_largest_task_is_named() -> None:
    report = failed("OUT_OF_MEMORY", "oom_kill")
    assert LabelledText("Output", "") not in make_verdict(report).rows


@pytest.mark.parametrize(
    ("state", "rule", "xid", "is_cause"),
    [
        ("FAILED", "gpu_fault", 79.0, True),
        ("FAILED", "gpu_fault", 45.0, False),
        ("CANCELLED", "gpu_fault", 79.0, False),
        ("CANCELLED", "gpu_stuck", 0.0, True),
        ("FAILED", "gpu_stuck", 0.0, False),
    ],
)
def test_gpu_that_ended_a_job_is_its_verdict(state: str, rule: str, xid: float, *, is_cause: bool) -> None:
    report = failed(state, rule, exit_code=1)
    *others, cause = report.findings
    verdict = make_verdict(replace(report, findings=(*others, replace(cause, numbers={"xid": xid}))))

    assert is_cause == (verdict.title == "Title of the cause")
    assert is_cause == (cause.title not in [finding.title for finding in verdict.others])
    assert "Output" in [row.label for row in verdict.rows]


@pytest.mark.parametrize(("state", "tone"), [("FAILED", Severity.CRITICAL), ("COMPLETED", Severity.WARNING)])
def test_cause_of_a_failure_is_as_red_as_any_other_failure(state: str, tone: Severity) -> None:
    report = make_report(make_record(1, state=state, exit_code=1 if state == "FAILED" else 0))
    fault = replace(make_finding("gpu_fault", severity=Severity.WARNING), numbers={"xid": 31.0})
    verdict = make_verdict(replace(report, findings=(fault,)))
    assert (tone, Severity.WARNING) == (verdict.tone, verdict.severity)


def test_failure_without_findings_says_that_there_are_none() -> None:
    verdict = make_verdict(replace(failed("FAILED", exit_code=1), findings=()))
    assert "No findings: what the job used does not explain why it failed." == verdict.sentences[-1]
