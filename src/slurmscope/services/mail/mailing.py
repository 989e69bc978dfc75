# SPDX-License-Identifier: Apache-2.0
"""Send mails about jobs, to the people whose jobs they are."""

from __future__ import annotations

from email.message import EmailMessage
from urllib.parse import quote

from slurmscope.errors import ConfigError
from slurmscope.model.report import JobReport
from slurmscope.outputs.smtp import MailServer
from slurmscope.reports.mail import make_mail, start_mail
from slurmscope.reports.words import show
from slurmscope.services.reporting.settings import MailSettings

NOTICE_LIMIT = 1000


def open_mail_server(settings: MailSettings) -> MailServer:
    """Return the server that the settings name; nothing is sent yet."""
    if settings.user and settings.password_file is None:
        raise ConfigError("--mail.user needs --mail.password-file")
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


def page_of(kind: str, name: str, settings: MailSettings) -> str:
    """Return a page of the portal, such as that of a user, or an empty text where there is no portal."""
    return f"{settings.portal_url.rstrip('/')}/{kind}/{quote(name, safe='+')}" if settings.portal_url else ""


def link_to(report: JobReport, settings: MailSettings) -> str:
    """Return the page of a job in the portal, or an empty text where there is none."""
    return page_of("jobs", report.record.shown_id, settings)


def write_report_mail(report: JobReport, settings: MailSettings, *, recipient: str = "") -> EmailMessage:
    """Write the mail about a job, to its owner unless told otherwise."""
    address = address_of(recipient or report.record.user, settings)
    return make_mail(report, sender=settings.sender, recipient=address, url=link_to(report, settings))


def write_notice(subject: str, more: str, settings: MailSettings, *, recipient: str) -> EmailMessage:
    """Write what Slurm told about a job, without a report; ``more`` is a sentence below it, such as why."""
    mail = start_mail(sender=settings.sender, recipient=address_of(recipient, settings), subject=subject)
    told = show(" ".join(subject.split()), NOTICE_LIMIT)
    mail.set_content(f"{told}\n\n{show(more, NOTICE_LIMIT)}\n" if more else f"{told}\n")
    return mail
