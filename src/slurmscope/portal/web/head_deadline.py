# SPDX-License-Identifier: Apache-2.0
"""Close connections that do not complete the head of a request in time.

uvicorn has no timeout for this (measured with 0.54: such a connection stays open until the client closes it), but
counts these connections: 1000 of them, and it answers every request with 503. The timeout is added around uvicorn's
protocol by watching the bytes in both directions, so that it depends on nothing inside uvicorn.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Time from opening a connection, or from the first byte of a later request, to the end of its head."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")


class HeadDeadline(asyncio.Protocol):
    """Forward everything to uvicorn's protocol, and close the connection if a head is not completed in time.

    From the end of a head until the response, ``RequestLimits`` limits the time; after it, uvicorn's keep-alive
    timeout does. The next received bytes belong to a new head.
    """

    head_seconds = HEAD_SECONDS

    def __init__(self, **options: Any) -> None:
        """Pass on the options with which uvicorn creates a protocol."""
        self._protocol = H11Protocol(**options)
        self._timer: asyncio.TimerHandle | None = None
        self._is_head_complete = False
        self._last_bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout."""
        self._transport = transport
        watched = _WatchedTransport(cast("asyncio.Transport", transport), self._expect_head)
        self._protocol.connection_made(cast("asyncio.Transport", watched))
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Start the timeout unless these bytes complete a head; further bytes do not extend it."""
        if not self._is_head_complete:
            received = self._last_bytes + data
            self._is_head_complete = _END_OF_HEAD.search(received) is not None
            self._last_bytes = received[-2:]
            if self._is_head_complete:
                self._stop_timer()
            elif self._timer is None:
                self._start_timer()
        self._protocol.data_received(data)

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
        self._protocol.connection_lost(exc)

    def _expect_head(self) -> None:
        """Take the next received bytes for a new head, because a response was started."""
        self._stop_timer()
        self._is_head_complete, self._last_bytes = False, b""

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
