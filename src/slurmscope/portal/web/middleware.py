# SPDX-License-Identifier: Apache-2.0
"""Wrap the portal's ASGI application: security headers, request limits, and HEAD requests.

A page with a form token is never compressed: other text on it may come from the address, and the length of a compressed
page would reveal the token byte by byte (BREACH). Everything else that a page contains the viewer may see anyway.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool

from slurmscope.http.server import app as server_app
from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Scope, Send, header_values, iterate_headers
from slurmscope.portal.sign_in.csrf import FIELD
from slurmscope.portal.web.slow_results import PersonLimits

MIN_BYTES = 1000
LARGE_BYTES = 32 * 1024
"""Larger bodies are compressed in a thread, so that other requests do not wait."""

_LEVEL = 4
_GZIP_BITS = 16 + zlib.MAX_WBITS
_TYPES = (b"text/", b"application/json", b"image/svg+xml")
_SECRET = FIELD.encode()

Headers = list[tuple[bytes, bytes]]


class Compression:
    """Compress the body of successful GET responses for clients that accept gzip, and add its entity tag."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request, and compress the response."""
        if scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Response(scope, send).send)


class _Response:
    """Back the start of a response until its first part of the body is known."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: AsgiMessage | None = None
        self._packer: Any = None
        self._is_done = False

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] != "http.response.body" or self._is_done:
            await self._send(message)
        elif self._start is not None:
            await self._begin(self._start, message)
        else:
            await self._continue(message)

    async def _begin(self, start: AsgiMessage, message: AsgiMessage) -> None:
        self._start = None
        body, is_whole = message.get("body", b""), not message.get("more_body", False)
        headers: Headers = [(name.lower(), value) for name, value in start.get("headers", ())]
        if start["status"] != 200 or not _may_change(headers):
            self._is_done = True
            await self._send(start)
            await self._send(message)
        elif is_whole:
            await self._send_whole(start, headers, body)
        else:
            await self._begin_stream(start, headers, message)

    async def _send_whole(self, start: AsgiMessage, headers: Headers, body: bytes) -> None:
        self._is_done = True
        tag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'.encode()
        headers += [(b"etag", tag), (b"vary", b"Accept-Encoding")]
        if tag in b",".join(header_values(self._scope, "if-none-match")).replace(b", ", b",").split(b","):
            kept = [pair for pair in headers if pair[0] not in {b"content-length", b"content-type"}]
            await self._send({**start, "status": 304, "headers": kept})
            await self._send({"type": "http.response.body", "body": b""})
            return
        if len(body) >= MIN_BYTES and _SECRET not in body and accepts_gzip(self._scope):
            body = await run_in_threadpool(_pack, body) if len(body) > LARGE_BYTES else _pack(body)
            headers = [*(pair for pair in headers if pair[0] != b"content-length"), (b"content-encoding", b"gzip")]
            headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _begin_stream(self, start: AsgiMessage, headers: Headers, message: AsgiMessage) -> None:
        headers.append((b"vary", b"Accept-Encoding"))
        # Only files are streamed; a page would be checked for its token as a whole.
        is_file = any(name == b"content-disposition" for name, _ in headers)
        if not is_file or not accepts_gzip(self._scope):
            self._is_done = True
            await self._send({**start, "headers": headers})
            await self._send(message)
            return
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS)
        kept = [pair for pair in headers if pair[0] != b"content-length"]
        await self._send({**start, "headers": [*kept, (b"content-encoding", b"gzip")]})
        await self._continue(message)

    async def _continue(self, message: AsgiMessage) -> None:
        packed = self._packer.compress(message.get("body", b""))
        if not message.get("more_body", False):
            packed += self._packer.flush()
        await self._send({**message, "body": packed})


def accepts_gzip(scope: Scope) -> bool:
    """Return whether the client accepts gzip; a quality of 0 refuses it."""
    return server_app.accepts_gzip(b",".join(header_values(scope, "accept-encoding")).decode("latin-1"))


def _may_change(headers: Headers) -> bool:
    """Return whether a response is text that is not compressed yet."""
    types = [value for name, value in headers if name == b"content-type"]
    is_text = bool(types) and types[0].startswith(_TYPES)
    return is_text and not any(name in {b"content-encoding", b"etag"} for name, _ in headers)


def _pack(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    return packer.compress(body) + packer.flush()


MAX_BODY_BYTES = 64 * 1024
MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
REQUEST_SECONDS = 60.0

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
ALWAYS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    # For browsers that do not support frame-ancestors.
    b"x-frame-options": b"DENY",
    # Page addresses contain job IDs and user names: do not send them to other sites.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-embedder-policy": b"require-corp",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"x-robots-tag": b"noindex, nofollow",
}
PERSONAL = b"private, no-store"

_DIGITS = re.compile(rb"[0-9]{1,18}")

FRAMED = "/d-solo/slurmscope/job"
"""The only path that may be shown in a frame of another site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Which paths may be shown in frames, as a regular expression, and by which sites."""

    paths: str = ""
    parents: tuple[str, ...] = ()

    def headers(self, path: str) -> Mapping[bytes, bytes]:
        """Return the headers for a path; the older one has no list, and is left out where framing is allowed."""
        if not self.parents or not re.fullmatch(self.paths, path):
            return ALWAYS
        policy = CONTENT_SECURITY_POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {' '.join(self.parents)}")
        return {k: v for k, v in ALWAYS.items() if k != b"x-frame-options"} | {
            b"content-security-policy": policy.encode()
        }


def protect(app: AsgiApp, *, identity_header: str, framing: Framing | None = None) -> AsgiApp:
    """Wrap an application in everything that its responses need, including its error pages."""
    limited = RequestLimits(PersonLimits(HeadRequests(Compression(app))))
    return SecurityHeaders(limited, identity_header=identity_header, framing=framing or Framing())


class SecurityHeaders:
    """Add headers to every response that restrict what browsers and caches do with it.

    A response is personal, and not cached, unless it says otherwise, as static files do. ``identity_header`` is the
    header in which a proxy passes the user name: caches that ignore this must at least separate responses by user.
    """

    def __init__(self, app: AsgiApp, *, identity_header: str, framing: Framing) -> None:
        self._app = app
        self._framing = framing
        self._vary = f"Authorization, {identity_header}".encode("ascii")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request, and add the headers to the response."""

        async def send_with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                always = self._framing.headers(scope["path"])
                message = {**message, "headers": self._add_headers(message.get("headers", ()), always)}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _add_headers(
        self, given: list[tuple[bytes, bytes]], always: Mapping[bytes, bytes]
    ) -> list[tuple[bytes, bytes]]:
        kept = [(name.lower(), value) for name, value in given if name.lower() not in ALWAYS]
        if not any(name == b"cache-control" for name, _ in kept):
            kept += [(b"cache-control", PERSONAL), (b"vary", self._vary)]
        return [*kept, *always.items()]


class RequestLimits:
    """Reject requests that are too large, and end those that take too long.

    The time limit covers the whole request: reading it, building the response, and sending it. A thread that builds
    the response is not stopped; whatever that thread waits for has its own timeout.
    """

    def __init__(
        self, app: AsgiApp, *, max_body_bytes: int = MAX_BODY_BYTES, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._request_seconds = request_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request within its limits."""
        if _is_head_too_large(scope):
            await _send_text(send, 431, "The request headers are too large.")
        elif self._is_body_too_large(scope):
            await _send_text(send, 413, self._body_message)
        else:
            await self._forward(scope, receive, send)

    @property
    def _body_message(self) -> str:
        return f"The request body is larger than {self._max_body_bytes} bytes."

    def _is_body_too_large(self, scope: Scope) -> bool:
        return any(
            _DIGITS.fullmatch(value) is None or int(value) > self._max_body_bytes
            for value in header_values(scope, "content-length")
        )

    async def _forward(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        exchange = _Exchange(receive, send, self._max_body_bytes)
        try:
            async with asyncio.timeout(self._request_seconds):
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            await exchange.abort(503, "The request timed out. Try again later, or request less data.")
        except _BodyTooLarge:
            await exchange.abort(413, self._body_message)


class _BodyTooLarge(Exception):
    """The request body exceeds its limit."""


class _Exchange:
    """Count received bytes, and track whether a response was started."""

    def __init__(self, receive: Receive, send: Send, max_body_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._remaining_bytes = max_body_bytes
        self._is_started = False

    async def receive(self) -> AsgiMessage:
        message = await self._receive()
        self._remaining_bytes -= len(message.get("body", b""))
        self._check_body()
        return message

    async def send(self, message: AsgiMessage) -> None:
        # The form parser reports every exception as a malformed form, and would respond with that.
        self._check_body()
        self._is_started = True
        await self._send(message)

    def _check_body(self) -> None:
        if self._remaining_bytes < 0:
            raise _BodyTooLarge

    async def abort(self, status: int, text: str) -> None:
        """Send the error; if a response was already started, the server has to close the connection instead."""
        if self._is_started:
            raise ConnectionAbortedError(text)
        await _send_text(self._send, status, text)


class HeadRequests:
    """Serve HEAD like GET, without the body: the application's routes accept GET only."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward HEAD as GET; the response keeps the length of the body."""
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: AsgiMessage) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)


def _is_head_too_large(scope: Scope) -> bool:
    sizes = [len(name) + len(value) for name, value in iterate_headers(scope)]
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")  # type: ignore[arg-type]
    return len(sizes) > MAX_HEADERS or sum(sizes) + target > MAX_HEAD_BYTES


async def _send_text(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        # The rest of the request would be read only to be discarded.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
