# SPDX-License-Identifier: Apache-2.0
"""Find out who looks at the portal.

There are three ways in. A token in the Authorization header works always. In the proxy mode, a listed proxy tells the
name; in the local mode, the one person on this machine needs none. There are no cookies and no sessions, so there is
nothing to steal, fix or forget.
"""

from __future__ import annotations

from dataclasses import replace

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.peers import Peer, read_peer
from slurmscope.portal.scope import Scope
from slurmscope.portal.settings import LOCAL, PortalSettings
from slurmscope.portal.sign_in.bearer_token import BearerTokens, Tokens, read_token
from slurmscope.portal.sign_in.coordinated_accounts import ReadCoordinatedAccounts
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, SignInError, TooManyFailures
from slurmscope.portal.sign_in.limits import SignInLimits
from slurmscope.portal.sign_in.local_mode import LocalMode, Residents, find_residents
from slurmscope.portal.sign_in.proxy_header import ProxyHeader, client_behind

__all__ = ["Identifier", "NotSignedIn", "Refused", "SignInError", "TooManyFailures"]


class Identifier:
    """Turn a request into a viewer. Safe to use from any thread; it may ask the archive and Slurm."""

    def __init__(
        self,
        settings: PortalSettings,
        tokens: Tokens,
        coordinators: ReadCoordinatedAccounts,
        limits: SignInLimits,
        *,
        residents: Residents | None = None,
    ) -> None:
        """Take the settings; who is let in by the local mode is found out unless it is told."""
        self._settings = settings
        self._tokens = BearerTokens(tokens, limits)
        self._coordinators = coordinators
        self._proxy = ProxyHeader(settings)
        self._local = LocalMode(settings, residents or find_residents(settings)) if settings.mode == LOCAL else None

    def identify(self, scope: Scope) -> Viewer:
        """Return who sent this request, or raise NotSignedIn (401), Refused (403) or TooManyFailures (429)."""
        peer = read_peer(scope)
        user = self._proxied_user(scope, peer)
        if user is not None:
            return self._with_accounts(Viewer(name=user, role=self._role(user)))
        token = read_token(scope)
        if token is not None:
            return self._with_accounts(self._tokens.viewer(token, self._client(scope, peer)))
        if self._local is not None:
            return self._local.viewer(scope, peer)
        raise NotSignedIn("You are not signed in.")

    def is_by_token(self, scope: Scope) -> bool:
        """Tell whether it is a token that identifies this request.

        A browser never sends one of its own accord. A proxy may add one of its own to what it passes on, which is
        why a name that the proxy tells goes first.
        """
        return self._proxied_user(scope, read_peer(scope)) is None and read_token(scope) is not None

    def _proxied_user(self, scope: Scope, peer: Peer) -> str | None:
        return self._proxy.user(scope, peer) if self._local is None else None

    def _client(self, scope: Scope, peer: Peer) -> str:
        is_behind_proxy = self._local is None and self._proxy.believes(peer)
        return client_behind(scope, peer) if is_behind_proxy else str(peer)

    def _role(self, user: str) -> ViewerRole:
        if user in self._settings.admins:
            return ViewerRole.ADMIN
        return ViewerRole.SUPPORT if user in self._settings.support else ViewerRole.USER

    def _with_accounts(self, viewer: Viewer) -> Viewer:
        """Add the accounts that somebody coordinates; staff see everything anyway."""
        return viewer if viewer.is_staff else replace(viewer, coordinates=self._coordinators(viewer.name))
