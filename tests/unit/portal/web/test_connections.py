# SPDX-License-Identifier: Apache-2.0
"""Too many waiting connections of one peer cost that peer its oldest ones."""

from __future__ import annotations

import asyncio
from typing import cast

from slurmscope.portal.web.connections import WaitingConnections


class FakeTransport:
    """Record that it was aborted."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def make_transports(count: int) -> list[asyncio.Transport]:
    return [cast("asyncio.Transport", FakeTransport()) for _ in range(count)]


def aborted(transports: list[asyncio.Transport]) -> list[int]:
    return [index for index, transport in enumerate(transports) if cast("FakeTransport", transport).is_aborted]


def test_oldest_connection_of_the_peer_with_most_is_aborted() -> None:
    waiting = WaitingConnections(max_waiting=4)
    other, flood = make_transports(1), make_transports(6)
    waiting.add("10.0.0.1", other[0])
    for transport in flood:
        waiting.add("10.0.0.2", transport)

    assert ([], [0, 1, 2], 4) == (aborted(other), aborted(flood), len(waiting))


def test_active_connection_is_not_the_oldest() -> None:
    waiting = WaitingConnections(max_waiting=2)
    first, second, third = transports = make_transports(3)
    for transport in (first, second, first, third):
        waiting.add("unix", transport)

    assert [1] == aborted(transports)


def test_busy_and_closed_connections_do_not_count() -> None:
    waiting = WaitingConnections(max_waiting=1)
    transports = make_transports(3)
    for transport in transports:
        waiting.add("unix", transport)
        waiting.remove("unix", transport)
        waiting.remove("unix", transport)

    assert ([], 0) == (aborted(transports), len(waiting))
