# SPDX-License-Identifier: Apache-2.0
"""Limit connections that wait for their client: idle ones, and those with an incomplete request.

They cost nothing to open. uvicorn counts them, and answers every request with 503 when there are too many.
"""

from __future__ import annotations

import asyncio

MAX_WAITING = 500
"""Half of what uvicorn accepts, and of the usual limit of open files."""


class WaitingConnections:
    """Track waiting connections by peer; if there are too many, abort the oldest of the peer that has the most."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._by_peer: dict[str, dict[asyncio.Transport, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting connections."""
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
