# SPDX-License-Identifier: Apache-2.0
"""Put the headers on every answer that keep browsers and caches from doing harm with it.

The name of the server's software is left out by the server itself: see ``web_server``.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
ALWAYS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    # For browsers that are too old for frame-ancestors.
    b"x-frame-options": b"DENY",
    # Addresses of pages have job numbers and user names in them: no other site is told where somebody comes from.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-embedder-policy": b"require-corp",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"x-robots-tag": b"noindex, nofollow",
}
PERSONAL = b"private, no-store"


class SecurityHeaders:
    """Wrap an ASGI application; also what it sends when it breaks passes through here.

    An answer is personal, and kept nowhere, unless it says otherwise itself, as static files do. ``identity_header`` is
    the header in which a proxy tells who looks: even a cache that keeps what it should not keeps it apart by person.
    """

    def __init__(self, app: AsgiApp, *, identity_header: str) -> None:
        self._app = app
        self._vary = f"Authorization, {identity_header}".encode("ascii")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on, and add to the head of the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._with_headers(message.get("headers", ()))}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _with_headers(self, given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        kept = [(name.lower(), value) for name, value in given if name.lower() not in ALWAYS]
        if not any(name == b"cache-control" for name, _ in kept):
            kept += [(b"cache-control", PERSONAL), (b"vary", self._vary)]
        return [*kept, *ALWAYS.items()]
