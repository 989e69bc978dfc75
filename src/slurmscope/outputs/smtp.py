# SPDX-License-Identifier: Apache-2.0
"""Hand mails to a mail server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from slurmscope.errors import OutputError
from slurmscope.log import escape

SUBMISSION_PORTS = {"none": 25, "starttls": 587, "tls": 465}
PASSWORD_LIMIT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Name a mail server, how to guard the connection, and who we are to it."""

    address: str
    tls: str = "none"
    user: str = ""
    password_file: Path | None = None
    timeout_seconds: float = 20.0

    def send(self, mail: EmailMessage) -> None:
        """Send one mail, or raise OutputError with what the server said."""
        recipient = escape(str(mail["To"]), 200)
        try:
            with self._connect() as server:
                refused = server.send_message(mail)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise OutputError(f"the mail to {recipient} was not sent by {self.address}: {_words(error)}") from error
        if refused:
            raise OutputError(f"{self.address} refused the mail to {recipient}")

    @contextmanager
    def _connect(self) -> Iterator[smtplib.SMTP]:
        host, port = _split(self.address, SUBMISSION_PORTS[self.tls])
        context = ssl.create_default_context()
        if self.tls == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=self.timeout_seconds, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=self.timeout_seconds)
        with server:
            if self.tls == "starttls":
                server.starttls(context=context)
            if self.user and self.password_file:
                server.login(self.user, _read_password(self.password_file))
            yield server


def _split(address: str, default_port: int) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return address.strip("[]"), default_port
    return host.strip("[]"), int(port)


def _read_password(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(PASSWORD_LIMIT_BYTES).decode("utf-8").strip()


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        return escape(f"{error.smtp_code} {said.decode('utf-8', 'replace') if isinstance(said, bytes) else said}", 300)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the address is not known there"
    return escape(getattr(error, "strerror", None) or str(error) or type(error).__name__, 300)
