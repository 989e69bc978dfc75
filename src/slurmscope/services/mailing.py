# SPDX-License-Identifier: Apache-2.0
"""Send mails about jobs, to the people whose jobs they are."""

from __future__ import annotations

from slurmscope.model.report import JobReport
from slurmscope.outputs.smtp import MailServer
from slurmscope.reports.mail import make_mail, start_mail
from slurmscope.services.report_settings import MailSettings


def open_mail_server(settings: MailSettings) -> MailServer:
    """Return the server that the settings name; nothing is sent yet."""
    return MailServer(
        address=settings.server,
        tls=settings.tls,
        user=settings.user,
        password_file=settings.password_file,
        timeout_seconds=settings.timeout,
    )


def address_of(user: str, settings: MailSettings) -> str:
    """Return where somebody gets mails; an address is taken as it is."""
    return user if "@" in user or not settings.domain else f"{user}@{settings.domain}"


def link_to(report: JobReport, settings: MailSettings) -> str:
    """Return the page of a job in the portal, or an empty text where there is none."""
    return f"{settings.portal_url.rstrip('/')}/jobs/{report.record.shown_id}" if settings.portal_url else ""


def send_report(report: JobReport, settings: MailSettings, *, recipient: str = "") -> str:
    """Mail a report, to its owner unless told otherwise, and return the address."""
    address = address_of(recipient or report.record.user, settings)
    mail = make_mail(report, sender=settings.sender, recipient=address, url=link_to(report, settings))
    open_mail_server(settings).send(mail)
    return address


def send_notice(subject: str, problem: str, settings: MailSettings, *, recipient: str) -> None:
    """Mail what Slurm told about a job, without a report; ``problem`` says why there is none."""
    mail = start_mail(sender=settings.sender, recipient=address_of(recipient, settings), subject=subject)
    told = " ".join(subject.split())
    mail.set_content(f"{told}\n" + (f"\nThere is no report about it: {problem}\n" if problem else ""))
    open_mail_server(settings).send(mail)
