# SPDX-License-Identifier: Apache-2.0
"""Check that a server ends cleanly, whatever is going on."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from slurmscope.http.server.app import ExporterApp
from slurmscope.http.server.server import Server
from tests.fakes.exposition import FakeExposition, HeldExposition
from tests.fakes.raw_http import GENEROUS_SECONDS, ask, connect, read_all, read_answer
from tests.leftovers import nothing_left

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def started(exposition: FakeExposition) -> Server:
    server = Server(ExporterApp(exposition), addresses=("127.0.0.1:0",))
    server.start()
    return server


def test_running_request_is_finished_and_no_other_accepted() -> None:
    exposition = HeldExposition()
    server = started(exposition)
    address = server.addresses[0]
    results: list[int] = []
    with connect(address) as busy, connect(address) as idle, connect(address) as half:
        assert ask(idle, "/-/healthy").status == 200
        half.sendall(b"GET /half")
        busy.sendall(GET)
        assert exposition.begun.acquire(timeout=30)
        closing = threading.Thread(target=lambda: results.append(server.close(GENEROUS_SECONDS)))
        closing.start()
        assert read_all(idle) == b""
        assert read_all(half) == b""
        with pytest.raises(OSError):
            connect(address)
        exposition.go_on.set()
        answer = read_answer(busy)
        assert (200, b"first 1\nsecond 2\n") == (answer.status, answer.body)
        assert read_all(busy) == b""
        closing.join(GENEROUS_SECONDS)
    assert [0] == results


def test_request_that_takes_too_long_is_cut_and_counted() -> None:
    exposition = HeldExposition()
    server = started(exposition)
    with connect(server.addresses[0]) as busy:
        busy.sendall(GET)
        assert exposition.begun.acquire(timeout=30)
        started_at = time.monotonic()
        assert server.close(0.2) == 1
        assert time.monotonic() - started_at < 10
        assert not read_all(busy).endswith(b"0\r\n\r\n")
    exposition.go_on.set()
    assert exposition.ended.acquire(timeout=30)


def test_closing_twice_or_before_serving_is_fine() -> None:
    server = Server(ExporterApp(FakeExposition()), addresses=("127.0.0.1:0",))
    address = server.addresses[0]
    assert [0, 0] == [server.close(1), server.close(1)]
    server.stop()
    with pytest.raises(OSError):
        connect(address)


def test_serving_ends_when_stopped() -> None:
    server = Server(ExporterApp(FakeExposition()), addresses=("127.0.0.1:0",))
    serving = threading.Thread(target=server.serve)
    serving.start()
    with connect(server.addresses[0]) as sock:
        assert ask(sock).status == 200
    server.stop()
    serving.join(GENEROUS_SECONDS)
    assert not serving.is_alive()
    assert server.close() == 0


def test_stop_before_serving_takes_effect() -> None:
    server = Server(ExporterApp(FakeExposition()), addresses=("127.0.0.1:0",))
    server.stop()
    server.serve()
    assert server.close() == 0


def test_closing_a_server_that_has_hardly_started_is_fine() -> None:
    for _ in range(100):
        assert started(FakeExposition()).close(1) == 0


def test_address_can_be_taken_again_at_once() -> None:
    first = started(FakeExposition())
    address = str(first.addresses[0])
    with connect(first.addresses[0]) as sock:
        assert ask(sock).status == 200
        first.close(5)
    second = Server(ExporterApp(FakeExposition()), addresses=(address,))
    assert address == str(second.addresses[0])
    second.close()


def test_closing_amid_many_requests_leaves_no_thread() -> None:
    with nothing_left():
        for _ in range(5):
            close_amid_requests()


def close_amid_requests() -> None:
    server = started(FakeExposition())
    done = threading.Event()

    def hammer() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError), connect(server.addresses[0]) as sock:
                sock.sendall(GET)
                read_all(sock)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert server.close(10) == 0
    done.set()
    for thread in threads:
        thread.join(GENEROUS_SECONDS)
