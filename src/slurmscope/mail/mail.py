# SPDX-License-Identifier: Apache-2.0
"""Send mails through a mail server, with one timeout for the whole SMTP session.

Date and Message-ID are added when the mail is sent.
"""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, getaddresses, make_msgid, parseaddr
from pathlib import Path
from urllib.parse import quote

from slurmscope.core.config import read_password
from slurmscope.core.errors import ConfigError, OutputError
from slurmscope.core.log import escape
from slurmscope.jobs.render.compat import warning_line
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.html import render_mail_html
from slurmscope.jobs.render.pdf import render_pdf
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.reports.settings import MailSettings, link_to

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
    # The email package decodes what looks like an encoded word, "=?utf-8?q?x=0D=0ABcc=3A...?=", also its line breaks.
    mail["Subject"] = show(" ".join(subject.split()), _SUBJECT_LIMIT).replace("=?", "= ?")
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


SUBMISSION_PORTS = {"none": 25, "starttls": 587, "tls": 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """The address, encryption and credentials of a mail server; ``clock`` sets the date of mails."""

    address: str
    tls: str = "none"
    user: str = ""
    password_file: Path | None = None
    timeout_seconds: float = 20.0
    clock: Callable[[], float] = time.time

    def send(self, mail: EmailMessage) -> None:
        """Set the date and message id of a mail and send it; raise OutputError with the response of the server."""
        password = self._read_password()
        stamped = _stamp(mail, self.clock())
        deadline = _Deadline(self.timeout_seconds)
        try:
            with deadline, self._connect(deadline, password) as server:
                server.send_message(stamped)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            reason = f"no answer within {self.timeout_seconds:g} seconds" if deadline.has_passed else _reason(error)
            recipient = escape(str(mail["To"]), 200)
            raise OutputError(f"cannot send the mail to {recipient} through {self.address}: {reason}") from error

    @contextmanager
    def _connect(self, deadline: _Deadline, password: str) -> Iterator[smtplib.SMTP]:
        host, port = _split(self.address, SUBMISSION_PORTS[self.tls])
        context = ssl.create_default_context()
        server: smtplib.SMTP
        if self.tls == "tls":
            server = _WatchedTls(deadline, host, port, timeout=self.timeout_seconds, context=context)
        else:
            server = _Watched(deadline, host, port, timeout=self.timeout_seconds)
        try:
            if self.tls == "starttls":
                server.starttls(context=context)
            if password:
                server.login(self.user, password)
            yield server
            # The mail is accepted by now: a failure at the end does not matter.
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.quit()
        finally:
            server.close()

    def _read_password(self) -> str:
        if not self.user or self.password_file is None:
            return ""
        if self.tls == "none" and not _is_loopback(_split(self.address, 0)[0]):
            raise OutputError(f"the password for {self.address} is only sent over TLS; set --mail.tls")
        try:
            return read_password(self.password_file)
        except ConfigError as error:
            raise OutputError(str(error)) from error


class _Deadline:
    """Cut a connection after a timeout.

    The timeout of smtplib is per read: a server that sends one byte now and then would never time out.
    """

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def watch(self, connection: socket.socket | None) -> None:
        """Set the connection to cut; it is cut at once if the timeout has passed already."""
        with self._lock:
            self._connection = connection
            if self.has_passed:
                self._shut()

    def _cut(self) -> None:
        with self._lock:
            self.has_passed = True
            self._shut()

    def _shut(self) -> None:
        if self._connection is not None:
            # Not the method of a TLS socket: that one would continue in clear text.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


class _Watched(smtplib.SMTP):
    """Wait for every reply under a deadline, including the first one, which the constructor reads."""

    def __init__(self, deadline: _Deadline, host: str, port: int, *, timeout: float) -> None:
        self._deadline = deadline
        super().__init__(host, port, timeout=timeout)

    def getreply(self) -> tuple[int, bytes]:
        """Pass the connection, which TLS may have replaced, to the deadline, then wait."""
        self._deadline.watch(self.sock)
        return super().getreply()


class _WatchedTls(smtplib.SMTP_SSL):
    """Do the same with TLS from the start."""

    def __init__(self, deadline: _Deadline, host: str, port: int, *, timeout: float, context: ssl.SSLContext) -> None:
        self._deadline = deadline
        super().__init__(host, port, timeout=timeout, context=context)

    def getreply(self) -> tuple[int, bytes]:
        """Pass the connection to the deadline, then wait."""
        self._deadline.watch(self.sock)
        return super().getreply()


def _stamp(mail: EmailMessage, now_seconds: float) -> EmailMessage:
    """Return a copy with a date and a message id, as mail servers expect them."""
    stamped = copy.deepcopy(mail)
    del stamped["Date"], stamped["Message-ID"]
    stamped["Date"] = datetime.fromtimestamp(now_seconds, UTC)
    # The sender's domain, not this host's: looking up the latter may wait for a name server.
    domain = parseaddr(str(mail["From"]))[1].rpartition("@")[2]
    stamped["Message-ID"] = make_msgid(domain=domain or "localhost")
    return stamped


def _split(address: str, default_port: int) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return address.strip("[]"), default_port
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        # There is one recipient.
        code, reply = next(iter(error.recipients.values()))
        return _format_reply(code, reply)
    if isinstance(error, smtplib.SMTPResponseException):
        return _format_reply(error.smtp_code, error.smtp_error)
    return escape(getattr(error, "strerror", None) or str(error) or type(error).__name__, 300)


def _format_reply(code: int, text: bytes | str) -> str:
    return escape(f"{code} {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}", 300)


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


def describe_mail(mail: EmailMessage) -> str:
    """Return what would be sent, and to whom, as text that is safe on a terminal."""
    text = mail.get_body(("plain",))
    attached = [show(part.get_filename() or part.get_content_type(), 200) for part in mail.iter_attachments()]
    has_html = mail.get_body(("html",)) is not None
    lines = [
        *(f"{name}: {show(' '.join(str(mail[name]).split()))}" for name in ("From", "To", "Subject")),
        f"Also attached: {', '.join([*(['the report as HTML'] if has_html else []), *attached])}"
        if has_html or attached
        else "Nothing is attached.",
        "",
        *(show(line) for line in (text.get_content() if text else "").splitlines()),
    ]
    return "\n".join(lines)


def address_of(user: str, settings: MailSettings) -> str:
    return user if "@" in user or not settings.domain else f"{user}@{settings.domain}"


def page_of(kind: str, name: str, settings: MailSettings) -> str:
    """Return the address of a page of the portal, or an empty text without a portal."""
    return f"{settings.portal_url.rstrip('/')}/{kind}/{quote(name, safe='+')}" if settings.portal_url else ""


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
