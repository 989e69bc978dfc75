# SPDX-License-Identifier: Apache-2.0
"""Read the user name from the header of a trusted proxy."""

from __future__ import annotations

from collections.abc import Set

from slurmscope.portal.scope import Peer, PeerList, Scope, header_values, iterate_headers, parse_ip
from slurmscope.portal.settings import USER_NAME, PortalSettings
from slurmscope.portal.sign_in.errors import Refused

MAX_NAME_BYTES = 256


class ProxyHeader:
    """Read the user name from the header that a listed proxy sets."""

    def __init__(self, settings: PortalSettings) -> None:
        self._name = settings.proxy_header.lower().encode("ascii")
        self._peers = PeerList(settings.proxy_peers)
        self._domains = frozenset(domain.lower() for domain in settings.strip_domain)

    def trusts(self, peer: Peer) -> bool:
        """Return whether this peer is a trusted proxy."""
        return peer in self._peers

    def find_user(self, scope: Scope, peer: Peer) -> str | None:
        """Return the user name, None without the header, or reject what looks like an attack.

        CGI servers treat ``X_Remote_User`` as ``X-Remote-User``: a proxy that replaces only one of them would forward
        the other, so its mere presence is rejected.
        """
        found = [(name, value) for name, value in iterate_headers(scope) if name.replace(b"_", b"-") == self._name]
        if not found:
            return None
        if not self.trusts(peer):
            raise Refused("The user name header is not trusted from this address.")
        if len(found) > 1 or found[0][0] != self._name:
            raise Refused("The user name header was sent more than once or in another spelling.")
        return parse_user(found[0][1], self._domains)


def parse_user(value: bytes, domains: Set[str]) -> str:
    """Parse a user name and strip a listed domain.

    Blanks and commas are rejected too: a server may have joined two headers with them.
    """
    if len(value) > MAX_NAME_BYTES:
        raise Refused(f"The user name is longer than {MAX_NAME_BYTES} bytes.")
    try:
        name = value.decode("ascii")
    except UnicodeDecodeError:
        raise Refused("The user name contains invalid characters.") from None
    user, at, domain = name.rpartition("@")
    if at and domain.lower() in domains:
        name = user
    if not USER_NAME.fullmatch(name):
        raise Refused("The user name is empty or contains invalid characters.")
    return name


def client_behind_proxy(scope: Scope, peer: Peer) -> str:
    """Name the client to count failures for: the address that a trusted proxy appended last, or the proxy itself.

    This address proves nothing; it only keeps one client's failures from locking out all others.
    """
    values = header_values(scope, "x-forwarded-for")
    last = values[-1].rpartition(b",")[2].strip().decode("latin-1") if values else ""
    address = parse_ip(last)
    return f"{peer} for {address}" if address is not None else str(peer)
