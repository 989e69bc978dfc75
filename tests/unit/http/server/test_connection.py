# SPDX-License-Identifier: Apache-2.0
"""Check single connections and the wire below them, over a pair of sockets."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from slurmscope.http.server.app import ExporterApp
from slurmscope.http.server.connection import Connection, Serving
from slurmscope.http.server.gate import Rules
from slurmscope.http.server.request import BadRequest, PeerCredentials
from slurmscope.http.server.response import RequestCounters
from slurmscope.http.server.server import Server
from slurmscope.http.server.wire import Wire
from tests.fakes.exposition import PAGE, FakeExposition
from tests.fakes.raw_http import get, read_all


class Clock:
    """Return a time that only moves when a test sets it."""

    def __init__(self) -> None:
        """Start somewhere."""
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two sockets that talk to each other."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(30)
    with ours, theirs:
        yield ours, theirs


def test_deadline_that_has_passed_is_not_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    clock = Clock()
    wire = Wire(pair[0], clock)
    assert not wire.wait(clock.now)
    pair[1].sendall(b"GET")
    assert wire.wait(clock.now + 30)
    with pytest.raises(BadRequest) as caught:
        wire.read_head(clock.now - 1)
    assert caught.value.status == 408


def test_sending_time_is_counted_over_all_blocks(pair: tuple[socket.socket, socket.socket]) -> None:
    class Slow(Clock):
        def __call__(self) -> float:
            """Advance two seconds with every call."""
            self.now += 2
            return self.now

    wire = Wire(pair[0], Slow())
    wire.start_sending(5)
    for _ in range(3):
        wire.send(b"x")
    with pytest.raises(TimeoutError):
        wire.send(b"x")
    wire.start_sending(5)
    wire.send(b"y")
    assert pair[1].recv(10) == b"xxxy"


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n\r\n", b""])
def test_empty_lines_before_a_request_are_skipped(pair: tuple[socket.socket, socket.socket], empty: bytes) -> None:
    clock = Clock()
    wire = Wire(pair[0], clock)
    pair[1].sendall(empty + b"GET / HTTP/1.0\r\n\r\nHEAD / HTTP/1.0\r\n\r\n")
    assert wire.wait(clock.now + 30)
    assert wire.read_head(clock.now + 30) == b"GET / HTTP/1.0"
    assert wire.read_head(clock.now + 30) == b"HEAD / HTTP/1.0"


def test_bug_ends_one_connection_and_is_logged(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    def broken_gate() -> Rules:
        raise RuntimeError("secret detail")

    serving = Serving(app=ExporterApp(FakeExposition()), gate=broken_gate, counters=RequestCounters())
    Connection(pair[0], "test", serving).run()
    assert read_all(pair[1]) == b""
    assert [logging.ERROR] == [record.levelno for record in caplog.records]


def test_closed_connection_may_be_cut_and_ended(pair: tuple[socket.socket, socket.socket]) -> None:
    serving = Serving(app=ExporterApp(FakeExposition()), gate=Rules, counters=RequestCounters())
    connection = Connection(pair[0], "test", serving)
    connection.close()
    connection.cut()
    connection.end()
    connection.close()
    assert read_all(pair[1]) == b""


def test_accepting_outlives_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    class Unlucky(Server):
        is_first = True

        def _admit(
            self, sock: socket.socket, peer: str, credentials: PeerCredentials | None = None, uid: int | None = None
        ) -> None:
            if self.is_first:
                self.is_first = False
                sock.close()
                raise MemoryError
            super()._admit(sock, peer, credentials, uid)

    server = Unlucky(ExporterApp(FakeExposition()), addresses=("127.0.0.1:0",))
    server.start()
    try:
        with pytest.raises(OSError):
            get(server.addresses[0])
        assert get(server.addresses[0]).body == PAGE
    finally:
        server.close(1)
    assert ["connection lost"] == [record.message for record in caplog.records]
