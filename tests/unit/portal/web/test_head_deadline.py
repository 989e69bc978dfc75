# SPDX-License-Identifier: Apache-2.0
"""Connections without a complete request head are closed, and complete requests are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import uvicorn

from slurmscope.portal.run import make_server
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.connections import HEAD_SECONDS, HeadDeadline
from tests.fakes.raw_http import ask, read_all, read_answer
from tests.processes import until

GENEROUS_SECONDS = 30.0
LONG_SECONDS = 600
SHORT_SECONDS = 1.5
NO_HEAD = b"GET / HTTP/1.1\r\nHost: loc"


class ShortDeadline(HeadDeadline):
    """Use a timeout short enough for tests."""

    head_seconds = SHORT_SECONDS


async def respond_slowly(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Respond much later than the head timeout."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * SHORT_SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})


@contextlib.contextmanager
def serving(app: AsgiApp, keep_alive_seconds: int) -> Iterator[tuple[str, int]]:
    """Serve with the short timeout and yield the address."""
    config = uvicorn.Config(
        app, http=ShortDeadline, ws="none", lifespan="off", log_config=None, timeout_keep_alive=keep_alive_seconds
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),), daemon=True)
        thread.start()
        try:
            until(lambda: server.started)
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(GENEROUS_SECONDS)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with serving(respond_slowly, LONG_SECONDS) as address:
        yield address


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=GENEROUS_SECONDS) as client:
        yield client


@pytest.mark.parametrize("data", [b"", b"G", NO_HEAD])
def test_connection_without_a_complete_head_is_closed(client: socket.socket, data: bytes) -> None:
    client.sendall(data)

    assert b"" == read_all(client)


def test_single_bytes_do_not_extend_the_timeout(client: socket.socket) -> None:
    stop = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not stop.wait(SHORT_SECONDS / 4):
                client.sendall(b"x")

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    try:
        assert b"" == read_all(client)
    finally:
        stop.set()
        dripping.join(GENEROUS_SECONDS)


def test_slow_response_to_a_head_in_pieces_is_complete(client: socket.socket) -> None:
    for piece in (b"GET /slow HTTP/1.1\r\nHost: x\r", b"\n\r", b"\n"):
        client.sendall(piece)
        time.sleep(SHORT_SECONDS / 10)

    assert b"done" == read_answer(client).body


def test_slow_response_to_a_body_in_pieces_is_complete(client: socket.socket) -> None:
    client.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
    time.sleep(SHORT_SECONDS / 10)
    client.sendall(b"b")

    assert b"done" == read_answer(client).body


def test_slow_response_is_complete(client: socket.socket) -> None:
    assert b"done" == ask(client, "/slow").body


def test_idle_connection_is_kept_between_requests(client: socket.socket) -> None:
    ask(client, "/")
    client.settimeout(3 * SHORT_SECONDS)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(GENEROUS_SECONDS)

    assert b"done" == ask(client, "/").body


def test_connection_without_a_complete_second_head_is_closed(client: socket.socket) -> None:
    ask(client, "/")
    client.sendall(NO_HEAD)

    assert b"" == read_all(client)


def test_keep_alive_timeout_still_closes_a_connection() -> None:
    with (
        serving(respond_slowly, keep_alive_seconds=0) as address,
        socket.create_connection(address, timeout=GENEROUS_SECONDS) as client,
    ):
        assert b"done" == ask(client, "/").body
        assert b"" == read_all(client)


def test_portal_is_served_with_the_timeout() -> None:
    server = make_server(respond_slowly, PortalSettings())

    assert (HeadDeadline, 10.0, 10.0) == (server.config.http, HEAD_SECONDS, HeadDeadline.head_seconds)
