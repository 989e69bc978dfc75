# SPDX-License-Identifier: Apache-2.0
"""A short post reads its answer as the standard library does, within a deadline and a size."""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer, ServerRefused, ServerTimedOut, SourceError
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.request import (
    ANSWER_LIMIT_BYTES,
    ClientRequest,
    HttpAnswer,
    parse_answer,
    post,
    tls_context,
)
from tests.fakes.scripted_server import http_answer, read_whole_request, scripted_server, scripted_tls_server

REQUEST = ClientRequest(method="POST", path="/trace", body=b"{}", headers={"Content-Type": "application/json"})
PATIENCE_SECONDS = 30.0


def post_to(answer: bytes, *, keep_open: bool = False, patience_seconds: float = PATIENCE_SECONDS) -> HttpAnswer:
    def handle(connection: socket.socket) -> None:
        read_whole_request(connection)
        connection.sendall(answer)
        if keep_open:
            connection.recv(1)

    with scripted_server(handle) as address:
        return post(parse_address(address), REQUEST, deadline=time.monotonic() + patience_seconds)


@pytest.mark.parametrize("answer", [http_answer(403, b'{"error": "x"}'), b"HTTP/1.1 204 No Content\r\n\r\n"])
def test_answer_is_complete_without_the_end_of_the_connection(answer: bytes) -> None:
    assert parse_answer(answer) == post_to(answer, keep_open=True)


def test_answer_without_a_length_ends_with_the_connection() -> None:
    assert HttpAnswer(status=200, body=b"some text") == post_to(b"HTTP/1.0 200 OK\r\n\r\nsome text")


def test_long_answer_is_cut() -> None:
    answer = post_to(b"HTTP/1.0 500 Bad\r\n\r\n" + b"x" * 10 * ANSWER_LIMIT_BYTES)

    assert 500 == answer.status
    assert len(answer.body) <= 2 * ANSWER_LIMIT_BYTES


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 99 Odd\r\n\r\n", b"\xff" * 99]
)
def test_something_else_is_malformed(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="no HTTP answer"):
        post_to(answer)


def test_silent_server_times_out() -> None:
    with pytest.raises(ServerTimedOut, match="timed out"):
        post_to(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", keep_open=True, patience_seconds=0.2)


def test_absent_server_is_refused() -> None:
    with pytest.raises(ServerRefused, match="is unreachable"):
        post(ServerAddress(socket_path="/nonexistent"), REQUEST, deadline=time.monotonic() + PATIENCE_SECONDS)


def test_long_answer_over_tls_is_cut(tmp_path: Path) -> None:
    def handle(connection: socket.socket) -> None:
        read_whole_request(connection)
        connection.sendall(http_answer(403, b"x" * 10 * ANSWER_LIMIT_BYTES))

    with scripted_tls_server(handle, tmp_path) as (url, authority):
        secure, tls = parse_address(url), tls_context(authority)
        answer = post(secure, REQUEST, deadline=time.monotonic() + PATIENCE_SECONDS, tls=tls)

    assert (403, ANSWER_LIMIT_BYTES) == (answer.status, len(answer.body))


def test_tls_uses_the_whole_client() -> None:
    with scripted_server(lambda connection: connection.sendall(b"no TLS here")) as address:
        secure = parse_address(address.replace("http:", "https:"))
        with pytest.raises(SourceError):
            post(secure, REQUEST, deadline=time.monotonic() + PATIENCE_SECONDS)


class _Incoming:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


@given(st.integers(200, 599), st.binary(max_size=200))
def test_standard_library_reads_the_same(status: int, body: bytes) -> None:
    answer = http_answer(status, body)

    theirs = HTTPResponse(_Incoming(answer), method="POST")  # type: ignore[arg-type]
    theirs.begin()
    ours = parse_answer(answer)

    assert theirs.status == ours.status
    if status not in {204, 304}:
        assert theirs.read() == ours.body
