# SPDX-License-Identifier: Apache-2.0
"""Responses carry security headers, requests are limited, and HEAD works like GET (W1, W5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.concurrency import run_in_threadpool

from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send
from slurmscope.portal.web.middleware import MAX_HEADERS, RequestLimits, protect
from tests.fakes.asgi import Sent, call
from tests.fakes.portal_backend import USER_HEADER, make_backend
from tests.fakes.sign_in import make_scope

GENEROUS_SECONDS = 30.0
IDENTITY_HEADER = "X-Remote-User"


def answering(*headers: tuple[bytes, bytes], status: int = 200) -> AsgiApp:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"page"})

    return app


def fetch(*headers: tuple[bytes, bytes], status: int = 200) -> Sent:
    return call(protect(answering(*headers, status=status), identity_header=IDENTITY_HEADER), make_scope())


def test_scripts_styles_and_forms_are_same_origin_and_framing_is_forbidden() -> None:
    rules = dict(rule.split(" ", 1) for rule in dict(fetch().headers)["content-security-policy"].split("; "))

    assert "'none'" == rules["default-src"]
    assert "'self'" == rules["script-src"]
    assert "'self'" == rules["style-src"]
    assert "'self' data:" == rules["img-src"]
    assert "'self'" == rules["connect-src"]
    assert "'self'" == rules["form-action"]
    assert "'none'" == rules["frame-ancestors"]
    assert "'none'" == rules["base-uri"]
    assert "unsafe" not in str(rules)


def test_browsers_do_not_sniff_types_or_share_with_other_sites() -> None:
    headers = dict(fetch().headers)

    assert "nosniff" == headers["x-content-type-options"]
    assert "DENY" == headers["x-frame-options"]
    assert "same-origin" == headers["referrer-policy"]
    assert "same-origin" == headers["cross-origin-opener-policy"]
    assert "same-origin" == headers["cross-origin-resource-policy"]


def test_page_is_not_cached_and_varies_by_identity() -> None:
    headers = dict(fetch().headers)

    assert "private, no-store" == headers["cache-control"]
    assert "Authorization, X-Remote-User" == headers["vary"]


def test_static_file_sets_its_own_cache_lifetime() -> None:
    headers = fetch((b"Cache-Control", b"public, max-age=31536000, immutable"), (b"ETag", b"x")).headers

    assert ["public, max-age=31536000, immutable"] == [value for name, value in headers if name == "cache-control"]
    assert ("etag", "x") in headers
    assert "vary" not in dict(headers)


def test_page_cannot_weaken_the_policy() -> None:
    headers = fetch((b"Content-Security-Policy", b"default-src *")).headers

    policies = [value for name, value in headers if name == "content-security-policy"]
    assert 1 == len(policies)
    assert "*" not in policies[0]


def test_error_pages_have_the_headers_too() -> None:
    sent = fetch(status=500)

    assert 500 == sent.status
    assert "content-security-policy" in dict(sent.headers)


def test_no_response_sets_a_cookie() -> None:
    assert "set-cookie" not in dict(fetch().headers)


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Send the request body back."""
    body, is_more = b"", True
    while is_more:
        message = await receive()
        body, is_more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def must_not_run(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    raise AssertionError("the application was called")


async def never_responds(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def never_sends() -> AsgiMessage:
    raise AssertionError("the request was read")


async def stops_midway(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.Event().wait()


def test_body_up_to_the_limit_arrives_whole() -> None:
    sent = call(RequestLimits(echo, max_body_bytes=10), make_scope(("content-length", "10")), [b"01234", b"56789"])

    assert (200, b"0123456789") == (sent.status, sent.body)


@pytest.mark.parametrize("length", ["11", "999999999999999999999999", "-1", "ten", "+5", "", "1_0"])
def test_body_with_a_declared_length_above_the_limit_is_not_read(length: str) -> None:
    sent = call(RequestLimits(must_not_run, max_body_bytes=10), make_scope(("Content-Length", length)), [])

    assert 413 == sent.status


def test_second_length_does_not_hide_the_first() -> None:
    scope = make_scope(("content-length", "11"), ("content-length", "1"))

    assert 413 == call(RequestLimits(must_not_run, max_body_bytes=10), scope).status


def test_body_without_a_length_is_cut_off_at_the_limit() -> None:
    sent = call(RequestLimits(echo, max_body_bytes=10), make_scope(), [b"0" * 6, b"1" * 6, b"never read"])

    assert 413 == sent.status
    assert b"The request body is larger than 10 bytes.\n" == sent.body
    assert "close" == dict(sent.headers)["connection"]


async def handles_every_exception(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Respond to every exception, as the form parser does."""
    status = 200
    try:
        await echo(scope, receive, must_not_send)
    except Exception:  # noqa: BLE001 - as broad as the form parser
        status = 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"malformed"})


async def must_not_send(message: AsgiMessage) -> None:
    raise AssertionError("the whole body was read")


def test_body_above_the_limit_is_413_even_if_the_application_handles_the_exception() -> None:
    app = RequestLimits(handles_every_exception, max_body_bytes=10)

    sent = call(app, make_scope(), [b"0" * 6, b"1" * 6])

    assert (413, b"The request body is larger than 10 bytes.\n") == (sent.status, sent.body)


@pytest.mark.parametrize(
    "scope",
    [
        make_scope(("cookie", "a" * 33_000)),
        make_scope(*[("x", "y")] * (MAX_HEADERS + 1)),
        make_scope(path="/" + "a" * 33_000),
    ],
    ids=["long", "many", "path"],
)
def test_head_above_the_limit_is_rejected(scope: dict[str, Any]) -> None:
    assert 431 == call(RequestLimits(must_not_run), scope).status


def test_slow_application_times_out() -> None:
    sent = call(RequestLimits(never_responds, request_seconds=0.01), make_scope())

    assert 503 == sent.status
    assert b"timed out" in sent.body


def test_timeout_responds_while_the_thread_still_runs() -> None:
    may_end, ends = threading.Event(), list[bool]()

    def work() -> None:
        ends.append(may_end.wait(GENEROUS_SECONDS))

    async def slow_page(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await run_in_threadpool(work)

    async def request() -> int:
        sent: list[AsgiMessage] = []

        async def send(message: AsgiMessage) -> None:
            sent.append(message)

        await RequestLimits(slow_page, request_seconds=0.01)(make_scope(), never_sends, send)
        assert [] == ends
        may_end.set()
        return int(sent[0]["status"])

    assert 503 == asyncio.run(request())


def test_incomplete_response_aborts_the_connection() -> None:
    with pytest.raises(ConnectionAbortedError):
        call(RequestLimits(stops_midway, request_seconds=0.01), make_scope())


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/jobs/4711", 200), ("/jobs/1", 404), ("/api/v2/jobs", 200), ("/healthz", 200)]
)
def test_head_is_get_without_the_body(path: str, status: int) -> None:
    app = protect(make_backend().make_app(), identity_header=IDENTITY_HEADER)
    got, head = (call(app, make_scope((USER_HEADER, "ada"), method=method, path=path)) for method in ("GET", "HEAD"))
    assert (status, got.status) == (head.status, status)
    assert b"" == head.body
    assert dict(got.headers) == dict(head.headers)
    assert len(got.body) == int(dict(head.headers)["content-length"])


def test_other_methods_are_not_allowed() -> None:
    app = protect(make_backend().make_app(), identity_header=IDENTITY_HEADER)
    assert 405 == call(app, make_scope((USER_HEADER, "ada"), method="POST", path="/jobs")).status
