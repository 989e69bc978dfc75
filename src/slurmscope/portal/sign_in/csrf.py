# SPDX-License-Identifier: Apache-2.0
"""Keep other sites from sending forms in a viewer's name.

Whoever signs people in, the browser sends that proof along with every request, also with those that another site
makes it send. So a form carries a token that only our own pages can know: a keyed hash of the viewer's name and the
time. Nothing is stored. Beside that, the browser's own word on where the request comes from is heard.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from slurmscope.model.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import Refused

LIFETIME_SECONDS = 12 * 3600
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FIELD = "csrf_token"
"""Name of the form field."""

_TOKEN = re.compile(r"(?P<issued>[0-9]{1,12})\.(?P<digest>[0-9a-f]{64})")


class Csrf:
    """Give out tokens for forms and check them. Safe to use from any thread."""

    def __init__(
        self, secret: bytes, *, is_by_token: Callable[[Scope], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """Take a secret of 32 random bytes, the same in every process that serves this portal."""
        self._secret = secret
        self._is_by_token = is_by_token
        self._clock = clock

    def issue(self, viewer: Viewer) -> str:
        """Return a token for the forms on one page."""
        issued = str(int(self._clock()))
        return f"{issued}.{self._digest(viewer, issued)}"

    def check(self, viewer: Viewer, token: str, scope: Scope) -> None:
        """Refuse a request that wants to change something unless it came from our own page of this viewer.

        Programs that show an API token need none of this: no browser sends such a token of its own accord.
        """
        if scope.get("method") in SAFE_METHODS:
            raise Refused("Nothing is changed by following a link. Use the form.")
        if self._is_by_token(scope):
            return
        _check_site(scope)
        if not self._is_good(viewer, token):
            raise Refused("This form is too old or not yours. Load the page again, then send it again.")

    def _is_good(self, viewer: Viewer, token: str) -> bool:
        match = _TOKEN.fullmatch(token)
        if match is None or not 0 <= self._clock() - int(match["issued"]) <= LIFETIME_SECONDS:
            return False
        return hmac.compare_digest(self._digest(viewer, match["issued"]), match["digest"])

    def _digest(self, viewer: Viewer, issued: str) -> str:
        # The time has digits only, so the first blank ends it whatever the name is.
        return hmac.new(self._secret, f"{issued} {viewer.name}".encode(), hashlib.sha256).hexdigest()


def _check_site(scope: Scope) -> None:
    """Refuse what the browser says was sent by another site; old browsers and programs say nothing.

    Browsers send Sec-Fetch-Site only over TLS and to this machine itself; elsewhere they send Origin, which must
    then be the Host that was asked: a proxy has to pass that on.
    """
    sites = header_values(scope, "sec-fetch-site")
    if sites:
        if set(sites) <= {b"same-origin", b"none"}:
            return
        raise Refused("This request was sent by another site.")
    origins, hosts = header_values(scope, "origin"), header_values(scope, "host")
    if origins and (len(origins) > 1 or len(hosts) != 1 or _host_of(origins[0]) != hosts[0].lower()):
        raise Refused("This request was sent by another site, or the proxy in front does not pass on the Host header.")


def _host_of(origin: bytes) -> bytes:
    try:
        parts = urlsplit(origin.decode("ascii"))
    except ValueError:
        return b""
    return parts.netloc.lower().encode() if parts.scheme in {"http", "https"} else b""
