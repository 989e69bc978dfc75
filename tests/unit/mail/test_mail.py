# SPDX-License-Identifier: Apache-2.0
"""Check the mail client against a real mail server, and against servers that hang, drip and lie."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO

import pytest

from slurmscope.core.errors import OutputError
from slurmscope.mail.mail import SUBMISSION_PORTS, MailServer, _split
from tests.fakes.certificates import Identity, make_authority, make_identity
from tests.fakes.mail_server import PATIENCE_SECONDS, Mailbox, body_of, mail_server

NOON = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC, by date -u -d @1790000000
DRIP_SECONDS = 0.2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_authority(tmp_path_factory.mktemp("authority"), "mails")


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory, authority: Identity) -> ssl.SSLContext:
    identity = make_identity(tmp_path_factory.mktemp("server"), "server", authority, "IP:127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.cert, identity.key)
    return context


@pytest.fixture
def trusted(authority: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process trust the authority, as a site does for its own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("sesame\n")
    return path


def _mail(recipient: str = "ada@example.org") -> EmailMessage:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = "Cluster <slurmscope@cluster.example.org>"
    mail["To"] = recipient
    mail["Subject"] = "Jöb 12"
    mail.set_content("Grüße\n.\nnot the end\n")
    return mail


def test_mail_arrives_as_it_was_written() -> None:
    with mail_server(Mailbox()) as mailbox:
        MailServer(address=mailbox.address).send(_mail())

    (mail,) = mailbox.mails
    assert ["ada@example.org"] == mailbox.recipients
    assert ("Jöb 12", "ada@example.org") == (mail["Subject"], mail["To"])
    assert "Grüße\n.\nnot the end\n" == body_of(mail)
    assert [False] == mailbox.was_tls


def test_mail_gets_the_date_and_a_number_of_its_own() -> None:
    mail = _mail()
    with mail_server(Mailbox()) as mailbox:
        server = MailServer(address=mailbox.address, clock=lambda: NOON)
        server.send(mail)
        server.send(mail)

    first, second = mailbox.mails
    assert "2026-09-21T14:13:20+00:00" == parsedate_to_datetime(first["Date"]).isoformat()
    assert first["Message-ID"].endswith("@cluster.example.org>")
    assert first["Message-ID"] != second["Message-ID"]
    assert (1, 1) == (len(second.get_all("Date", [])), len(second.get_all("Message-ID", [])))
    # What was given is not changed.
    assert (None, None) == (mail["Date"], mail["Message-ID"])


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_mail_goes_over_tls(tls: str, server_context: ssl.SSLContext) -> None:
    offered = {"starttls": server_context} if tls == "starttls" else {"tls": server_context}
    with mail_server(Mailbox(), **offered) as mailbox:
        MailServer(address=mailbox.address, tls=tls).send(_mail())

    assert ([True], ["ada@example.org"]) == (mailbox.was_tls, mailbox.recipients)


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_server_with_an_untrusted_certificate_gets_no_mail(tls: str, server_context: ssl.SSLContext) -> None:
    offered = {"starttls": server_context} if tls == "starttls" else {"tls": server_context}
    with mail_server(Mailbox(), **offered) as mailbox, pytest.raises(OutputError, match="certificate verify failed"):
        MailServer(address=mailbox.address, tls=tls).send(_mail())

    assert [] == mailbox.mails


def test_server_without_starttls_gets_no_mail() -> None:
    with mail_server(Mailbox()) as mailbox, pytest.raises(OutputError, match="STARTTLS"):
        MailServer(address=mailbox.address, tls="starttls").send(_mail())

    assert [] == mailbox.mails


@pytest.mark.usefixtures("trusted")
def test_user_logs_in_with_the_password_of_the_file(server_context: ssl.SSLContext, password_file: Path) -> None:
    with mail_server(Mailbox(users={b"robot": b"sesame"}), starttls=server_context) as mailbox:
        MailServer(address=mailbox.address, tls="starttls", user="robot", password_file=password_file).send(_mail())

    assert ([b"robot"], 1) == (mailbox.logins, len(mailbox.mails))


@pytest.mark.usefixtures("trusted")
def test_wrong_password_is_reported_without_showing_it(server_context: ssl.SSLContext, password_file: Path) -> None:
    server = mail_server(Mailbox(users={b"robot": b"other"}), starttls=server_context)
    with server as mailbox, pytest.raises(OutputError, match="535") as caught:
        MailServer(address=mailbox.address, tls="starttls", user="robot", password_file=password_file).send(_mail())

    assert "sesame" not in str(caught.value)
    assert [] == mailbox.mails


def test_password_is_never_sent_to_another_host_in_clear_text(password_file: Path) -> None:
    server = MailServer(address="mail.example.org:25", user="robot", password_file=password_file)

    with pytest.raises(OutputError, match="only sent over TLS"):
        server.send(_mail())


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "localhost:{port}"])
def test_password_may_go_in_clear_text_on_this_host(address: str, password_file: Path) -> None:
    with mail_server(Mailbox(users={b"robot": b"sesame"})) as mailbox:
        shown = address.format(port=mailbox.address.rpartition(":")[2])
        MailServer(address=shown, user="robot", password_file=password_file).send(_mail())

    assert [b"robot"] == mailbox.logins


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"\xff\xfe", "not UTF-8")])
def test_unreadable_password_file_is_named(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(OutputError, match=f"{path}.*{reason}"):
        MailServer(address="127.0.0.1:1", user="robot", password_file=path).send(_mail())


def test_refused_recipient_is_reported_with_the_reply_of_the_server() -> None:
    mailbox = Mailbox(refused={"ada@example.org": "550 5.1.1 no such\x1b[31m mailbox"})
    with mail_server(mailbox), pytest.raises(OutputError) as caught:
        MailServer(address=mailbox.address).send(_mail())

    message = str(caught.value)
    assert "cannot send the mail to ada@example.org through 127.0.0.1:" in message
    assert "550 5.1.1 no such" in message
    assert "\x1b" not in message


def test_closed_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(OutputError, match="Connection refused"):
        MailServer(address=f"127.0.0.1:{port}").send(_mail())


@pytest.mark.parametrize("tls", ["none", "tls"])
def test_silent_server_is_given_up(tls: str) -> None:
    told = r"no answer within 0\.5 seconds|timed out"
    with _talking(lambda _, stop: stop.wait(PATIENCE_SECONDS)) as address, pytest.raises(OutputError, match=told):
        MailServer(address=address, tls=tls, timeout_seconds=0.5).send(_mail())


def test_dripping_server_is_given_up_though_it_never_falls_silent() -> None:
    sent = []

    def drip(connection: socket.socket, stop: threading.Event) -> None:
        while not stop.wait(DRIP_SECONDS):
            connection.sendall(b"2")
            sent.append(1)

    with _talking(drip) as address, pytest.raises(OutputError, match="no answer within 1 seconds"):
        # Each wait is shorter than the limit; all of them together are not.
        MailServer(address=address, timeout_seconds=1.0).send(_mail())

    assert len(sent) < PATIENCE_SECONDS / DRIP_SECONDS


def test_server_that_hangs_in_the_middle_is_given_up() -> None:
    def answer(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(b"220 hello\r\n")
        connection.recv(1000)
        connection.sendall(b"250 mail.test\r\n")
        stop.wait(PATIENCE_SECONDS)

    with _talking(answer) as address, pytest.raises(OutputError, match="cannot send the mail"):
        MailServer(address=address, timeout_seconds=0.5).send(_mail())


@pytest.mark.parametrize("goodbye", [b"500 never heard of it\r\n", b""])
def test_rude_goodbye_does_not_make_a_sent_mail_unsent(goodbye: bytes) -> None:
    answers = [b"250 mail.test\r\n", b"250 OK\r\n", b"250 OK\r\n", b"354 go on\r\n", b"250 taken\r\n"]
    heard: list[bytes] = []

    def answer(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(b"220 hello\r\n")
        with connection.makefile("rb") as lines:
            for line in answers:
                heard.append(_read_command(lines, until_dot=len(heard) == 4))
                connection.sendall(line)
            heard.append(lines.readline())
            connection.sendall(goodbye)

    with _talking(answer) as address:
        MailServer(address=address, timeout_seconds=PATIENCE_SECONDS).send(_mail())

    assert b"quit\r\n" == heard[-1].lower()
    assert b"Subject" in heard[4]


def test_server_with_another_protocol_is_reported() -> None:
    hello = b"SSH-2.0-OpenSSH_9.2\r\n"
    server = _talking(lambda connection, _: connection.sendall(hello))
    with server as address, pytest.raises(OutputError, match="cannot send the mail"):
        MailServer(address=address, timeout_seconds=PATIENCE_SECONDS).send(_mail())


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("mail.example.org", "mail.example.org", 587),
        ("mail.example.org:2525", "mail.example.org", 2525),
        ("[::1]:2525", "::1", 2525),
        ("[::1]", "::1", 587),
    ],
)
def test_address_may_leave_the_port_out(address: str, host: str, port: int) -> None:
    assert (host, port) == _split(address, SUBMISSION_PORTS["starttls"])


def _read_command(lines: BinaryIO, *, until_dot: bool) -> bytes:
    if not until_dot:
        return lines.readline()
    return b"".join(iter(lines.readline, b".\r\n"))


@contextmanager
def _talking(answer: Callable[[socket.socket, threading.Event], object]) -> Iterator[str]:
    """Serve one connection with raw bytes; the event is set when the client has had enough."""
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                answer(connection, stop)
            except OSError:
                stop.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
