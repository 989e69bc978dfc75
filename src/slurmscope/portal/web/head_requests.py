# SPDX-License-Identifier: Apache-2.0
"""Answer HEAD like GET, without the body: checks and link testers ask that way."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send


class HeadRequests:
    """Wrap an ASGI application whose routes know GET only."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a HEAD on as GET; the head of the answer keeps the length that the body would have."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: AsgiMessage) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)
