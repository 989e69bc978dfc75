# SPDX-License-Identifier: Apache-2.0
"""Limit connections that wait for their client: idle ones, and those with an incomplete request.

uvicorn has no timeout for this (measured with 0.54: such a connection stays open until the client closes it), but
counts these connections: 1000 of them, and it responds to every request with 503. The timeout, the limit of waiting
connections and the check of heads are added around uvicorn's protocol by watching the bytes in both directions, so
that they depend on nothing inside uvicorn.

uvicorn's parser accepts bare line feeds, folded headers, and a body with two lengths. A proxy in front may read such a
request differently, which is how requests are smuggled past its sign-in.

They cost nothing to open. uvicorn counts them, and responds to every request with 503 when there are too many.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from slurmscope.core.connection_owner import query_owner
from slurmscope.http.server.request import BadRequest, is_loopback, parse_head, peer_group

MAX_HEAD_BYTES = 64 * 1024

_END = b"\r\n\r\n"
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")


class RequestFraming:
    """Split what a client sends into requests; bytes of a head are held back until it is complete and checked."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body_left = 0

    @property
    def has_begun(self) -> bool:
        return bool(self._head)

    @property
    def is_complete(self) -> bool:
        """Return whether the client has sent whole requests only."""
        return not self._head and not self._body_left

    def feed(self, data: bytes) -> bytes:
        """Return what may be parsed; raise BadRequest for a head that is malformed, ambiguous or too long."""
        checked = bytearray()
        while data:
            if self._body_left:
                checked += data[: self._body_left]
                data, self._body_left = data[self._body_left :], max(0, self._body_left - len(data))
                continue
            end = self._find_end(data)
            if end < 0:
                break
            checked += self._head[:end]
            data = bytes(self._head[end:])
            self._head.clear()
        return bytes(checked)

    def _find_end(self, data: bytes) -> int:
        """Add to the head, and return where it ends; -1 if it is incomplete."""
        # Only what is new is searched: a head may arrive byte by byte.
        known = max(0, len(self._head) - len(_END) + 1)
        self._head += data
        end = self._head.find(_END, known)
        if _BARE_LINE_FEED.search(self._head, known, end if end >= 0 else len(self._head)):
            raise BadRequest(400, "A line of the request does not end with CRLF.")
        if max(end, len(self._head) if end < 0 else 0) > MAX_HEAD_BYTES:
            raise BadRequest(431, "The request headers are too large.")
        if end < 0:
            return -1
        self._body_left = _find_length(bytes(self._head[:end]))
        return end + len(_END)


def _find_length(head: bytes) -> int:
    request = parse_head(head)
    if "transfer-encoding" in request.headers:
        raise BadRequest(411, "A request body needs a Content-Length; Transfer-Encoding is not supported.")
    return int(request.headers.get("content-length", "0"))


MAX_WAITING = 500
"""Half of what uvicorn accepts, and of the usual limit of open files."""


class WaitingConnections:
    """Track waiting connections by peer; if there are too many, abort the oldest of the peer that has the most."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._by_peer: dict[str, dict[asyncio.Transport, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, peer: str, connection: asyncio.Transport) -> None:
        """Track a connection as the one that waits since now."""
        self.remove(peer, connection)
        self._by_peer.setdefault(peer, {})[connection] = None
        self._count += 1
        if self._count > self._max_waiting:
            busiest = max(self._by_peer, key=lambda peer: len(self._by_peer[peer]))
            oldest = next(iter(self._by_peer[busiest]))
            self.remove(busiest, oldest)
            # Not closed: it may have data that its client does not read.
            oldest.abort()

    def remove(self, peer: str, connection: asyncio.Transport) -> None:
        """Stop tracking a connection that is busy or closed."""
        connections = self._by_peer.get(peer, {})
        if connection in connections:
            del connections[connection]
            self._count -= 1
            if not connections:
                del self._by_peer[peer]


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
        self._is_responding = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout."""
        self._transport = cast("asyncio.Transport", transport)
        self._peer = find_group(self._transport)
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
            self._is_responding = True
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
        self._is_responding = False
        if not self._framing.has_begun:
            self._stop_timer()
        self.waiting.add(self._peer, self._transport)

    def _refuse(self, error: BadRequest) -> None:
        """Respond to a malformed head and close; nothing else of this connection is read."""
        self._is_refused = True
        self._stop_timer()
        if self._is_responding:
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


def find_group(transport: asyncio.Transport) -> str:
    """Return whose limit a connection counts against; see ``peer_group``."""
    client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not isinstance(client, tuple):
        return "unix"
    peer = str(client[0]).removeprefix("::ffff:")
    return peer_group(peer, query_owner(client[:2], server[:2]) if is_loopback(peer) else None)


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
