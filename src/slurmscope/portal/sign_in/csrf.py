# SPDX-License-Identifier: Apache-2.0
"""Protect forms against cross-site request forgery.

However users sign in, the browser authenticates every request, including those that another site makes it send.
Therefore each form carries a token that only our own pages can know: a keyed hash of the viewer's name and the time.
Nothing is stored. In addition, the headers with which browsers report the origin of a request are checked.

It is random, and made by the first portal. Anyone who can read the archive can forge form tokens; these do not sign
anyone in, and the origin that the browser reports is checked as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from slurmscope.core.cache import Cache
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import Refused

NAME = "secret of form tokens"
RETRY_SECONDS = 30.0


class FormKey:
    """Return the secret, from any thread; one of this process alone while the archive is unreachable."""

    def __init__(self, create: Callable[[str, str], str], clock: Callable[[], float] = time.monotonic) -> None:
        """Take what stores a text under a name that has none, and returns the stored one; nothing is read yet."""
        self._create = create
        self._own = secrets.token_bytes(32)
        self._cache = Cache[bytes](float("inf"), retry_seconds=RETRY_SECONDS, clock=clock)

    def read(self) -> bytes:
        """Return the secret; without an archive, forms cannot be sent anyway."""
        try:
            return self._cache.get(None, self._read_shared)
        except ArchiveError:
            return self._own

    def _read_shared(self) -> bytes:
        return hashlib.sha256(self._create(NAME, secrets.token_hex(32)).encode()).digest()


LIFETIME_SECONDS = 12 * 3600
CLOCK_SKEW_SECONDS = 300
"""By how much the clocks of two portals may differ: a form of one may be sent to the other, whose clock is behind."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FIELD = "csrf_token"
"""Name of the form field."""

_TOKEN = re.compile(r"(?P<issued>[0-9]{1,12})\.(?P<digest>[0-9a-f]{64})")


class Csrf:
    """Issue and check form tokens. Safe to use from any thread."""

    def __init__(
        self,
        secret: Callable[[], bytes],
        *,
        is_by_token: Callable[[Scope], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what returns a secret of 32 bytes that every process that serves this portal shares."""
        self._secret = secret
        self._is_by_token = is_by_token
        self._clock = clock

    def issue(self, viewer: Viewer) -> str:
        """Return a token for the forms of one page."""
        issued = str(int(self._clock()))
        return f"{issued}.{self._digest(viewer, issued)}"

    def check(self, viewer: Viewer, token: str, scope: Scope) -> None:
        """Reject a request that changes something unless it came from this viewer's own page.

        Requests with an API token are exempt: browsers never send such a token by themselves.
        """
        if scope.get("method") in SAFE_METHODS:
            raise Refused("A link cannot change anything. Use the form.")
        if self._is_by_token(scope):
            return
        check_site(scope)
        if not self._is_valid(viewer, token):
            raise Refused("This form has expired. Reload the page, then submit it again.")

    def _is_valid(self, viewer: Viewer, token: str) -> bool:
        match = _TOKEN.fullmatch(token)
        if match is None or not -CLOCK_SKEW_SECONDS <= self._clock() - int(match["issued"]) <= LIFETIME_SECONDS:
            return False
        return hmac.compare_digest(self._digest(viewer, match["issued"]), match["digest"])

    def _digest(self, viewer: Viewer, issued: str) -> str:
        # The time has only digits, so the first blank ends it, whatever the name is.
        return hmac.new(self._secret(), f"{issued} {viewer.name}".encode(), hashlib.sha256).hexdigest()


def check_site(scope: Scope) -> None:
    """Reject a request that another site sent, according to the browser; old browsers and programs do not say.

    Browsers send Sec-Fetch-Site only over TLS and to the loopback address; otherwise they send Origin, which must
    match Host: a proxy has to forward that.
    """
    sites = header_values(scope, "sec-fetch-site")
    if sites:
        if set(sites) <= {b"same-origin", b"none"}:
            return
        raise Refused("This request was sent by another site.")
    origins, hosts = header_values(scope, "origin"), header_values(scope, "host")
    if origins and (len(origins) > 1 or len(hosts) != 1 or _host_of(origins[0]) != hosts[0].lower()):
        raise Refused("This request was sent by another site, or the proxy does not forward the Host header.")


def _host_of(origin: bytes) -> bytes:
    try:
        parts = urlsplit(origin.decode("ascii"))
    except ValueError:
        return b""
    return parts.netloc.lower().encode() if parts.scheme in {"http", "https"} else b""
