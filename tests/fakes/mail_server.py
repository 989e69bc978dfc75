# SPDX-License-Identifier: Apache-2.0
"""Run a mail server on the loopback interface with aiosmtpd that stores mails."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

PATIENCE_SECONDS = 60


@dataclass
class Mailbox:
    """Store mails; addresses in ``refused`` get the response given there."""

    refused: dict[str, str] = field(default_factory=dict)
    users: dict[bytes, bytes] = field(default_factory=dict)
    recipients: list[str] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)
    was_tls: list[bool] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    address: str = ""

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd looks for
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept or refuse an address."""
        del server, session, options
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Store a mail."""
        del session
        assert server.transport is not None
        self.was_tls.append(server.transport.get_extra_info("sslcontext") is not None)
        self.recipients += envelope.rcpt_tos
        content = envelope.content
        assert isinstance(content, bytes)
        made: Any = email.message_from_bytes(content, policy=email.policy.default)
        self.mails.append(made)
        return "250 OK"

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        """Authenticate known users."""
        del server, session, envelope, mechanism
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        is_known = self.users.get(data.login) == data.password
        return AuthResult(success=is_known, handled=False)


@contextmanager
def mail_server(
    mailbox: Mailbox, *, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Mailbox]:
    """Serve a mailbox on a free port until the block ends; at its ``address``."""
    loop = asyncio.new_event_loop()
    login: dict[str, Any] = {"authenticator": mailbox.authenticate} if mailbox.users else {}

    def make() -> SMTP:
        return SMTP(
            mailbox,
            hostname="mail.test",
            tls_context=starttls,
            require_starttls=starttls is not None,
            auth_require_tls=starttls is not None,
            loop=loop,
            **login,
        )

    server = loop.run_until_complete(loop.create_server(make, "127.0.0.1", 0, ssl=tls))
    mailbox.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield mailbox
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


async def _close(server: asyncio.Server) -> None:
    """Close connections that are still open."""
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)


def body_of(mail: EmailMessage, kind: str = "plain") -> str:
    """Return the text of a mail."""
    part = mail.get_body((kind,))
    assert part is not None
    content = part.get_content()
    assert isinstance(content, str)
    return content.replace("\r\n", "\n")
