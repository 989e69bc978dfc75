# SPDX-License-Identifier: Apache-2.0
"""Samples are sent once, later or not at all, and every one that was not sent is counted."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurmscope.run import delivery as module
from slurmscope.run.delivery import BATCH_SAMPLES, Delivered, SampleDelivery, Way, parse_endpoint
from tests.fakes.scripted_server import http_answer, read_whole_request, scripted_server
from tests.processes import until


@contextmanager
def answering(*statuses: int, body: bytes = b"") -> Iterator[tuple[Way, list[object]]]:
    """Answer posts with these, the last one again and again; give what was posted."""
    posted: list[object] = []

    def handle(connection: socket.socket) -> None:
        posted.append(json.loads(read_whole_request(connection).body))
        connection.sendall(http_answer(statuses[min(len(posted), len(statuses)) - 1], body))

    with scripted_server(handle) as address:
        yield Way(name="plain", address=parse_endpoint(address)), posted


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "own_user", lambda: "ada")


def counted(delivery: SampleDelivery, sent: int, lost: int = 0) -> None:
    until(lambda: (sent, lost) == (delivery._sent, delivery._lost))


def test_sample_is_sent_as_one_object_with_the_name_of_the_user() -> None:
    with answering(204) as (way, posted):
        delivery = SampleDelivery([way])
        delivery.start()
        delivery.put({"pid": 1, "username": "wrong"})
        counted(delivery, 1)

        assert Delivered(sent=1, lost=0, reason="") == delivery.end()

    assert [{"pid": 1, "username": "ada"}] == posted


def test_what_cannot_be_taken_now_is_sent_later_and_together() -> None:
    with answering(503, 404, 204) as (way, posted):
        delivery = SampleDelivery([way])
        for pid in range(3):
            delivery.put({"pid": pid})
        delivery.start()
        counted(delivery, 3)
        delivery.end()

    assert 3 == len(posted)
    last = posted[-1]
    assert isinstance(last, list)
    assert [0, 1, 2] == [sample["pid"] for sample in last]


def test_what_is_refused_is_not_sent_again() -> None:
    with answering(400, 204, body=b'{"error": "The body is bad.\\u001b", "code": "malformed"}') as (way, posted):
        delivery = SampleDelivery([way])
        delivery.start()
        delivery.put({"pid": 1})
        counted(delivery, 0, 1)
        delivery.put({"pid": 2})
        counted(delivery, 1, 1)
        ended = delivery.end()

    assert 2 == len(posted)
    assert f"1 of 2 samples were not sent: {way.address} answers 400: The body is bad.\\u001b." == ended.describe_loss()


def test_second_way_is_tried_when_the_first_fails() -> None:
    dead = Way(name="socket", address=parse_endpoint("unix:/nonexistent/trace.sock"))
    lines: list[str] = []
    with answering(204) as (way, _):
        delivery = SampleDelivery([dead, way], lines.append)
        delivery.start()
        delivery.put({"pid": 1})
        counted(delivery, 1)
        delivery.end()

    assert [
        "unix:/nonexistent/trace.sock is unreachable: No such file or directory",
        f"1 sent to {way.address} (plain)",
    ] == lines


def test_refusal_of_one_way_is_final_only_if_all_refuse() -> None:
    with answering(503, 204) as (busy, _), answering(403) as (closed, _):
        delivery = SampleDelivery([busy, closed])
        delivery.start()
        delivery.put({"pid": 1})
        counted(delivery, 1)

        assert 0 == delivery.end().lost


def test_buffer_is_bounded_and_drops_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    delivery = SampleDelivery([])
    for pid in range(25):
        delivery.put({"pid": pid})

    assert list(range(15, 25)) == [sample["pid"] for sample in delivery._waiting]
    assert 15 == delivery._lost


def test_post_has_no_more_than_the_endpoint_takes() -> None:
    with answering(204) as (way, posted):
        delivery = SampleDelivery([way])
        for pid in range(BATCH_SAMPLES + 5):
            delivery.put({"pid": pid})
        delivery.start()
        counted(delivery, BATCH_SAMPLES + 5)
        delivery.end()

    assert [BATCH_SAMPLES, 5] == [len(post) for post in posted if isinstance(post, list)]


def test_end_does_not_wait_for_an_endpoint_that_hangs() -> None:
    is_over, has_come = threading.Event(), threading.Event()

    def hang(connection: socket.socket) -> None:
        has_come.set()
        is_over.wait(60)

    with scripted_server(hang) as address:
        delivery = SampleDelivery([Way(name="plain", address=parse_endpoint(address))])
        delivery.start()
        delivery.put({"pid": 1})
        assert has_come.wait(60)
        delivery.put({"pid": 2})

        ended = delivery.end()
        assert not is_over.is_set()
        is_over.set()

    assert "2 of 2 samples were not sent; the command ended first." == ended.describe_loss()


def test_nothing_lost_is_not_mentioned() -> None:
    assert "" == Delivered(sent=3, lost=0, reason="x").describe_loss()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error": 5}', b"[" * 10_000])
def test_answer_without_a_reason_has_none(body: bytes) -> None:
    assert "" == module._sentence(body)
