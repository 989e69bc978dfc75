# SPDX-License-Identifier: Apache-2.0
"""Call an ASGI application directly, or serve it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from slurmscope.portal.run import make_server, open_listener
from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send
from slurmscope.portal.settings import ListenAddress, PortalSettings

GENEROUS_SECONDS = 30.0


@dataclass(slots=True)
class Sent:
    """Hold what an application sent."""

    messages: list[AsgiMessage] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in self.messages[0]["headers"]]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])


def call(app: AsgiApp, scope: MutableMapping[str, Any], blocks: Iterable[bytes] = (b"",)) -> Sent:
    """Send one request whose body arrives in blocks."""
    sent, left = Sent(), list(blocks)

    async def receive() -> AsgiMessage:
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message: AsgiMessage) -> None:
        sent.messages.append(message)

    asyncio.run(_call(app, scope, receive, send))
    return sent


async def _call(app: AsgiApp, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


@contextlib.contextmanager
def running(app: AsgiApp, settings: PortalSettings, listener: socket.socket | None = None) -> Iterator[socket.socket]:
    """Serve an application as the portal does, and yield the listening socket."""
    listener = listener or open_listener(ListenAddress(host="127.0.0.1", port=0))
    server = make_server(app, settings)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + GENEROUS_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        yield listener
    finally:
        server.should_exit = True
        thread.join(GENEROUS_SECONDS)
        assert not thread.is_alive()
        listener.close()
