# SPDX-License-Identifier: Apache-2.0
"""Identify the user who runs the portal on their own machine."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.scope import Peer, Scope, header_values, iterate_headers
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.sources.machine.connection_owner import Endpoint, find_owner

_OWN_HOST = re.compile(rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUsers:
    """Hold the users with access in local mode: ``name`` runs the portal, ``names`` maps uids to user names."""

    name: str
    names: Mapping[int, str]
    find_owner: Callable[[Endpoint, Endpoint], int | None] = find_owner


def find_local_users(settings: PortalSettings) -> LocalUsers:
    """Look up the user of this process, root, the local user and the administrators; may query a name service."""
    name = settings.local_user or _find_name(os.geteuid())
    names = {uid: admin for admin in (*settings.admins, name) if (uid := _find_uid(admin)) is not None}
    return LocalUsers(name=name, names=names | {0: name, os.geteuid(): name})


class LocalMode:
    """Accept requests that come directly from this machine, and only those."""

    def __init__(self, settings: PortalSettings, users: LocalUsers) -> None:
        self._proxy_headers = _PROXY_HEADERS | {settings.proxy_header.lower().encode("ascii")}
        self._users = users

    def find_viewer(self, scope: Scope, peer: Peer) -> Viewer:
        """Return the viewer, or reject other machines, other users, other host names, and proxies.

        A malicious page can let its own host name resolve to 127.0.0.1 and read from the portal through the browser;
        the Host header then has that name. A proxy in front of local mode would make every user an administrator.
        """
        if not peer.is_local:
            raise Refused("In local mode, the portal accepts connections from this machine only. Set portal.mode to "
                          "proxy to serve other users.")  # fmt: skip
        hosts = header_values(scope, "host")
        if len(hosts) != 1 or not _OWN_HOST.fullmatch(hosts[0]):
            raise Refused("In local mode, the portal is available as localhost, 127.0.0.1 and [::1] only.")
        if any(name in self._proxy_headers for name, _ in iterate_headers(scope)):
            raise Refused("This request came through a proxy. Set portal.mode to proxy to use a proxy for sign-in.")
        return Viewer(name=self._find_user(scope, peer), role=ViewerRole.ADMIN)

    def _find_user(self, scope: Scope, peer: Peer) -> str:
        """Return who opened the connection: on a login node, many users can reach the loopback address."""
        if peer.is_unix:
            # Only the user who runs the portal, and root, can open the socket (see web/server.py).
            return self._users.name
        uid = self._users.find_owner(cast("Endpoint", scope["client"]), cast("Endpoint", scope["server"]))
        if uid is None or uid not in self._users.names:
            raise Refused("This portal belongs to another user of this machine.")
        return self._users.names[uid]


def _find_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        # In a container, the uid may have no name.
        return str(uid)


def _find_uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
