# SPDX-License-Identifier: Apache-2.0
"""Check that a request returns a complete answer in time or raises an error that names the cause."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope import __version__
from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, ServerRefused, ServerTimedOut
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.request import ClientRequest, HttpAnswer, connect_to_any, form_request, send, tls_context
from tests.fakes.certificates import encrypt_key, make_authority, make_identity
from tests.fakes.prometheus_server import ReceivedQuery, read_form
from tests.fakes.scripted_server import (
    GENEROUS_SECONDS,
    Handler,
    RawRequest,
    http_answer,
    read_request,
    read_whole_request,
    scripted_server,
    scripted_tls_server,
)


def fetch(url: str, *, seconds: float = GENEROUS_SECONDS, limit_bytes: int = 1000) -> HttpAnswer:
    deadline = time.monotonic() + seconds
    request = ClientRequest(path="/slurm/v0.0.42/jobs/", headers={"X-A": "b"})
    return send(parse_address(url), request, deadline=deadline, limit_bytes=limit_bytes)


@contextlib.contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """Serve these bytes for any request."""

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        for part in parts:
            connection.sendall(part)

    with scripted_server(handle) as url:
        yield url


def test_complete_answer_is_returned() -> None:
    with answering(http_answer(200, b'{"jobs": []}')) as url:
        assert HttpAnswer(status=200, body=b'{"jobs": []}') == fetch(url)


def test_chunks_are_joined() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    with answering(chunked) as url:
        assert b"hello world" == fetch(url).body


def test_answer_without_a_length_ends_with_the_connection() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\nall of it") as url:
        assert b"all of it" == fetch(url).body


def test_unix_socket_is_supported(tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(http_answer(200, b"{}"))

    with scripted_server(handle, tmp_path / "s") as url:
        assert b"{}" == fetch(url).body

    (request,) = seen
    lines = request.split("\r\n")
    assert "GET /slurm/v0.0.42/jobs/ HTTP/1.1" == lines[0]
    assert ["Host: localhost", f"User-Agent: slurmscope/{__version__}", "Connection: close", "X-A: b", "", ""] == lines[
        1:
    ]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
@pytest.mark.parametrize("body", [b"", b"a 1\n" * 100_000])
def test_method_and_body_are_sent(method: str, body: bytes) -> None:
    seen: list[RawRequest] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_whole_request(connection))
        connection.sendall(http_answer(202, b""))

    request = ClientRequest(method=method, path="/x", headers={"Content-Type": "text/plain"}, body=body)
    with scripted_server(handle) as url:
        answer = send(parse_address(f"{url}/prefix"), request, deadline=time.monotonic() + GENEROUS_SECONDS)

    (received,) = seen
    assert 202 == answer.status
    assert (f"{method} /prefix/x HTTP/1.1", body) == (received.line, received.body)
    assert (str(len(body)), "text/plain") == (received.headers["Content-Length"], received.headers["Content-Type"])


def test_form_is_sent_completely_and_quoted() -> None:
    seen: list[ReceivedQuery] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_form(connection))
        connection.sendall(http_answer(200, b"{}"))

    form = {"query": 'up{a="b&c=d"} + 1', "long": "x" * 300_000, "text": "é\n"}
    with scripted_server(handle) as url:
        request = form_request("/query", form, {"X-A": "b"})
        answer = send(parse_address(url), request, deadline=time.monotonic() + GENEROUS_SECONDS)

    (query,) = seen
    assert HttpAnswer(status=200, body=b"{}") == answer
    assert "POST /query HTTP/1.1" == query.line
    assert form == query.form
    assert ("b", "application/x-www-form-urlencoded") == (query.headers["X-A"], query.headers["Content-Type"])


def test_answer_that_comes_before_the_form_was_read_is_returned() -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(100)
        # The connection is closed with most of the form unread: sending breaks, and the answer is there already.
        connection.sendall(http_answer(413, b"too much"))

    with scripted_server(handle) as url:
        request = form_request("/", {"a": "x" * 5_000_000}, {})
        answer = send(parse_address(url), request, deadline=time.monotonic() + GENEROUS_SECONDS)

    assert HttpAnswer(status=413, body=b"too much") == answer


@pytest.mark.parametrize("status", [204, 301, 304, 404, 500])
def test_other_status_is_returned_and_no_redirect_followed(status: int) -> None:
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


def test_answer_at_the_limit_is_accepted() -> None:
    with answering(http_answer(200, b"x" * 1000)) as url:
        assert 1000 == len(fetch(url, limit_bytes=1000).body)


def test_truncated_answer_is_malformed() -> None:
    with answering(http_answer(200, b"whole")[:-2]) as url, pytest.raises(MalformedAnswer, match="2 bytes are missing"):
        fetch(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n",
    ],
)
def test_invalid_http_is_an_error(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(ServerError, match="invalid HTTP answer"):
        fetch(url)


@pytest.mark.parametrize(
    "beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_silent_server_times_out(beginning: bytes) -> None:
    is_over = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(beginning)
        is_over.wait(GENEROUS_SECONDS)

    with _serving_until(handle, is_over) as url, pytest.raises(ServerTimedOut, match="timed out"):
        fetch(url, seconds=0.2)


def test_server_that_sends_byte_by_byte_times_out() -> None:
    is_over = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not is_over.wait(0.02):
            connection.sendall(b"y")

    with _serving_until(handle, is_over) as url, pytest.raises(ServerTimedOut):
        fetch(url, seconds=0.3)


def test_deadline_in_the_past_times_out() -> None:
    with answering(http_answer(200, b"{}")) as url, pytest.raises(ServerTimedOut):
        fetch(url, seconds=-1.0)


@contextlib.contextmanager
def _serving_until(handle: Handler, is_over: threading.Event) -> Iterator[str]:
    with scripted_server(handle) as url:
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


def test_tls_certificate_is_verified(tmp_path: Path) -> None:
    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(http_answer(200, b"{}"))

    with scripted_tls_server(handle, tmp_path) as (url, authority):
        address = parse_address(url)
        trusting = tls_context(authority)
        deadline = time.monotonic() + GENEROUS_SECONDS
        assert b"{}" == send(address, ClientRequest(), deadline=deadline, tls=trusting).body
        for untrusting in (tls_context(), None):  # None: the system's authorities, never plain text
            with pytest.raises(
                ServerRefused, match=rf"^the certificate of {address} is not trusted: unable to get local"
            ):
                send(address, ClientRequest(), deadline=deadline, tls=untrusting)
        named = replace(address, host="localhost")
        with pytest.raises(ServerRefused, match="is not trusted: Hostname mismatch, certificate is not valid for"):
            send(named, ClientRequest(), deadline=deadline, tls=trusting)


def test_client_certificate_is_sent_to_a_server_that_requires_one(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    server = make_identity(tmp_path, "server", authority, "IP:127.0.0.1")
    client = make_identity(tmp_path, "client", authority, "DNS:n1")
    both = tmp_path / "both.pem"
    both.write_bytes(client.cert.read_bytes() + client.key.read_bytes())
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(server.cert, server.key)
    served.load_verify_locations(authority.cert)
    served.verify_mode = ssl.CERT_REQUIRED

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), served.wrap_socket(connection, server_side=True) as secured:
            read_request(secured)
            secured.sendall(http_answer(200, str(secured.getpeercert()).encode()))

    with scripted_server(handle) as url:
        address = parse_address(url.replace("http:", "https:"))
        deadline = time.monotonic() + GENEROUS_SECONDS
        for files in ((client.cert, client.key), (both, None)):
            tls = tls_context(authority.cert, *files)
            assert b"'client'" in send(address, ClientRequest(), deadline=deadline, tls=tls).body
        with pytest.raises(ServerRefused, match=rf"^TLS with {address} failed: .*alert certificate required$"):
            send(address, ClientRequest(), deadline=deadline, tls=tls_context(authority.cert))


def test_client_certificate_that_cannot_be_used_is_a_config_error(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    other = make_authority(tmp_path, "other")
    encrypt_key(authority.key, tmp_path / "encrypted.key")
    with pytest.raises(ConfigError, match=r"client certificate .*/none cannot be used: .*No such file"):
        tls_context(None, tmp_path / "none", authority.key)
    with pytest.raises(ConfigError, match=r"client certificate .*authority.pem cannot be used: .*KEY_VALUES_MISMATCH"):
        tls_context(None, authority.cert, other.key)
    with pytest.raises(ConfigError, match=r"key of the client certificate .*authority.pem is encrypted"):
        tls_context(None, authority.cert, tmp_path / "encrypted.key")


def test_invalid_ca_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(ConfigError, match=f"the CA file {tmp_path}/ca.pem cannot be used"):
        tls_context(tmp_path / "ca.pem")


@contextlib.contextmanager
def black_hole() -> Iterator[tuple[int, tuple[object, ...]]]:
    """Yield an address that answers no connection: the queue of its listener is full, so the kernel drops requests."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield socket.AF_INET, listener.getsockname()


def test_address_that_drops_packets_leaves_time_for_the_next() -> None:
    with black_hole() as lost, socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        found: list[tuple[int, tuple[object, ...]]] = [lost, (socket.AF_INET, server.getsockname())]

        with connect_to_any(found, started + 6.0) as connection:
            assert server.getsockname() == connection.getpeername()
            assert 2.9 <= time.monotonic() - started


def test_only_addresses_that_drop_packets_take_no_longer_than_the_deadline() -> None:
    with black_hole() as lost:
        started = time.monotonic()

        with pytest.raises(TimeoutError):
            connect_to_any([lost, lost], started + 0.4)

        # The kernel alone would try for minutes.
        assert 0.35 <= time.monotonic() - started < 30


def test_family_that_the_kernel_lacks_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: list[tuple[int, tuple[object, ...]]] = [(9999, ("::1", 1)), (socket.AF_INET, server.getsockname())]

        with connect_to_any(found, time.monotonic() + GENEROUS_SECONDS) as connection:
            assert server.getsockname() == connection.getpeername()


def test_refused_connection_is_the_error_of_the_last_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()

    with pytest.raises(ConnectionRefusedError):
        connect_to_any([(socket.AF_INET, closed)], time.monotonic() + GENEROUS_SECONDS)
