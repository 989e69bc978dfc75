# SPDX-License-Identifier: Apache-2.0
"""Authenticate API tokens, and throttle clients that guess them."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, TooManyFailures

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


class SignInLimits:
    """Count failures by client: after ``max_failures`` within the period, the client has to wait.

    The client waits until the oldest of those failures is one period old. At most ``max_clients`` are tracked; the
    one that failed longest ago is dropped first. Safe to use from any thread.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_failures: int = MAX_FAILURES,
        period_seconds: float = PERIOD_SECONDS,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        self._clock = clock
        self._max_failures = max_failures
        self._period_seconds = period_seconds
        self._max_clients = max_clients
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of tracked clients."""
        return len(self._failures)

    def wait_seconds(self, client: str) -> int:
        """Return how many whole seconds this client has to wait; 0 if it may try."""
        with self._lock:
            times = self._failures.get(client)
            if times is None or len(times) < self._max_failures:
                return 0
            return max(0, math.ceil(times[0] + self._period_seconds - self._clock()))

    def record_failure(self, client: str) -> None:
        """Count one failure."""
        with self._lock:
            now = self._clock()
            self._drop_expired(now)
            # A full deque drops its oldest time: only the last few matter.
            times = self._failures.setdefault(client, deque(maxlen=self._max_failures))
            times.append(now)
            self._failures.move_to_end(client)
            while len(self._failures) > self._max_clients:
                self._failures.popitem(last=False)

    def _drop_expired(self, now: float) -> None:
        """Drop clients whose last failure has expired; clients are ordered by their last failure."""
        while self._failures:
            client, times = next(iter(self._failures.items()))
            if times[-1] + self._period_seconds > now:
                return
            del self._failures[client]


class BearerTokens:
    """Find the owner of a token, and make clients that guess wait.

    Many users share an address: a login node, a proxy. A valid token always works, also while its address has to wait,
    so that one broken script does not lock out others. Guessing is hopeless anyway: tokens are 32 random bytes. Safe
    to use from any thread.
    """

    def __init__(self, find_token: FindToken, limits: SignInLimits) -> None:
        self._find_token = find_token
        self._limits = limits

    def find_viewer(self, token: str, client: str) -> Viewer:
        """Return the owner of the token, or reject the client and count the failure."""
        found = self._find_token(token) if _TOKEN.fullmatch(token) else None
        if found is not None:
            return found
        wait_seconds = self._limits.wait_seconds(client)
        if wait_seconds:
            raise TooManyFailures(wait_seconds)
        self._limits.record_failure(client)
        raise NotSignedIn("This token is unknown, revoked or expired.")
