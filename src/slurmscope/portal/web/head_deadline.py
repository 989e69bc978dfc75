# SPDX-License-Identifier: Apache-2.0
"""Close connections that do not complete the head of a request in time, or send one that is malformed.

uvicorn has no timeout for this (measured with 0.54: such a connection stays open until the client closes it), but
counts these connections: 1000 of them, and it answers every request with 503. The timeout, the limit of waiting
connections and the check of heads are added around uvicorn's protocol by watching the bytes in both directions, so
that they depend on nothing inside uvicorn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from slurmscope.outputs.http.request import BadRequest
from slurmscope.portal.web.request_framing import RequestFraming
from slurmscope.portal.web.waiting_connections import WaitingConnections

HEAD_SECONDS = 10.0
"""Time from opening a connection, or from the first byte of a later request, to the end of its head."""


class HeadDeadline(asyncio.Protocol):
    """Forward everything to uvicorn's protocol, and close the connection if a head is not completed in time.

    From the end of a head until the response, ``RequestLimits`` limits the time; after it, uvicorn's keep-alive
    timeout does. The next received bytes belong to a new head.
    """

    head_seconds = HEAD_SECONDS
    waiting = WaitingConnections()

    def __init__(self, **options: Any) -> None:
        """Pass on the options with which uvicorn creates a protocol."""
        self._protocol = H11Protocol(**options)
        self._framing = RequestFraming()
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._is_answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if isinstance(address, tuple) else "unix"
        watched = _WatchedTransport(self._transport, self._expect_head)
        self._protocol.connection_made(cast("asyncio.Transport", watched))
        self._start_timer()
        self.waiting.add(self._peer, self._transport)

    def data_received(self, data: bytes) -> None:
        """Forward whole heads and what follows them; start the timeout of an incomplete one, or reject a bad one."""
        if self._is_refused:
            return
        try:
            checked = self._framing.feed(data)
        except BadRequest as error:
            self._refuse(error)
            return
        if checked:
            self._stop_timer()
        if self._framing.has_begun and self._timer is None:
            self._start_timer()
        if self._framing.is_complete:
            self._is_answering = True
            self.waiting.remove(self._peer, self._transport)
        else:
            self.waiting.add(self._peer, self._transport)
        if checked:
            self._protocol.data_received(checked)

    def eof_received(self) -> None:
        """Forward the end of the client's data."""
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Forward that the send buffer is full."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward that the send buffer has room again."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_timer()
        self.waiting.remove(self._peer, self._transport)
        self._protocol.connection_lost(exc)

    def _expect_head(self) -> None:
        """Take the connection for idle, because a response was started."""
        self._is_answering = False
        if not self._framing.has_begun:
            self._stop_timer()
        self.waiting.add(self._peer, self._transport)

    def _refuse(self, error: BadRequest) -> None:
        """Respond to a malformed head and close; nothing else of this connection is read."""
        self._is_refused = True
        self._stop_timer()
        if self._is_answering:
            # The client would take this for the response to its earlier request.
            self._transport.close()
            return
        body = f"{error.message}\n".encode()
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.head_seconds, self._transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _WatchedTransport:
    """Report each write, and forward everything to the transport."""

    def __init__(self, transport: asyncio.Transport, on_write: Callable[[], None]) -> None:
        self._transport = transport
        self._on_write = on_write

    def write(self, data: bytes) -> None:
        self._on_write()
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
