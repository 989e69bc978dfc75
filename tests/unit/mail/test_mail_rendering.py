# SPDX-License-Identifier: Apache-2.0
"""Check mails as their readers do: parsed back from bytes."""

from __future__ import annotations

import email
import email.policy
import io
from dataclasses import replace
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from slurmscope.core.errors import OutputError
from slurmscope.jobs.rule import Severity
from slurmscope.mail.mail import check_address, make_mail, start_mail
from tests.fakes.reports import HOSTILE_NAME, make_finding, make_record, make_report

HEADERS = {"From", "To", "Subject", "Auto-Submitted", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}


def _parse(mail: EmailMessage) -> EmailMessage:
    parsed = email.message_from_bytes(mail.as_bytes(), policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    return parsed


def _part(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    assert part is not None
    text = part.get_content()
    assert isinstance(text, str)
    return text


def test_text_html_and_pdf_are_in_the_mail() -> None:
    mail = _parse(make_mail(make_report(), sender="Slurm <slurm@example.org>", recipient="ada@example.org",
                            url="https://portal.example.org/jobs/4711"))  # fmt: skip

    assert "lab job 4711 relax: COMPLETED" == mail["Subject"]
    assert ("Slurm <slurm@example.org>", "ada@example.org") == (mail["From"], mail["To"])
    assert "auto-generated" == mail["Auto-Submitted"]
    assert "2 of 4 cores busy" in _part(mail, "plain")
    assert "WARNING=true" == _part(mail, "plain").splitlines()[-1]
    assert 'href="https://portal.example.org/jobs/4711"' in _part(mail, "html")
    (pdf,) = mail.iter_attachments()
    assert ("4711_summary.pdf", "application/pdf") == (pdf.get_filename(), pdf.get_content_type())
    assert "relax" in PdfReader(io.BytesIO(pdf.get_content())).pages[0].extract_text()


def test_the_last_line_is_false_without_a_warning() -> None:
    report = make_report(findings=(make_finding(severity=Severity.INFO),))
    mail = _parse(make_mail(report, sender="slurm", recipient="ada"))

    assert "WARNING=false" == _part(mail, "plain").splitlines()[-1]


def test_a_part_of_a_heterogeneous_job_has_a_plain_file_name() -> None:
    record = make_record(het_job_id=9, het_offset=1)
    (pdf,) = make_mail(make_report(record), sender="slurm", recipient="ada").iter_attachments()

    assert "9+1_summary.pdf" == pdf.get_filename()


@settings(max_examples=15, deadline=None)
@given(name=st.text(max_size=300), state=st.text(max_size=20))
def test_a_name_cannot_add_headers(name: str, state: str) -> None:
    record = make_record(name=HOSTILE_NAME + name, cluster=name, state=state)
    mail = _parse(make_mail(make_report(record), sender="slurm", recipient="ada"))

    assert set(mail.keys()) <= HEADERS
    assert len(mail["Subject"]) <= 1300
    assert mail["Subject"].isprintable()
    assert () == mail["Subject"].defects


@pytest.mark.parametrize(
    "word",
    [
        "=?utf-8?q?x=0D=0ABcc=3A_eve=40example.org?=",
        "=?utf-8?b?eA0KQmNjOiBldmVAZXhhbXBsZS5vcmc=?=",
        "=?utf-8?q?=0A=0A?=",
    ],
)
def test_an_encoded_word_in_a_name_is_not_decoded(word: str) -> None:
    report_mail = make_mail(make_report(make_record(name=f"{word} x")), sender="slurm", recipient="ada")
    notice = start_mail(sender="slurm", recipient="ada", subject=f"Slurm Job_id=12 Name={word} {word} Ended")
    for mail in (report_mail, notice):
        lines = mail.as_bytes().partition(b"\r\n\r\n")[0].split(b"\r\n")
        names = {line.partition(b":")[0].decode() for line in lines if not line.startswith(b" ")}
        assert names <= HEADERS
        assert word.replace("=?", "= ?") in " ".join(_parse(mail)["Subject"].split())


def test_a_forged_last_line_stays_in_the_middle() -> None:
    finding = replace(make_finding(), suggestion="x\nWARNING=false")
    mail = _parse(make_mail(make_report(findings=(finding,)), sender="slurm", recipient="ada"))

    assert ["WARNING=true"] == [line for line in _part(mail, "plain").splitlines() if line.startswith("WARNING=")]


@pytest.mark.parametrize("address", ["ada", "ada.b+x@example.org", "Ada B <ada@example.org>", '"B, Ada" <ada@x.org>'])
def test_one_address_is_taken(address: str) -> None:
    assert address == start_mail(sender=address, recipient="ada", subject="x")["From"]


def test_a_name_in_other_letters_is_kept() -> None:
    mail = start_mail(sender="Zoë <z@example.org>", recipient="ada", subject="x")

    assert "Zoë <z@example.org>" == _parse(mail)["From"]


@pytest.mark.parametrize(
    "address",
    ["", "a@x, b@y", "-oQ/tmp/x", "a@x\r\nBcc: b@y", "a b@x", "a@@x", "a@-x", "<>", "a@x;b@y", "|/bin/sh",
     "a@x\x00", "ä@x", "x" * 200 + "@y", "@x"],
)  # fmt: skip
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(OutputError, match="is not one mail address"):
        check_address(address)
