# SPDX-License-Identifier: Apache-2.0
"""Address and write mails about jobs."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import EmailMessage
from urllib.parse import quote

from slurmscope.errors import ConfigError
from slurmscope.model.report import JobReport
from slurmscope.outputs.smtp import MailServer
from slurmscope.portal.views.page_paths import array_path, job_path, shown_cluster
from slurmscope.reports.formatting import show
from slurmscope.reports.mail import make_mail, start_mail
from slurmscope.services.reporting.settings import MailSettings

NOTICE_LIMIT = 1000


def open_mail_server(settings: MailSettings) -> MailServer:
    """Return the configured mail server; nothing is sent yet."""
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
    """Return the mail address of a user; an address is returned as it is."""
    return user if "@" in user or not settings.domain else f"{user}@{settings.domain}"


def page_of(kind: str, name: str, settings: MailSettings) -> str:
    """Return the address of a page of the portal, or an empty text without a portal."""
    return f"{settings.portal_url.rstrip('/')}/{kind}/{quote(name, safe='+')}" if settings.portal_url else ""


def link_to(report: JobReport, settings: MailSettings, clusters: Sequence[str] = (), *, chosen: str = "") -> str:
    """Return the address of a job's page in the portal, or an empty text without a portal.

    ``clusters`` are those of the archive: among several, the address names that of the job. It names ``chosen``, the
    cluster that the user chose, in any case.
    """
    record = report.record
    path = job_path(record.shown_id, chosen or shown_cluster(record.cluster, clusters))
    return f"{settings.portal_url.rstrip('/')}{path}" if settings.portal_url else ""


def link_to_array(array_id: str, cluster: str, settings: MailSettings, clusters: Sequence[str] = ()) -> str:
    """Return the address of the page of an array, as :func:`link_to` that of a job."""
    path = array_path(array_id, shown_cluster(cluster, clusters))
    return f"{settings.portal_url.rstrip('/')}{path}" if settings.portal_url else ""


def write_report_mail(
    report: JobReport, settings: MailSettings, *, recipient: str = "", clusters: Sequence[str] = ()
) -> EmailMessage:
    """Write the mail about a job, by default to its owner; ``clusters`` are those of the archive."""
    address = address_of(recipient or report.record.user, settings)
    return make_mail(report, sender=settings.sender, recipient=address, url=link_to(report, settings, clusters))


def write_notice(subject: str, more: str, settings: MailSettings, *, recipient: str) -> EmailMessage:
    """Write Slurm's own notice about a job, without a report; ``more`` is a sentence below it, such as the reason."""
    mail = start_mail(sender=settings.sender, recipient=address_of(recipient, settings), subject=subject)
    notice = show(" ".join(subject.split()), NOTICE_LIMIT)
    mail.set_content(f"{notice}\n\n{show(more, NOTICE_LIMIT)}\n" if more else f"{notice}\n")
    return mail
