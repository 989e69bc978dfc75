# SPDX-License-Identifier: Apache-2.0
"""Check where mails about jobs go and what they link to."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.mail.mail import (
    address_of,
    open_mail_server,
    page_of,
    write_notice,
    write_report_mail,
)
from slurmscope.reports.settings import MailSettings, link_to, link_to_array
from tests.fakes.mail_server import body_of
from tests.fakes.reports import HOSTILE_NAME, make_record, make_report

SITE = MailSettings(domain="example.org", portal_url="https://jobs.example.org/")


@pytest.mark.parametrize(
    ("user", "domain", "address"),
    [
        ("ada", "example.org", "ada@example.org"),
        ("ada", "", "ada"),
        ("ada@elsewhere.org", "example.org", "ada@elsewhere.org"),
    ],
)
def test_user_gets_mail_at_the_domain_of_the_site(user: str, domain: str, address: str) -> None:
    assert address == address_of(user, MailSettings(domain=domain))


def test_link_leads_to_the_page_of_the_job() -> None:
    task = make_report(make_record(14, array_job_id=12, array_task_id=2))
    part = make_report(make_record(15, het_job_id=14, het_offset=1))

    assert "https://jobs.example.org/jobs/12_2" == link_to(task, SITE)
    assert "https://jobs.example.org/jobs/14+1" == link_to(part, SITE)
    assert "" == link_to(task, MailSettings())


def test_link_names_the_cluster_if_the_archive_has_several() -> None:
    report = make_report(make_record(14, cluster="beta"))

    assert "https://jobs.example.org/jobs/14" == link_to(report, SITE, ["beta"])
    assert "https://jobs.example.org/jobs/beta/14" == link_to(report, SITE, ["alpha", "beta"])
    assert "https://jobs.example.org/jobs/14" == link_to(report, SITE, [])
    assert "https://jobs.example.org/arrays/beta/14" == link_to_array("14", "beta", SITE, ["alpha", "beta"])
    assert "https://jobs.example.org/arrays/14" == link_to_array("14", "", SITE, ["alpha", "beta"])
    assert "" == link_to_array("14", "beta", MailSettings(), ["alpha", "beta"])
    mail = write_report_mail(report, SITE, clusters=["alpha", "beta"])
    assert "https://jobs.example.org/jobs/beta/14" in body_of(mail)


def test_name_in_a_link_cannot_leave_its_place() -> None:
    assert "https://jobs.example.org/users/a%2Fb%3Fc%23d%20e" == page_of("users", "a/b?c#d e", SITE)


def test_report_goes_to_the_owner_by_default() -> None:
    assert "ada@example.org" == write_report_mail(make_report(), SITE)["To"]
    assert "staff@example.org" == write_report_mail(make_report(), SITE, recipient="staff@example.org")["To"]


def test_notice_says_what_slurm_said_and_why_there_is_no_report() -> None:
    mail = write_notice("Slurm Job_id=12 Name=x Ended", "There is no report.", SITE, recipient="ada")

    assert ("Slurm Job_id=12 Name=x Ended", "ada@example.org") == (mail["Subject"], mail["To"])
    assert "Slurm Job_id=12 Name=x Ended\n\nThere is no report.\n" == body_of(mail)


def test_notice_alone_is_one_line() -> None:
    assert "Slurm Job_id=12 Name=x Began\n" == body_of(
        write_notice("Slurm Job_id=12 Name=x Began", "", SITE, recipient="ada")
    )


def test_hostile_name_adds_no_header_and_no_escape_code_to_a_notice() -> None:
    mail = write_notice(f"Slurm Job_id=12 Name={HOSTILE_NAME} Began", "", SITE, recipient="ada")

    assert (None, 1) == (mail["Bcc"], len(mail.get_all("Subject", [])))
    assert "\x1b" not in mail.as_string()
    assert "\x1b" not in body_of(mail)
    assert 1 == body_of(mail).count("\n")


def test_user_of_the_mail_server_needs_a_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--mail\.password-file"):
        open_mail_server(MailSettings(user="robot"))

    server = open_mail_server(MailSettings(user="robot", password_file=tmp_path / "password", timeout=3.0))
    assert ("robot", tmp_path / "password", 3.0) == (server.user, server.password_file, server.timeout_seconds)
