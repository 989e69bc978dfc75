# SPDX-License-Identifier: Apache-2.0
"""Compress responses, and answer 304 to clients that already have them.

A page with a form token is never compressed: other text on it may come from the address, and the length of a compressed
page would reveal the token byte by byte (BREACH). Everything else that a page contains the viewer may see anyway.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import MutableMapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Scope, Send, header_values
from slurmscope.portal.sign_in.csrf import FIELD

MIN_BYTES = 1000
LARGE_BYTES = 32 * 1024
"""Larger bodies are compressed in a thread, so that other requests do not wait."""

_LEVEL = 4
_GZIP_BITS = 16 + zlib.MAX_WBITS
_TYPES = (b"text/", b"application/json", b"image/svg+xml")
_GZIP = re.compile(rb"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<q>[0-9.]{1,5}))?\s*(?:,|$)")
_SECRET = FIELD.encode()

Headers = list[tuple[bytes, bytes]]


class Compression:
    """Compress the body of successful GET responses for clients that accept gzip, and add its entity tag."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request, and compress the response."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Response(scope, send).send)


class _Response:
    """Hold back the start of a response until its first part of the body is known."""

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
    found = _GZIP.search(b",".join(header_values(scope, "accept-encoding")).lower())
    return found is not None and (found["q"] is None or bool(found["q"].strip(b"0.")))


def _may_change(headers: Headers) -> bool:
    """Return whether a response is text that is not compressed yet."""
    types = [value for name, value in headers if name == b"content-type"]
    is_text = bool(types) and types[0].startswith(_TYPES)
    return is_text and not any(name in {b"content-encoding", b"etag"} for name, _ in headers)


def _pack(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    return packer.compress(body) + packer.flush()
