# SPDX-License-Identifier: Apache-2.0
"""Keep a connection to PostgreSQL from waiting for ever.

The server ends a statement that takes too long. But a server that hangs, or a network that swallows packets, ends
nothing, and psycopg would wait for hours.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import lru_cache
from typing import Any

import psycopg


@lru_cache(maxsize=16)
def bounded_connection(limit_seconds: float) -> type[psycopg.Connection[Any]]:
    """Return a kind of connection that is closed when one exchange with the server takes longer than this."""

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **named: Any) -> Any:
            return super().wait(self._hurry(gen), *arguments, **named)

        def _hurry(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            deadline = time.monotonic() + limit_seconds
            try:
                wanted = next(gen)
                while True:
                    # psycopg wakes several times a second, with a 0 when nothing has arrived.
                    ready = yield wanted
                    if not ready and time.monotonic() > deadline:
                        # In the middle of an exchange the connection is of no further use.
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server did not answer in time")
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

    return BoundedConnection
