# SPDX-License-Identifier: Apache-2.0
"""Read headers and the peer address from an ASGI scope."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from slurmscope.core.settings import parse_list

Scope = Mapping[str, object]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

UNIX = "unix"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def iterate_headers(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    """Yield every header with its name in lower case; repeated headers are yielded each time."""
    for name, value in cast("list[tuple[bytes, bytes]]", scope.get("headers", ())):
        yield name.lower(), value


def header_values(scope: Scope, name: str) -> tuple[bytes, ...]:
    wanted = name.lower().encode("ascii")
    return tuple(value for found, value in iterate_headers(scope) if found == wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Identify the other end of a connection: an IP address, the unix socket, or neither if unknown."""

    address: IpAddress | None = None
    is_unix: bool = False

    def __str__(self) -> str:
        """Return the peer as text, for messages and as a table key."""
        return UNIX if self.is_unix else str(self.address or "unknown")

    @property
    def is_local(self) -> bool:
        """Return whether the peer runs on this machine."""
        return self.is_unix or (self.address is not None and self.address.is_loopback)


UNKNOWN = Peer()


def read_peer(scope: Scope) -> Peer:
    """Return the peer as reported by the server.

    uvicorn reports no client for a unix socket, but also none for a TCP connection that was reset early; only the
    unix socket has a server without a port. A client port of 0 is not a TCP port: some layer took the address from a
    header.
    """
    client, server = scope.get("client"), scope.get("server")
    if client is None:
        has_path = isinstance(server, tuple | list) and len(server) == 2 and server[1] is None
        return Peer(is_unix=True) if has_path else UNKNOWN
    if not isinstance(client, tuple | list) or len(client) != 2 or not client[1]:
        return UNKNOWN
    address = parse_ip(str(client[0]))
    return UNKNOWN if address is None else Peer(address=address)


def parse_ip(text: str) -> IpAddress | None:
    """Parse an IP address; IPv4-mapped IPv6 addresses become IPv4, so that one list covers both."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def parse_peers(given: object) -> tuple[str, ...]:
    """Parse a list of addresses, networks and the word unix."""
    words = parse_list(given)
    for word in words:
        if word != UNIX:
            _parse_network(word)
    return words


class PeerList:
    """Match peers against a list of addresses and networks."""

    def __init__(self, words: Sequence[str]) -> None:
        self._has_unix = UNIX in words
        self._networks = tuple(_parse_network(word) for word in words if word != UNIX)

    def __contains__(self, peer: Peer) -> bool:
        """Return whether this peer is listed; an unknown peer never is."""
        if peer.is_unix:
            return self._has_unix
        address = peer.address
        return address is not None and any(address in network for network in self._networks)

    @property
    def has_addresses(self) -> bool:
        """Return whether the list names anything but the unix socket."""
        return bool(self._networks)


def _parse_network(word: str) -> IpNetwork:
    try:
        network = ipaddress.ip_network(word)
    except ValueError:
        raise ValueError(f"{word!r} is not an address, a network such as 10.1.0.0/24, or unix") from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        network = ipaddress.ip_network((network.network_address.ipv4_mapped, network.prefixlen - 96))
    if network.prefixlen == 0:
        raise ValueError(f"{word!r} covers every address, and all listed peers are trusted")
    return network
