# SPDX-License-Identifier: Apache-2.0
"""Requests that are too large or too slow get one sentence, and cost little."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.concurrency import run_in_threadpool

from slurmscope.portal.scope import AsgiMessage, Receive, Send
from slurmscope.portal.web.request_limits import HEADER_LIMIT, RequestLimits
from tests.fakes.asgi import call
from tests.fakes.sign_in import make_scope

GENEROUS_SECONDS = 30.0


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Read everything, then send it back."""
    body, is_more = b"", True
    while is_more:
        message = await receive()
        body, is_more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def must_not_run(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    raise AssertionError("the application was called")


async def never_answers(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def never_sends() -> AsgiMessage:
    raise AssertionError("nobody reads the request")


async def stops_half_way(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.Event().wait()


def test_body_up_to_the_limit_arrives_whole() -> None:
    sent = call(RequestLimits(echo, body_limit_bytes=10), make_scope(("content-length", "10")), [b"01234", b"56789"])

    assert (200, b"0123456789") == (sent.status, sent.body)


@pytest.mark.parametrize("length", ["11", "999999999999999999999999", "-1", "ten", "+5", "", "1_0"])
def test_body_that_says_it_is_too_large_is_not_read(length: str) -> None:
    sent = call(RequestLimits(must_not_run, body_limit_bytes=10), make_scope(("Content-Length", length)), [])

    assert 413 == sent.status


def test_second_length_does_not_hide_the_first() -> None:
    scope = make_scope(("content-length", "11"), ("content-length", "1"))

    assert 413 == call(RequestLimits(must_not_run, body_limit_bytes=10), scope).status


def test_body_that_does_not_say_its_size_is_cut_off_at_the_limit() -> None:
    sent = call(RequestLimits(echo, body_limit_bytes=10), make_scope(), [b"0" * 6, b"1" * 6, b"never read"])

    assert 413 == sent.status
    assert b"The request has more than 10 bytes.\n" == sent.body
    assert "close" == dict(sent.headers)["connection"]


async def takes_every_failure_for_its_own(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Be like those who read forms: whatever goes wrong, they answer it themselves."""
    status = 200
    try:
        await echo(scope, receive, must_not_send)
    except Exception:  # noqa: BLE001 - as broad as theirs
        status = 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"malformed"})


async def must_not_send(message: AsgiMessage) -> None:
    raise AssertionError("it was read to its end")


def test_body_is_too_large_whatever_the_application_makes_of_it() -> None:
    app = RequestLimits(takes_every_failure_for_its_own, body_limit_bytes=10)

    sent = call(app, make_scope(), [b"0" * 6, b"1" * 6])

    assert (413, b"The request has more than 10 bytes.\n") == (sent.status, sent.body)


@pytest.mark.parametrize(
    "scope",
    [
        make_scope(("cookie", "a" * 33_000)),
        make_scope(*[("x", "y")] * (HEADER_LIMIT + 1)),
        make_scope(path="/" + "a" * 33_000),
    ],
    ids=["long", "many", "path"],
)
def test_head_that_is_too_large_is_turned_away(scope: dict[str, Any]) -> None:
    assert 431 == call(RequestLimits(must_not_run), scope).status


def test_application_that_takes_too_long_is_given_up() -> None:
    sent = call(RequestLimits(never_answers, request_seconds=0.01), make_scope())

    assert 503 == sent.status
    assert b"too long" in sent.body


def test_client_is_answered_while_a_thread_still_works_on_the_page() -> None:
    may_end, ends = threading.Event(), list[bool]()

    def work() -> None:
        ends.append(may_end.wait(GENEROUS_SECONDS))

    async def slow_page(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await run_in_threadpool(work)

    async def visit() -> int:
        sent: list[AsgiMessage] = []

        async def send(message: AsgiMessage) -> None:
            sent.append(message)

        await RequestLimits(slow_page, request_seconds=0.01)(make_scope(), never_sends, send)
        assert [] == ends
        may_end.set()
        return int(sent[0]["status"])

    assert 503 == asyncio.run(visit())


def test_answer_that_stops_half_way_is_cut_and_not_passed_off_as_whole() -> None:
    with pytest.raises(ConnectionAbortedError):
        call(RequestLimits(stops_half_way, request_seconds=0.01), make_scope())


def test_what_is_not_a_request_passes_through() -> None:
    with pytest.raises(AssertionError, match="was called"):
        call(RequestLimits(must_not_run), {"type": "lifespan"})
