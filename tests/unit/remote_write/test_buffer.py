# SPDX-License-Identifier: Apache-2.0
"""The buffer keeps the newest requests, in order, within its bounds."""

from __future__ import annotations

import logging
import threading

import pytest

from slurmscope.remote_write.client import BufferedRequest, RequestBuffer
from slurmscope.remote_write.encoding import WriteRequest


class Clock:
    """Fake a monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def request(name: bytes, size: int = 10, samples: int = 1) -> WriteRequest:
    return WriteRequest(body=name.ljust(size), samples=samples)


def make(max_bytes: int = 100, clock: Clock | None = None) -> RequestBuffer:
    return RequestBuffer(max_bytes=max_bytes, clock=clock or Clock())


def drain(buffer: RequestBuffer) -> list[bytes]:
    buffer.close()
    return [entry.request.body.strip() for entry in iter(buffer.take, None)]


def test_requests_come_out_in_order() -> None:
    buffer = make()
    for name in (b"a", b"b", b"c"):
        buffer.add(request(name))

    assert (30, 3) == (buffer.bytes, buffer.samples)
    assert [b"a", b"b", b"c"] == drain(buffer)
    assert 0 == buffer.bytes


def test_oldest_are_dropped_above_the_size() -> None:
    buffer = make(max_bytes=25)
    for name in (b"a", b"b", b"c"):
        buffer.add(request(name, samples=7))

    assert {"size": 7} == buffer.dropped
    assert [b"b", b"c"] == drain(buffer)


def test_request_that_is_given_back_is_the_oldest() -> None:
    buffer = make(max_bytes=25)
    buffer.add(request(b"a"))
    entry = buffer.take()
    assert isinstance(entry, BufferedRequest)
    buffer.add(request(b"b"))
    buffer.give_back(entry)
    buffer.add(request(b"c"))

    assert {"size": 1} == buffer.dropped
    assert [b"b", b"c"] == drain(buffer)


def test_old_requests_are_dropped() -> None:
    clock = Clock()
    buffer = make(clock=clock)
    buffer.add(request(b"a", samples=3))
    clock.now += 3599
    buffer.add(request(b"b"))
    clock.now += 2

    assert [b"b"] == drain(buffer)
    assert {"age": 3} == buffer.dropped


def test_newest_request_is_kept_although_it_is_larger_than_the_buffer() -> None:
    buffer = make(max_bytes=5)
    buffer.add(request(b"a"))
    assert (10, {}) == (buffer.bytes, buffer.dropped)
    buffer.add(request(b"b"))

    assert {"size": 1} == buffer.dropped
    assert [b"b"] == drain(buffer)


def test_dropped_samples_are_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    buffer = make(max_bytes=15, clock=clock)
    with caplog.at_level(logging.WARNING):
        buffer.add(request(b"a", samples=3))
        assert not caplog.records
        buffer.add(request(b"b", samples=4))
        clock.now += 3601
        assert [] == drain(buffer)

    assert [
        {"reason": "size", "samples": 3},
        {"reason": "age", "samples": 4},
    ] == [record.__dict__["fields"] for record in caplog.records]


def test_take_waits_for_a_request_and_ends_when_closed() -> None:
    buffer = make()
    taken: list[bytes] = []

    def take_all() -> None:
        taken.extend(entry.request.body.strip() for entry in iter(buffer.take, None))

    thread = threading.Thread(target=take_all, daemon=True)
    thread.start()
    buffer.add(request(b"a"))
    buffer.add(request(b"b"))
    buffer.close()
    thread.join(60)

    assert [b"a", b"b"] == taken
    assert not thread.is_alive()
