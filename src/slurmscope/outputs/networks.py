# SPDX-License-Identifier: Apache-2.0
"""Parse lists of networks, and say whether a client is in one of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from slurmscope.settings import parse_list

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(given: object) -> tuple[Network, ...]:
    """Parse networks such as 127.0.0.0/8; the mask is required, so that no network is larger than intended."""
    networks = []
    for text in parse_list(given):
        if "/" not in text:
            raise ValueError(f"{text!r} has no mask; use for example 127.0.0.0/8")
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a network such as 127.0.0.0/8: {error}") from error
    return tuple(networks)


def is_listed(peer: str, networks: Iterable[Network]) -> bool:
    """Return whether the address of a client is in one of the networks; what is not an address never is."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    return any(address in network for network in networks)
