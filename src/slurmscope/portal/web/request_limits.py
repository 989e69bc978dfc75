# SPDX-License-Identifier: Apache-2.0
"""Answer requests that are too large or take too long with one sentence, before they cost much."""

from __future__ import annotations

import asyncio
import re
from collections.abc import MutableMapping
from typing import Any

from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Scope, Send, header_values, headers_of

BODY_LIMIT_BYTES = 64 * 1024
HEAD_LIMIT_BYTES = 32 * 1024
HEADER_LIMIT = 100
REQUEST_SECONDS = 60.0

_DIGITS = re.compile(rb"[0-9]{1,18}")


class RequestLimits:
    """Wrap an ASGI application.

    The time is for the whole request: reading it, making the answer, and the client taking it. A thread that works
    on the answer is not stopped by it; what that thread waits for has limits of its own.
    """

    def __init__(
        self, app: AsgiApp, *, body_limit_bytes: int = BODY_LIMIT_BYTES, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._app = app
        self._body_limit_bytes = body_limit_bytes
        self._request_seconds = request_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _is_head_too_large(scope):
            await _send_sentence(send, 431, "The head of the request is too large.")
        elif self._is_body_too_large(scope):
            await _send_sentence(send, 413, f"The request has more than {self._body_limit_bytes} bytes.")
        else:
            await self._pass_on(scope, receive, send)

    def _is_body_too_large(self, scope: Scope) -> bool:
        return any(
            _DIGITS.fullmatch(value) is None or int(value) > self._body_limit_bytes
            for value in header_values(scope, "content-length")
        )

    async def _pass_on(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        exchange = _Exchange(receive, send, self._body_limit_bytes)
        try:
            async with asyncio.timeout(self._request_seconds):
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            await exchange.give_up(503, "This took too long. Try again later, or ask for less.")
        except _BodyTooLarge:
            await exchange.give_up(413, f"The request has more than {self._body_limit_bytes} bytes.")


class _BodyTooLarge(Exception):
    """More came than may come."""


class _Exchange:
    """Count what comes in, and know whether an answer was begun."""

    def __init__(self, receive: Receive, send: Send, body_limit_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._left_bytes = body_limit_bytes
        self._has_begun = False

    async def receive(self) -> AsgiMessage:
        message = await self._receive()
        self._left_bytes -= len(message.get("body", b""))
        self._check_body()
        return message

    async def send(self, message: AsgiMessage) -> None:
        # Whoever reads forms takes every failure for a form that is not well made, and would answer that.
        self._check_body()
        self._has_begun = True
        await self._send(message)

    def _check_body(self) -> None:
        if self._left_bytes < 0:
            raise _BodyTooLarge

    async def give_up(self, status: int, sentence: str) -> None:
        """Say why; an answer that was begun cannot be taken back, so the server has to cut the connection."""
        if self._has_begun:
            raise ConnectionAbortedError(sentence)
        await _send_sentence(self._send, status, sentence)


def _is_head_too_large(scope: Scope) -> bool:
    sizes = [len(name) + len(value) for name, value in headers_of(scope)]
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")  # type: ignore[arg-type]
    return len(sizes) > HEADER_LIMIT or sum(sizes) + target > HEAD_LIMIT_BYTES


async def _send_sentence(send: Send, status: int, sentence: str) -> None:
    body = f"{sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        # What is left of the request would be read only to be thrown away.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
