# SPDX-License-Identifier: Apache-2.0
"""Identify the viewer behind a request.

There are four ways to sign in. An API token in the Authorization header always works; a munge credential works for the
API, if the settings allow it. In proxy mode, a trusted proxy passes the user name; in local mode, the user on this
machine needs no credentials. There are no sessions and no cookie that identifies anyone, so there is nothing to
steal or to expire; the demo only lets its viewer give up rights (``view_as``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from slurmscope.log import fields
from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.scope import Peer, Scope, read_peer
from slurmscope.portal.settings import LOCAL, PortalSettings
from slurmscope.portal.sign_in.bearer_token import BearerTokens, FindToken, SignInLimits, read_token
from slurmscope.portal.sign_in.coordinated_accounts import ReadCoordinatedAccounts
from slurmscope.portal.sign_in.errors import NotSignedIn, SignInError
from slurmscope.portal.sign_in.local_mode import LocalMode, LocalUsers, find_local_users
from slurmscope.portal.sign_in.munge_credential import MungeCredentials, read_credential
from slurmscope.portal.sign_in.proxy_header import ProxyHeader, client_behind_proxy

logger = logging.getLogger(__name__)


class Identifier:
    """Turn a request into a viewer. Safe to use from any thread; it may query the archive and Slurm."""

    def __init__(  # noqa: PLR0913 - what each way to sign in needs
        self,
        settings: PortalSettings,
        find_token: FindToken,
        coordinators: ReadCoordinatedAccounts,
        limits: SignInLimits,
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
        """Return who sent this request, or raise NotSignedIn (401), Refused (403) or TooManyFailures (429)."""
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
