# SPDX-License-Identifier: Apache-2.0
"""Authenticate API tokens, and throttle clients that guess them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, TooMany

MAX_FAILURES = 5
PERIOD_SECONDS = 15 * 60.0
MAX_CLIENTS = 10_000

FindToken = Callable[[str], Viewer | None]
"""Return the owner of a token; None if it is unknown, revoked or expired. May raise ``ArchiveError``.

Tokens must be looked up by hash, so that the time this takes reveals nothing about other tokens.
"""

# RFC 6750 calls this b64token; ours are shorter than 128 characters.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,256}=*")


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
