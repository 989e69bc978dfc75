# SPDX-License-Identifier: Apache-2.0
"""Close connections on which no request is completed: by default, uvicorn waits for its head without end."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""From the first moment of a connection, or the first byte of a later request, to the end of its head."""


class HeadDeadline(H11Protocol):
    """Be uvicorn's protocol with one more limit.

    Connections are counted, and beyond a number of them nobody is served. Who opens them and says nothing, or a byte
    now and then, would shut out everybody else. Between two requests uvicorn's own keep-alive time goes on to count.
    """

    head_seconds = HEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to count."""
        super().connection_made(transport)
        self._count()

    def data_received(self, data: bytes) -> None:
        """Count on, unless this was the end of a head."""
        super().data_received(data)
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count no more."""
        super().connection_lost(exc)
        self._stop()

    def _count(self) -> None:
        """Count from the first byte: further ones give no more time."""
        if self._is_answering or self.transport.is_closing():
            self._stop()
        elif self._head_timer is None and self.timeout_keep_alive_task is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def _is_answering(self) -> bool:
        """Tell whether a request is under way; how long that may take is limited by those who answer it."""
        # Before the first request, uvicorn has None there.
        return not getattr(self.cycle, "response_complete", True)
