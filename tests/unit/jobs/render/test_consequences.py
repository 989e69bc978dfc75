# SPDX-License-Identifier: Apache-2.0
"""What follows from a finding is shown under it in every rendering, and is counted in no list."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pypdf import PdfReader

from slurmscope.archive.job_rows import finding_values, job_values
from slurmscope.archive.stored_reports import decode_report, encode_report
from slurmscope.jobs.render import contents, verdict
from slurmscope.jobs.render.compat import render_seed_text
from slurmscope.jobs.render.html import render_html, render_mail_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.pdf import render_pdf
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.mail.mail import make_mail
from slurmscope.portal.job_view import make_job_view
from slurmscope.run.render import render_run_html, render_run_text
from tests.fakes.reports import HOSTILE_NAME, make_finding, make_report
from tests.unit.jobs.render.test_run_reports import report_on

CONSEQUENCE = Finding(
    rule="memory_over_requested",
    severity=Severity.CRITICAL,
    subject=Subject.MEMORY,
    title="Much of the requested memory was not needed",
    explanation="The job requested 64 GiB and needed 6 GiB.",
    advice="",
)


def report_with(*consequences: Finding) -> JobReport:
    cause = make_finding("node_imbalance", Subject.NODES, Severity.WARNING)
    return replace(make_report(), findings=(replace(cause, consequences=consequences),))


def read_pdf(report: JobReport) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(render_pdf(report))).pages)


def read_mail(report: JobReport) -> str:
    body = make_mail(report, sender="a@example.org", recipient="b@example.org").get_body(("plain",))
    assert body is not None
    return str(body.get_content())


RENDERINGS: dict[str, Callable[[JobReport], str]] = {
    "text": render_text,
    "html": render_html,
    "mail": read_mail,
    "mail html": render_mail_html,
    "pdf": read_pdf,
    "seed": render_seed_text,
    "run text": lambda report: render_run_text(replace(report_on(), report=report)),
    "run html": lambda report: render_run_html(replace(report_on(), report=report)),
}


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_consequence_is_shown_under_its_cause(rendering: str) -> None:
    render = RENDERINGS[rendering]
    text = " ".join(render(report_with(CONSEQUENCE)).split())

    cause, heading, explanation = (
        text.find(part) for part in ("Title of node_imbalance", contents.CONSEQUENCES, "requested 64 GiB and needed")
    )
    assert 0 <= cause < heading < explanation
    assert contents.CONSEQUENCES not in render(report_with())


def test_consequence_from_outside_is_made_safe() -> None:
    (finding,) = verdict.findings(report_with(replace(CONSEQUENCE, title=HOSTILE_NAME)))

    assert "\x1b" not in finding.consequences[0].title


def test_json_and_archive_keep_consequences() -> None:
    report = report_with(CONSEQUENCE)
    (plain,) = json.loads(render_json(report))["findings"]

    assert [("memory_over_requested", "critical", [])] == [
        (each["rule"], each["severity"], each["consequences"]) for each in plain["consequences"]
    ]
    assert report.findings == decode_report(*encode_report(report)).findings


def test_consequence_is_not_counted_as_a_finding() -> None:
    report = report_with(CONSEQUENCE)
    values = job_values(report)

    assert ("node_imbalance", "warning") == (values["rules"], values["worst"])
    assert ["node_imbalance"] == [row["rule"] for row in finding_values(report, values, 1)]


def test_charts_are_marked_with_the_severity_of_a_consequence_about_their_resource() -> None:
    marks = make_job_view(report_with(CONSEQUENCE), ()).subjects

    assert {Subject.MEMORY: Severity.CRITICAL, Subject.NODES: Severity.WARNING} == marks
