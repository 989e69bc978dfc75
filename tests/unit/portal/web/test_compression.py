# SPDX-License-Identifier: Apache-2.0
"""Responses are compressed for clients that accept it, unchanged ones are 304, and pages with a token stay plain."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest

from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.sign_in.csrf import FIELD
from slurmscope.portal.web.middleware import LARGE_BYTES, MIN_BYTES, Compression, accepts_gzip, protect
from tests.fakes.portal_backend import USER_HEADER, make_backend

PAGE = b"<p>words of a page</p>" * 100


def answering(*parts: bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **more: str) -> AsgiApp:
    async def app(_scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
        headers = {"content-type": kind, "content-length": str(sum(map(len, parts))), **more}
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        for index, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": index < len(parts) - 1})

    return app


def request(app: AsgiApp, *, method: str = "GET", **headers: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://portal.test") as client:
            return await client.request(method, "/", headers={name.replace("_", "-"): v for name, v in headers.items()})

    return asyncio.run(run())


@pytest.mark.parametrize("body", [PAGE, b"x" * (LARGE_BYTES + 1)])
def test_text_is_compressed_and_decodes_to_the_same_bytes(body: bytes) -> None:
    response = request(Compression(answering(body)), accept_encoding="br, gzip")
    assert ("gzip", "Accept-Encoding") == (response.headers["content-encoding"], response.headers["vary"])
    assert int(response.headers["content-length"]) < len(body) / 5
    assert body == response.content


@pytest.mark.parametrize(
    "app",
    [
        answering(PAGE, kind="application/pdf"),
        answering(PAGE, kind="image/png"),
        answering(b"x" * (MIN_BYTES - 1)),
        answering(PAGE, status=404),
        answering(gzip.compress(PAGE), content_encoding="gzip"),
    ],
)
def test_files_short_texts_errors_and_packed_bodies_are_left_alone(app: AsgiApp) -> None:
    plain = request(app, accept_encoding="gzip")
    sent = request(Compression(app), accept_encoding="gzip")
    assert plain.content == sent.content
    assert plain.headers.get("content-encoding") == sent.headers.get("content-encoding")


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0", "xgzip"])
def test_client_that_does_not_accept_gzip_gets_plain_text(accepted: str) -> None:
    response = request(Compression(answering(PAGE)), accept_encoding=accepted)
    assert "content-encoding" not in response.headers
    assert PAGE == response.content


@pytest.mark.parametrize("accepted", ["gzip", "GZIP", "*", "br;q=1.0, gzip;q=0.5, *;q=0"])
def test_client_that_accepts_gzip_in_any_spelling_gets_it(accepted: str) -> None:
    assert accepts_gzip({"headers": [(b"accept-encoding", accepted.encode())]})


def test_page_with_a_form_token_is_never_compressed() -> None:
    body = PAGE + f'<input type="hidden" name="{FIELD}" value="1.abc">'.encode()
    response = request(Compression(answering(body)), accept_encoding="gzip")
    assert "content-encoding" not in response.headers
    assert body == response.content


def test_form_of_a_user_page_is_not_compressed_but_the_cluster_is() -> None:
    backend = make_backend()
    app = protect(backend.make_app(), identity_header=backend.settings.proxy_header)

    async def run(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://portal.test") as client:
            return await client.get(path, headers={USER_HEADER: "ada", "accept-encoding": "gzip"})

    user, cluster = asyncio.run(run("/users/ada")), asyncio.run(run("/cluster"))
    assert FIELD in user.text
    assert (None, "gzip") == (user.headers.get("content-encoding"), cluster.headers.get("content-encoding"))


def test_unchanged_response_is_304_without_a_body() -> None:
    app = Compression(answering(PAGE))
    tag = request(app).headers["etag"]
    again = request(app, if_none_match=f'"other", {tag}')
    assert (304, b"", tag) == (again.status_code, again.content, again.headers["etag"])
    assert "content-type" not in again.headers
    assert 200 == request(Compression(answering(PAGE + b"new")), if_none_match=tag).status_code


def test_streamed_file_is_compressed_part_by_part() -> None:
    app = Compression(answering(PAGE, PAGE, kind="text/csv", content_disposition="attachment"))
    response = request(app, accept_encoding="gzip")
    assert "gzip" == response.headers["content-encoding"]
    assert "content-length" not in response.headers
    assert PAGE + PAGE == response.content
    assert PAGE + PAGE == request(app, accept_encoding="identity").content


def test_streamed_page_stays_plain() -> None:
    response = request(Compression(answering(PAGE, PAGE)), accept_encoding="gzip")
    assert "content-encoding" not in response.headers
    assert PAGE + PAGE == response.content


def test_head_and_post_are_passed_on() -> None:
    for method in ("HEAD", "POST"):
        response = request(Compression(answering(PAGE)), method=method, accept_encoding="gzip")
        assert "content-encoding" not in response.headers
        assert "etag" not in response.headers
