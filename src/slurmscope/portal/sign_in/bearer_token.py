# SPDX-License-Identifier: Apache-2.0
"""Let in programs that show an API token."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from typing import Protocol

from slurmscope.model.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, TooManyFailures
from slurmscope.portal.sign_in.limits import SignInLimits

KNOWN_LIMIT = 1000

# RFC 6750 calls this b64token; ours are shorter than 128 characters.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,256}=*")


class Tokens(Protocol):
    """Know the tokens that were given out. What goes wrong is an ``ArchiveError``."""

    def find(self, token: str) -> Viewer | None:
        """Return whose token this is, or None when it is unknown, revoked or expired.

        Tokens are looked up by their hash, so that the time it takes tells nothing about other tokens.
        """
        ...


def read_token(scope: Scope) -> str | None:
    """Return what the Authorization header calls a bearer token; None when it has none or is of another kind."""
    values = header_values(scope, "authorization")
    if len(values) > 1:
        raise Refused("The Authorization header came more than once.")
    scheme, _, token = (values[0] if values else b"").decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


class BearerTokens:
    """Find out whose token was shown, and slow down guesses.

    Many people share an address: a login node, a proxy. While an address has to wait, tokens that were good before
    are still looked at, so that one wrong script does not shut out its neighbours. Safe to use from any thread.
    """

    def __init__(self, tokens: Tokens, limits: SignInLimits) -> None:
        self._tokens = tokens
        self._limits = limits
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def viewer(self, token: str, client: str) -> Viewer:
        """Return the owner of the token, or turn the client away and count that."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        wait_seconds = self._limits.wait_seconds(client)
        if wait_seconds and digest not in self._known:
            raise TooManyFailures(wait_seconds)
        found = self._tokens.find(token) if _TOKEN.fullmatch(token) else None
        self._remember(digest, is_good=found is not None)
        if found is None:
            self._limits.fail(client)
            raise NotSignedIn("This token is unknown, was revoked or has expired.")
        return found

    def _remember(self, digest: bytes, *, is_good: bool) -> None:
        with self._lock:
            self._known.pop(digest, None)
            if is_good:
                self._known[digest] = None
                while len(self._known) > KNOWN_LIMIT:
                    self._known.popitem(last=False)
