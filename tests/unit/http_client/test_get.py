# SPDX-License-Identifier: Apache-2.0
"""A document comes whole and in time, or an error says why not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.errors import MalformedAnswer, ServerError, ServerRefused, ServerTimedOut
from slurmscope.http_client.address import parse_address
from slurmscope.http_client.get import HttpAnswer, get, post_form
from tests.fakes.certificates import make_authority, make_identity
from tests.fakes.prometheus_server import Asked, read_form
from tests.fakes.talking_server import GENEROUS_SECONDS, Talk, http_answer, read_request, talking_server


def fetch(url: str, *, seconds: float = GENEROUS_SECONDS, limit_bytes: int = 1000) -> HttpAnswer:
    deadline = time.monotonic() + seconds
    return get(parse_address(url), "/slurm/v0.0.42/jobs/", {"X-A": "b"}, deadline=deadline, limit_bytes=limit_bytes)


@contextlib.contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """Serve these bytes, whatever is asked."""

    def talk(connection: socket.socket) -> None:
        read_request(connection)
        for part in parts:
            connection.sendall(part)

    with talking_server(talk) as url:
        yield url


def test_whole_answer_is_returned() -> None:
    with answering(http_answer(200, b'{"jobs": []}')) as url:
        assert HttpAnswer(status=200, body=b'{"jobs": []}') == fetch(url)


def test_chunks_are_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    with answering(chunked) as url:
        assert b"hello world" == fetch(url).body


def test_answer_without_a_length_ends_with_the_connection() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\nall of it") as url:
        assert b"all of it" == fetch(url).body


def test_unix_socket_is_asked(tmp_path: Path) -> None:
    seen: list[str] = []

    def talk(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(http_answer(200, b"{}"))

    with talking_server(talk, tmp_path / "s") as url:
        assert b"{}" == fetch(url).body

    (request,) = seen
    lines = request.split("\r\n")
    assert "GET /slurm/v0.0.42/jobs/ HTTP/1.1" == lines[0]
    assert {"Host: localhost", "Accept: application/json", "Connection: close", "X-A: b"} <= set(lines)


def test_form_is_sent_whole_and_quoted() -> None:
    seen: list[Asked] = []

    def talk(connection: socket.socket) -> None:
        seen.append(read_form(connection))
        connection.sendall(http_answer(200, b"{}"))

    form = {"query": 'up{a="b&c=d"} + 1', "long": "x" * 300_000, "text": "é\n"}
    with talking_server(talk) as url:
        answer = post_form(parse_address(url), "/ask", form, {"X-A": "b"}, deadline=time.monotonic() + GENEROUS_SECONDS)

    (asked,) = seen
    assert HttpAnswer(status=200, body=b"{}") == answer
    assert "POST /ask HTTP/1.1" == asked.line
    assert form == asked.form
    assert ("b", "application/x-www-form-urlencoded") == (asked.headers["X-A"], asked.headers["Content-Type"])


def test_answer_that_comes_before_the_form_was_read_is_returned() -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(100)
        # The connection is closed with most of the form unread: sending breaks, and the answer is there already.
        connection.sendall(http_answer(413, b"too much"))

    with talking_server(talk) as url:
        answer = post_form(
            parse_address(url), "/", {"a": "x" * 5_000_000}, {}, deadline=time.monotonic() + GENEROUS_SECONDS
        )

    assert HttpAnswer(status=413, body=b"too much") == answer


@pytest.mark.parametrize("status", [204, 301, 304, 404, 500])
def test_other_status_is_told_and_no_redirect_followed(status: int) -> None:
    with answering(http_answer(status, b"", "Location: /elsewhere")) as url:
        assert status == fetch(url).status


@pytest.mark.parametrize(
    "answer",
    [
        http_answer(200, b"x" * 1001),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000,
    ],
)
def test_answer_over_the_limit_is_malformed(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(MalformedAnswer, match="longer than 1000 bytes"):
        fetch(url, limit_bytes=1000)


def test_answer_of_the_limit_is_good() -> None:
    with answering(http_answer(200, b"x" * 1000)) as url:
        assert 1000 == len(fetch(url, limit_bytes=1000).body)


def test_cut_answer_is_malformed() -> None:
    with answering(http_answer(200, b"whole")[:-2]) as url, pytest.raises(MalformedAnswer, match="2 bytes of it"):
        fetch(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_speaks_no_http_is_told(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(ServerError, match="does not speak HTTP"):
        fetch(url)


@pytest.mark.parametrize(
    "beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_silent_server_is_left_at_the_deadline(beginning: bytes) -> None:
    is_over = threading.Event()

    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(beginning)
        is_over.wait(GENEROUS_SECONDS)

    with _leaving(talk, is_over) as url, pytest.raises(ServerTimedOut, match="in time"):
        fetch(url, seconds=0.2)


def test_server_that_drips_is_left_at_the_deadline() -> None:
    is_over = threading.Event()

    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not is_over.wait(0.02):
            connection.sendall(b"y")

    with _leaving(talk, is_over) as url, pytest.raises(ServerTimedOut):
        fetch(url, seconds=0.3)


def test_deadline_that_has_passed_is_not_waited_for() -> None:
    with answering(http_answer(200, b"{}")) as url, pytest.raises(ServerTimedOut):
        fetch(url, seconds=-1.0)


@contextlib.contextmanager
def _leaving(talk: Talk, is_over: threading.Event) -> Iterator[str]:
    with talking_server(talk) as url:
        try:
            yield url
        finally:
            is_over.set()


def test_closed_port_and_missing_socket_are_refusals(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(ServerRefused, match="Connection refused"):
            fetch(f"http://127.0.0.1:{held.getsockname()[1]}")
    with pytest.raises(ServerRefused, match="No such file"):
        fetch(f"unix:{tmp_path}/s")


def test_tls_is_spoken_and_checked(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    identity = make_identity(tmp_path, "server", authority, "IP:127.0.0.1")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(identity.cert, identity.key)

    def talk(connection: socket.socket) -> None:
        with served.wrap_socket(connection, server_side=True) as secured:
            read_request(secured)
            secured.sendall(http_answer(200, b"{}"))

    with talking_server(talk) as url:
        address = parse_address(url.replace("http:", "https:"))
        trusting = ssl.create_default_context(cafile=authority.cert)
        deadline = time.monotonic() + GENEROUS_SECONDS
        assert b"{}" == get(address, "/", {}, deadline=deadline, tls=trusting).body
        with pytest.raises(ServerRefused, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            get(address, "/", {}, deadline=deadline, tls=ssl.create_default_context())
