# SPDX-License-Identifier: Apache-2.0
"""Check that no misbehaving client keeps others from their response."""

from __future__ import annotations

import contextlib
import logging
import resource
import select
import socket
import struct
import time

import pytest

from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.page_slots import STALLED_SECONDS
from tests.fakes.exposition import PAGE, FakeExposition, HeldExposition
from tests.fakes.raw_http import GENEROUS_SECONDS, ask, connect, exchange, get, read_all, read_answer, status_of
from tests.processes import until as wait_until
from tests.unit.http.server.conftest import Serve, user_of_address

MEGABYTE = 1024 * 1024
PATIENT = ConnectionLimits(head_seconds=600.0)
"""A test whose request waited until the server gives up on other clients fails: its own time limit is shorter.

Where those that have to go end late, as on a busy machine, a newcomer is refused (503) and has to ask again.
"""


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (431, b"GET /metrics HTTP/1.1\r\nHost: x\r\nBig: " + b"a" * 10 * MEGABYTE),
        (431, b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000 + b"\r\n"),
        (414, b"GET /" + b"a" * MEGABYTE + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        (414, b"a" * MEGABYTE),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500),
        (400, b"garbage\r\n\r\n"),
        (400, b"GET /metrics HTTP/1.1\nHost: x\n\n\r\n\r\n"),
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (405, b"BREW /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        (404, b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        (405, b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (405, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n" + b"a" * MEGABYTE),
        (405, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: the unexpected\r\n\r\na"),
        (405, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"a" * 2_000_000),
        (
            200,
            (
                b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                b"Accept: application/openmetrics-text;version=abc\r\n\r\n"
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else value[:12].decode("latin-1"),
)
def test_odd_request_gets_its_status_and_the_next_client_its_page(serve: Serve, status: int, data: bytes) -> None:
    address = serve().address
    reply = exchange(address, data)
    assert status == status_of(reply)
    assert b"version=abc" not in reply
    assert reply.count(b"\r\nDate: ") == 1
    assert get(address).body == PAGE


def test_garbage_after_a_request_ends_the_connection(serve: Serve) -> None:
    reply = exchange(serve().address, b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\nGARBAGE\x00\r\n\r\n" * 2)
    assert [b"200", b"400"] == [part[:3] for part in reply.split(b"HTTP/1.1 ")[1:]]


def test_endless_chunked_body_is_cut_off(serve: Serve) -> None:
    address = serve(limits=ConnectionLimits(drain_seconds=0.2)).address
    sent = 0
    with connect(address) as sock:
        sock.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        until = time.monotonic() + GENEROUS_SECONDS
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                sock.sendall(b"1000\r\n" + b"a" * 4096 + b"\r\n")
                sent += 4096
    assert time.monotonic() < until
    assert sent > 0
    assert get(address).status == 200


def test_memory_does_not_follow_what_clients_send(serve: Serve) -> None:
    address = serve().address
    huge = b"GET /metrics HTTP/1.1\r\nHost: x\r\nBig: " + b"a" * 10 * MEGABYTE
    exchange(address, huge)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        exchange(address, huge)
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kilobytes < 20 * 1024


def test_half_a_request_is_answered_408_in_time(serve: Serve) -> None:
    address = serve(limits=ConnectionLimits(head_seconds=0.2)).address
    for data in (b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\nA:"):
        with connect(address) as sock:
            sock.sendall(data)
            assert status_of(read_all(sock)) == 408


def test_dripping_client_does_not_stretch_the_deadline(serve: Serve) -> None:
    with connect(serve(limits=ConnectionLimits(head_seconds=0.3)).address) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        until = time.monotonic() + GENEROUS_SECONDS
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                sock.sendall(b"A: b\r\n")
                time.sleep(0.05)
        assert time.monotonic() < until


def test_client_that_leaves_during_its_request_affects_no_other(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    address = serve().address
    for is_reset in (False, True):
        with connect(address) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: ")
            if is_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert get(address).status == 200
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_silent_client_is_disconnected_without_a_response(serve: Serve) -> None:
    with connect(serve(limits=ConnectionLimits(head_seconds=0.1)).address) as sock:
        assert read_all(sock) == b""


def test_client_that_reads_nothing_is_cut_off(serve: Serve) -> None:
    exposition = FakeExposition(*(b"x 1\n" * 16_384 for _ in range(1000)))
    running = serve(exposition, limits=ConnectionLimits(write_seconds=0.3), max_requests=1)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(GENEROUS_SECONDS)
        sock.connect((running.address.host, running.address.port))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(1, socket.MSG_PEEK)  # the answer has begun
        until = time.monotonic() + GENEROUS_SECONDS
        # The place is taken while the slow reader has it, and free when it was cut off.
        while (status := get(running.address, method="HEAD").status) != 200 and time.monotonic() < until:
            time.sleep(0.05)
        assert status == 200
        assert len(read_all(sock)) < 65_536_000


def test_scrape_is_answered_beside_hundreds_of_half_requests(serve: Serve) -> None:
    address = serve(limits=PATIENT).address
    with contextlib.ExitStack() as stack:
        for number in range(300):
            sock = stack.enter_context(connect(address))
            if number % 3:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: " if number % 3 == 1 else b"POST /")
        assert get(address).body == PAGE


def test_longest_waiting_connection_makes_room(serve: Serve) -> None:
    running = serve(limits=PATIENT, max_connections=20)
    with contextlib.ExitStack() as stack:
        crowd = []
        for _ in range(100):
            crowd.append(stack.enter_context(connect(running.address)))
            crowd[-1].sendall(b"GET /half")
        wait_until(lambda: get(running.address).body == PAGE)
        assert read_all(crowd[0]) == b""


def test_newcomer_gets_503_when_every_place_is_busy(serve: Serve) -> None:
    exposition = HeldExposition()
    running = serve(exposition, max_connections=3)
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connect(running.address)) for _ in range(3)]
        for sock in busy:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert exposition.begun.acquire(timeout=30)
        with connect(running.address) as newcomer:
            assert read_answer(newcomer).status == 503
        exposition.go_on.set()
        assert [b"first 1\nsecond 2\n"] * 3 == [read_answer(sock).body for sock in busy]
        assert get(running.address).status == 200


def test_kept_connections_do_not_lock_others_out(serve: Serve) -> None:
    running = serve(max_connections=4)
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            wait_until(lambda: ask(stack.enter_context(connect(running.address))).status == 200)


def never_reading(address: ListenHost) -> socket.socket:
    """Request a page and leave it unread."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(GENEROUS_SECONDS)
    sock.connect((address.host, address.port))
    sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return sock


@pytest.mark.parametrize("limits", [{}, {"max_connections": 45, "max_requests": 0}])
def test_scrapes_go_on_beside_45_clients_that_never_read(serve: Serve, limits: dict[str, int]) -> None:
    exposition = FakeExposition(*(b"x 1\n" * 16_384 for _ in range(200)))
    address = serve(exposition, **limits).address  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(never_reading(address)) for _ in range(45)]
        # A busy machine refuses others while it makes all these pages; then every page waits for its client.
        wait_until(lambda: len(select.select(clients, [], [], 0)[0]) == len(clients))
        time.sleep(2 * STALLED_SECONDS)
        started = time.monotonic()
        replies = [get(address) for _ in range(5)]
        # Before, the slots were free again when the time limit for sending was over.
        assert time.monotonic() - started < ConnectionLimits().write_seconds / 2
    assert [(200, 200 * 65_536)] * 5 == [(reply.status, len(reply.body)) for reply in replies]


def connect_from(host: str, address: ListenHost) -> socket.socket:
    """Connect from another address of the loopback."""
    return socket.create_connection((address.host, address.port), GENEROUS_SECONDS, (host, 0))


def test_idle_connection_of_another_user_survives_a_flood_of_connections(serve: Serve) -> None:
    address = serve(max_connections=8, find_local_user=user_of_address).address
    with contextlib.ExitStack() as stack:
        scraper = stack.enter_context(connect(address))
        assert 200 == ask(scraper).status  # it then waits longer than any other connection
        for _ in range(20):
            wait_until(lambda: ask(stack.enter_context(connect_from("127.0.0.2", address))).status == 200)

        assert 200 == ask(scraper).status
