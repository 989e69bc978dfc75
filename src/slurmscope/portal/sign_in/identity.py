# SPDX-License-Identifier: Apache-2.0
"""Identify the viewer behind a request.

There are four ways to sign in. An API token in the Authorization header always works; a munge credential works for the
API, if the settings allow it. In proxy mode, a trusted proxy passes the user name; in local mode, the user on this
machine needs no credentials. There are no sessions and no cookie that identifies anyone, so there is nothing to
steal or to expire; the demo only lets its viewer give up rights (``ViewAs``).

Only ``slurmscope demo`` passes choices to the portal; without them there is no route, and the cookie is never read.
"""

from __future__ import annotations

import logging
import math
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import cast

from slurmscope.core.connection_owner import Endpoint, find_owner
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.scope import Peer, PeerList, Scope, header_values, iterate_headers, parse_ip, read_peer
from slurmscope.portal.settings import LOCAL, USER_NAME, PortalSettings
from slurmscope.portal.sign_in.coordinators import ReadCoordinatedAccounts
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, SignInError, TooMany
from slurmscope.portal.sign_in.munge import MungeCredentials, read_credential

MAX_FAILURES = 5
PERIOD_SECONDS = 15 * 60.0
MAX_CLIENTS = 10_000

FindToken = Callable[[str], Viewer | None]
"""Return the owner of a token; None if it is unknown, revoked or expired. May raise ``ArchiveError``.

Tokens must be looked up by hash, so that the time this takes reveals nothing about other tokens.
"""

# RFC 6750 calls this b64token; ours are shorter than 128 characters.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,256}=*")

VIEW_COOKIE = "slurmscope-demo-view"
VIEW_PATH = "/demo/view-as"


def read_token(scope: Scope) -> str | None:
    """Return the bearer token of the Authorization header; None without one or for another scheme."""
    values = header_values(scope, "authorization")
    if len(values) > 1:
        raise Refused("The Authorization header was sent more than once.")
    scheme, _, token = (values[0] if values else b"").decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def limit_failures(clock: Callable[[], float] = time.monotonic) -> TokenBuckets:
    return TokenBuckets(MAX_FAILURES / PERIOD_SECONDS, MAX_FAILURES, max_keys=MAX_CLIENTS, clock=clock)


class BearerTokens:
    """Find the owner of a token, and make clients that guess wait.

    Many users share an address: a login node, a proxy. A valid token always works, also while its address has to wait,
    so that one broken script does not lock out others. Guessing is hopeless anyway: tokens are 32 random bytes. Safe
    to use from any thread.
    """

    def __init__(self, find_token: FindToken, limits: TokenBuckets) -> None:
        self._find_token = find_token
        self._limits = limits

    def find_viewer(self, token: str, client: str) -> Viewer:
        """Return the owner of the token, or reject the client and count the failure."""
        found = self._find_token(token) if _TOKEN.fullmatch(token) else None
        if found is not None:
            return found
        if wait_seconds := self._limits.take(client):
            raise TooMany("wrong tokens", math.ceil(wait_seconds))
        raise NotSignedIn("This token is unknown, revoked or expired.")


logger = logging.getLogger(__name__)


MAX_NAME_BYTES = 256


class ProxyHeader:
    """Read the user name from the header that a listed proxy sets."""

    def __init__(self, settings: PortalSettings) -> None:
        self._name = settings.proxy_header.lower().encode("ascii")
        self._peers = PeerList(settings.proxy_peers)
        self._domains = frozenset(domain.lower() for domain in settings.strip_domain)

    def trusts(self, peer: Peer) -> bool:
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


_OWN_HOST = re.compile(rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUsers:
    """The users with access in local mode: ``name`` runs the portal, ``names`` maps uids to user names."""

    name: str
    names: Mapping[int, str]
    find_owner: Callable[[Endpoint, Endpoint], int | None] = find_owner


def find_local_users(settings: PortalSettings) -> LocalUsers:
    """Look up the user of this process, root, the local user and the administrators; may query a name service."""
    name = settings.local_user or _find_name(os.geteuid())
    names = {uid: admin for admin in (*settings.admins, name) if (uid := find_uid(admin)) is not None}
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


def find_uid(name: str) -> int | None:
    """Return the uid of a user name; None if the system does not know it."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


class Identifier:
    """Turn a request into a viewer. Safe to use from any thread; it may query the archive and Slurm."""

    def __init__(  # noqa: PLR0913 - what each way to sign in needs
        self,
        settings: PortalSettings,
        find_token: FindToken,
        coordinators: ReadCoordinatedAccounts,
        limits: TokenBuckets,
        *,
        local_users: LocalUsers | None = None,
        munge: MungeCredentials | None = None,
        coordinated_clusters: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        """Store the settings; in local mode, ``local_users`` are looked up unless given.

        ``coordinated_clusters`` returns the clusters that the coordinators are of; None is every cluster.
        """
        self._munge = munge
        self._settings = settings
        self._tokens = BearerTokens(find_token, limits)
        self._coordinators = coordinators
        self._coordinated_clusters = coordinated_clusters
        self._proxy = ProxyHeader(settings)
        self._local = LocalMode(settings, local_users or find_local_users(settings)) if settings.mode == LOCAL else None

    def identify(self, scope: Scope) -> Viewer:
        """Return who sent this request, or raise NotSignedIn (401), Refused (403) or TooMany (429)."""
        peer = read_peer(scope)
        try:
            viewer = self._find_viewer(scope, peer)
        except SignInError as error:
            # Logged once an hour for each kind, with the number of repetitions; the reason repeats nothing from the
            # request, above all no token.
            client = self._name_client(scope, peer)
            logger.warning("sign-in refused", extra=fields(type(error).__name__, client=client, reason=error.reason))
            raise
        if viewer is None:
            raise NotSignedIn("You are not signed in.")
        return viewer

    def _find_viewer(self, scope: Scope, peer: Peer) -> Viewer | None:
        """Return the viewer; None if the request names none."""
        user = self._find_proxied_user(scope, peer)
        if user is not None:
            return self._add_accounts(Viewer(name=user, role=self._find_role(user)))
        token = read_token(scope)
        if token is not None:
            return self._add_accounts(self._tokens.find_viewer(token, self._name_client(scope, peer)))
        credential = read_credential(scope)
        if credential is not None and (self._munge is not None or self._local is None):
            return self._check_credential(credential, scope, peer)
        if self._local is not None:
            return self._local.find_viewer(scope, peer)
        return None

    def _check_credential(self, credential: str, scope: Scope, peer: Peer) -> Viewer:
        if self._munge is None:
            raise NotSignedIn("This portal does not accept munge credentials; use a token.")
        user = self._munge.find_user(credential, scope, self._name_client(scope, peer))
        return self._add_accounts(Viewer(name=user, role=self._find_role(user)))

    def is_by_token(self, scope: Scope) -> bool:
        """Return whether an API token identifies this request.

        Browsers never send one by themselves. A proxy may add its own token to forwarded requests; therefore the
        user name from the proxy takes precedence.
        """
        return self._find_proxied_user(scope, read_peer(scope)) is None and read_token(scope) is not None

    def _find_proxied_user(self, scope: Scope, peer: Peer) -> str | None:
        return self._proxy.find_user(scope, peer) if self._local is None else None

    def _name_client(self, scope: Scope, peer: Peer) -> str:
        is_behind_proxy = self._local is None and self._proxy.trusts(peer)
        return client_behind_proxy(scope, peer) if is_behind_proxy else str(peer)

    def _find_role(self, user: str) -> ViewerRole:
        if user in self._settings.admins:
            return ViewerRole.ADMIN
        return ViewerRole.SUPPORT if user in self._settings.support else ViewerRole.USER

    def _add_accounts(self, viewer: Viewer) -> Viewer:
        """Add the accounts that the viewer coordinates; staff see everything anyway."""
        if viewer.is_staff:
            return viewer
        accounts = self._coordinators(viewer.name)
        clusters = self._coordinated_clusters() if accounts else None
        return replace(viewer, coordinates=accounts, coordinated_clusters=clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoView:
    """One choice: its name in the form, its label, and whose rights it shows."""

    name: str
    label: str
    help: str
    viewer: Viewer


class ViewAs:
    """Replace the identified viewer by the one whom the cookie chooses; without a cookie, by the first."""

    path = VIEW_PATH

    def __init__(self, views: Sequence[DemoView], identify: Callable[[Scope], Viewer]) -> None:
        self._identify = identify
        self.views = tuple(views)
        self._by_name = {view.name: view for view in views}

    def identify(self, scope: Scope) -> Viewer:
        """Return the chosen viewer to the one who runs the demo; reject others, and unknown choices."""
        self.check_local(scope)
        name = _read_cookie(scope)
        return self.views[0].viewer if name is None else self.find(name).viewer

    def check_local(self, scope: Scope) -> None:
        """Reject a request from anyone but the user who runs the demo."""
        self._identify(scope)

    def find(self, name: str) -> DemoView:
        """Return a choice by its name, or reject the request."""
        if name not in self._by_name:
            raise Refused("The demo has no such viewer. Choose one at the top of the page.")
        return self._by_name[name]


def _read_cookie(scope: Scope) -> str | None:
    """Return the value of our cookie, also an empty or ambiguous one; None if there is none."""
    found = []
    for header in header_values(scope, "cookie"):
        for part in header.split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == VIEW_COOKIE.encode():
                found.append(value.decode("latin-1"))
    return found[0] if len(found) == 1 else "" if found else None
