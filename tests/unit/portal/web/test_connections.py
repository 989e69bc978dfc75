# SPDX-License-Identifier: Apache-2.0
"""Too many waiting connections of one peer cost that peer its oldest ones."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from typing import cast

from slurmscope.portal.web.connections import WaitingConnections, find_group


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


class FakeEnds(asyncio.Transport):
    """Have a client's and a server's address."""

    def __init__(self, client: object, server: object) -> None:
        super().__init__({"peername": client, "sockname": server})


def test_clients_share_the_limit_of_their_network_of_ipv6() -> None:
    server = ("2001:db8::1", 80, 0, 0)
    clients = ("2001:db8:0:5::1", "2001:db8:0:5:ffff::2", "2001:db8:0:6::1")
    first, second, other = (find_group(FakeEnds((client, 4000, 0, 0), server)) for client in clients)

    assert first == second != other
    assert "192.0.2.1" == find_group(FakeEnds(("::ffff:192.0.2.1", 4000, 0, 0), server))
    assert "unix" == find_group(FakeEnds("", "/run/portal.sock"))


def test_addresses_of_the_loopback_are_all_those_of_their_user() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        groups = set()
        for source in ("127.0.0.2", "127.0.0.3"):
            client = stack.enter_context(socket.create_connection(address, source_address=(source, 0)))
            groups.add(find_group(FakeEnds(client.getsockname(), address)))

    assert {f"uid {os.getuid()}"} == groups
