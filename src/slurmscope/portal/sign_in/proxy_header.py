# SPDX-License-Identifier: Apache-2.0
"""Believe the name that a trusted proxy tells, and nobody else's."""

from __future__ import annotations

from collections.abc import Set

from slurmscope.portal.peers import Peer, PeerList, parse_ip
from slurmscope.portal.scope import Scope, header_values, headers_of
from slurmscope.portal.settings import USER_NAME, PortalSettings
from slurmscope.portal.sign_in.errors import Refused

NAME_LIMIT_BYTES = 256


class ProxyHeader:
    """Read the user's name out of the header of a listed proxy."""

    def __init__(self, settings: PortalSettings) -> None:
        self._name = settings.proxy_header.lower().encode("ascii")
        self._peers = PeerList(settings.proxy_peers)
        self._domains = frozenset(domain.lower() for domain in settings.strip_domain)

    def believes(self, peer: Peer) -> bool:
        """Tell whether what this peer says about others is believed."""
        return peer in self._peers

    def user(self, scope: Scope, peer: Peer) -> str | None:
        """Return the name, None when none was told, or refuse what looks like an attempt.

        Servers that speak CGI take ``X_Remote_User`` for ``X-Remote-User``: a proxy that replaces only one of them
        would let the other one through, so its mere presence is refused.
        """
        found = [(name, value) for name, value in headers_of(scope) if name.replace(b"_", b"-") == self._name]
        if not found:
            return None
        if not self.believes(peer):
            raise Refused("The header that tells a user's name is not believed from this address.")
        if len(found) > 1 or found[0][0] != self._name:
            raise Refused("The header that tells a user's name came more than once or under another spelling.")
        return parse_user(found[0][1], self._domains)


def parse_user(value: bytes, domains: Set[str]) -> str:
    """Read a user's name and take a listed domain off it.

    Blanks and commas are refused with the rest: a server may have joined two headers with them.
    """
    if len(value) > NAME_LIMIT_BYTES:
        raise Refused(f"The user's name is longer than {NAME_LIMIT_BYTES} bytes.")
    try:
        name = value.decode("ascii")
    except UnicodeDecodeError:
        raise Refused("The user's name has letters that no user name has.") from None
    user, at, domain = name.rpartition("@")
    if at and domain.lower() in domains:
        name = user
    if not USER_NAME.fullmatch(name):
        raise Refused("The user's name is empty or has letters that no user name has.")
    return name


def client_behind(scope: Scope, peer: Peer) -> str:
    """Return whom to hold responsible for failures behind a believed proxy: the address it appended last, or itself.

    This is never a proof of anything; it only keeps one client's mistakes from locking out all the others.
    """
    values = header_values(scope, "x-forwarded-for")
    last = values[-1].rpartition(b",")[2].strip().decode("latin-1") if values else ""
    address = parse_ip(last)
    return f"{peer} for {address}" if address is not None else str(peer)
