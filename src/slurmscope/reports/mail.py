# SPDX-License-Identifier: Apache-2.0
"""Make the mail about one job: text and HTML, with the PDF attached.

Date and Message-ID are added when the mail is sent.
"""

from __future__ import annotations

import re
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, getaddresses

from slurmscope.errors import OutputError
from slurmscope.log import escape
from slurmscope.model.report import JobReport
from slurmscope.reports.formatting import show
from slurmscope.reports.html import render_mail_html
from slurmscope.reports.pdf import render_pdf
from slurmscope.reports.seed import warning_line
from slurmscope.reports.text import render_text

MAIL_WIDTH = 76

# A bare user name is an address on this machine. No address begins with a dash: sendmail would parse it as an option.
_ADDRESS = re.compile(r"[A-Za-z0-9_.+=%&'/~^][A-Za-z0-9_.+=%&'/~^-]{0,127}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?\Z")
_SUBJECT_LIMIT = 200
_NOT_IN_FILE_NAME = re.compile(r"[^A-Za-z0-9_.+-]")


def make_mail(report: JobReport, *, sender: str, recipient: str, url: str = "") -> EmailMessage:
    """Make a mail whose plain text ends with WARNING=true or WARNING=false."""
    record = report.record
    mail = start_mail(
        sender=sender,
        recipient=recipient,
        subject=f"{record.cluster} job {record.shown_id} {show(record.name, 80)}: {record.state}",
    )
    mail.set_content(f"{render_text(report, width=MAIL_WIDTH, url=url)}\n{warning_line(report)}\n")
    mail.add_alternative(render_mail_html(report, url=url), subtype="html")
    name = _NOT_IN_FILE_NAME.sub("_", f"{record.shown_id}_summary.pdf")
    mail.add_attachment(render_pdf(report), maintype="application", subtype="pdf", filename=name)
    return mail


def start_mail(*, sender: str, recipient: str, subject: str) -> EmailMessage:
    """Make an empty mail, safe from header injection."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = check_address(sender)
    mail["To"] = check_address(recipient)
    mail["Subject"] = show(" ".join(subject.split()), _SUBJECT_LIMIT)
    # Keeps vacation notices and other robots from answering.
    mail["Auto-Submitted"] = "auto-generated"
    return mail


def check_address(text: str) -> str:
    """Return one mail address, with a display name if it has one; raise an OutputError otherwise."""
    found = getaddresses([text]) if text.isprintable() else []
    if len(found) != 1 or not _ADDRESS.match(found[0][1]):
        raise OutputError(f"{escape(text, 100)!r} is not one mail address")
    name, address = found[0]
    return formataddr((name, address)) if name else address
