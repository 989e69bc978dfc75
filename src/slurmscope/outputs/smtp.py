# SPDX-License-Identifier: Apache-2.0
"""Hand mails to a mail server, within one time limit for the whole conversation."""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import make_msgid, parseaddr
from pathlib import Path

from slurmscope.errors import OutputError
from slurmscope.log import escape

SUBMISSION_PORTS = {"none": 25, "starttls": 587, "tls": 465}
PASSWORD_LIMIT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Name a mail server, how to guard the connection, and who we are to it; ``clock`` dates the mails."""

    address: str
    tls: str = "none"
    user: str = ""
    password_file: Path | None = None
    timeout_seconds: float = 20.0
    clock: Callable[[], float] = time.time

    def send(self, mail: EmailMessage) -> None:
        """Date and number one mail, send it, or raise OutputError with what the server said."""
        password = self._read_password()
        stamped = _stamp(mail, self.clock())
        deadline = _Deadline(self.timeout_seconds)
        try:
            with deadline, self._connect(deadline, password) as server:
                server.send_message(stamped)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            told = f"no answer within {self.timeout_seconds:g} seconds" if deadline.has_passed else _words(error)
            recipient = escape(str(mail["To"]), 200)
            raise OutputError(f"the mail to {recipient} was not sent by {self.address}: {told}") from error

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
            # The mail is taken by now: how the server says goodbye changes nothing.
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.quit()
        finally:
            server.close()

    def _read_password(self) -> str:
        if not self.user or self.password_file is None:
            return ""
        if self.tls == "none" and not _is_loopback(_split(self.address, 0)[0]):
            raise OutputError(f"the password for {self.address} is only sent over TLS: set --mail.tls")
        try:
            with self.password_file.open("rb") as file:
                return file.read(PASSWORD_LIMIT_BYTES).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise OutputError(f"the password file {self.password_file} could not be read: {reason}") from error


class _Deadline:
    """Cut a connection when its time is up.

    The limit of smtplib is for each wait, and a server that sends one byte now and then is waited for without end.
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
        """Say which connection is to be cut; it is cut at once when it is late already."""
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
            # Not the method of a TLS socket: that one would go on in clear text.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


class _Watched(smtplib.SMTP):
    """Wait for every answer under a deadline; the first one is waited for while this is being made."""

    def __init__(self, deadline: _Deadline, host: str, port: int, *, timeout: float) -> None:
        self._deadline = deadline
        super().__init__(host, port, timeout=timeout)

    def getreply(self) -> tuple[int, bytes]:
        """Name the connection, which TLS may have replaced, then wait."""
        self._deadline.watch(self.sock)
        return super().getreply()


class _WatchedTls(smtplib.SMTP_SSL):
    """Do the same over TLS from the start."""

    def __init__(self, deadline: _Deadline, host: str, port: int, *, timeout: float, context: ssl.SSLContext) -> None:
        self._deadline = deadline
        super().__init__(host, port, timeout=timeout, context=context)

    def getreply(self) -> tuple[int, bytes]:
        """Name the connection, then wait."""
        self._deadline.watch(self.sock)
        return super().getreply()


def _stamp(mail: EmailMessage, now_seconds: float) -> EmailMessage:
    """Return a copy with a date and a number of its own, as mail servers expect them."""
    stamped = copy.deepcopy(mail)
    del stamped["Date"], stamped["Message-ID"]
    stamped["Date"] = datetime.fromtimestamp(now_seconds, UTC)
    # The sender's domain, not this host's: asking for the latter may wait for a name server.
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


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        # There is one recipient.
        code, said = next(iter(error.recipients.values()))
        return _said(code, said)
    if isinstance(error, smtplib.SMTPResponseException):
        return _said(error.smtp_code, error.smtp_error)
    return escape(getattr(error, "strerror", None) or str(error) or type(error).__name__, 300)


def _said(code: int, text: bytes | str) -> str:
    return escape(f"{code} {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}", 300)
