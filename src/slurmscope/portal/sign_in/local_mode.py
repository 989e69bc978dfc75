# SPDX-License-Identifier: Apache-2.0
"""Let in the one person who runs the portal on their own machine."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.peers import Peer
from slurmscope.portal.scope import Scope, header_values, headers_of
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.sources.machine.connection_owner import Endpoint, find_owner

_OWN_HOST = re.compile(rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Residents:
    """Hold who on this machine is let in: ``name`` runs the portal, ``names`` says who a user number is."""

    name: str
    names: Mapping[int, str]
    owner_of: Callable[[Endpoint, Endpoint], int | None] = find_owner


def find_residents(settings: PortalSettings) -> Residents:
    """Name the user who runs this process, root, the local user and the administrators; it may ask a name service."""
    name = settings.local_user or _name_of(os.geteuid())
    names = {uid: admin for admin in (*settings.admins, name) if (uid := _uid_of(admin)) is not None}
    return Residents(name=name, names=names | {0: name, os.geteuid(): name})


class LocalMode:
    """Tell whether a request comes from this machine, and from nowhere else by way of it."""

    def __init__(self, settings: PortalSettings, residents: Residents) -> None:
        self._marks = _PROXY_HEADERS | {settings.proxy_header.lower().encode("ascii")}
        self._residents = residents

    def viewer(self, scope: Scope, peer: Peer) -> Viewer:
        """Return who is there, or refuse other machines, other users, other names of this machine, and proxies.

        A page of a stranger can make its own name point at 127.0.0.1 and let the browser read from us; the Host
        header then has that name. A proxy in front of the local mode would make everybody an administrator.
        """
        if not peer.is_on_this_machine:
            raise Refused("This portal serves one person on its own machine. Set portal.mode to proxy for more.")
        hosts = header_values(scope, "host")
        if len(hosts) != 1 or not _OWN_HOST.fullmatch(hosts[0]):
            raise Refused("This portal answers only under the names localhost, 127.0.0.1 and [::1].")
        if any(name in self._marks for name, _ in headers_of(scope)):
            raise Refused("This request came through a proxy. Set portal.mode to proxy to let one sign people in.")
        return Viewer(name=self._name(scope, peer), role=ViewerRole.ADMIN)

    def _name(self, scope: Scope, peer: Peer) -> str:
        """Name who opened the connection: on a login node, hundreds of people can reach its loopback address."""
        if peer.is_unix:
            # Only the user who runs the portal, and root, can open the socket (see web_server).
            return self._residents.name
        uid = self._residents.owner_of(cast("Endpoint", scope["client"]), cast("Endpoint", scope["server"]))
        if uid is None or uid not in self._residents.names:
            raise Refused("This portal belongs to another user of this machine.")
        return self._residents.names[uid]


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        # A container may run us under a number that has no name.
        return str(uid)


def _uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
