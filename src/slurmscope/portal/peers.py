# SPDX-License-Identifier: Apache-2.0
"""Tell who is at the other end of a connection, and whether that address is on a list."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from slurmscope.portal.scope import Scope
from slurmscope.settings import parse_list

UNIX = "unix"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Be the other end: an address, our unix socket, or, with neither, somebody unknown."""

    address: IpAddress | None = None
    is_unix: bool = False

    def __str__(self) -> str:
        """Write the peer for messages and as the key of tables."""
        return UNIX if self.is_unix else str(self.address or "unknown")

    @property
    def is_on_this_machine(self) -> bool:
        """Tell whether only somebody on this machine can be there."""
        return self.is_unix or (self.address is not None and self.address.is_loopback)


UNKNOWN = Peer()


def read_peer(scope: Scope) -> Peer:
    """Return who the server says is at the other end.

    uvicorn gives no client for a unix socket, but also for a TCP connection that was reset before it looked; only
    the first has a server without a port. A client's port of 0 is no port of TCP: some layer put in what a header
    said.
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
    """Read an address; IPv4 written as IPv6 becomes IPv4, so that one list knows both."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def parse_peers(given: object) -> tuple[str, ...]:
    """Read a list of addresses, networks and the word unix."""
    words = parse_list(given)
    for word in words:
        if word != UNIX:
            _parse_network(word)
    return words


class PeerList:
    """Hold the peers that are believed."""

    def __init__(self, words: Sequence[str]) -> None:
        self._has_unix = UNIX in words
        self._networks = tuple(_parse_network(word) for word in words if word != UNIX)

    def __contains__(self, peer: Peer) -> bool:
        """Tell whether this peer is on the list; nobody unknown ever is."""
        if peer.is_unix:
            return self._has_unix
        address = peer.address
        return address is not None and any(address in network for network in self._networks)

    @property
    def has_addresses(self) -> bool:
        """Tell whether anybody but the unix socket is on the list."""
        return bool(self._networks)


def _parse_network(word: str) -> IpNetwork:
    try:
        network = ipaddress.ip_network(word)
    except ValueError:
        raise ValueError(f"{word!r} is not an address, a network such as 10.1.0.0/24, or unix") from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        network = ipaddress.ip_network((network.network_address.ipv4_mapped, network.prefixlen - 96))
    if network.prefixlen == 0:
        raise ValueError(f"{word!r} is everybody, and whoever is listed is believed")
    return network
