# SPDX-License-Identifier: Apache-2.0
"""Be a server that says what a test wants it to, on a loopback port or a unix socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

GENEROUS_SECONDS = 30.0

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def talking_server(talk: Talk, path: Path | None = None) -> Iterator[str]:
    """Talk to one connection after the other and give the address; the end of the server ends the last talk."""
    family = socket.AF_UNIX if path else socket.AF_INET
    is_over = threading.Event()
    with socket.socket(family) as listener:
        listener.bind(str(path) if path else ("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(GENEROUS_SECONDS)

        def accept() -> None:
            while not is_over.is_set():
                connection, _ = listener.accept()
                connection.settimeout(GENEROUS_SECONDS)
                with connection, contextlib.suppress(OSError):
                    if not is_over.is_set():
                        talk(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"unix:{path}" if path else f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            # Closing the listener does not wake a thread that waits in accept; one more visitor does.
            with socket.socket(family) as visitor:
                visitor.connect(listener.getsockname())
            thread.join(GENEROUS_SECONDS)
            assert not thread.is_alive()


def read_request(connection: socket.socket) -> str:
    """Read one request without a body."""
    received = b""
    while not received.endswith(b"\r\n\r\n") and (data := connection.recv(65536)):
        received += data
    return received.decode("latin-1")


def http_answer(status: int, body: bytes, *headers: str) -> bytes:
    """Write a response."""
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@dataclass(slots=True)
class FakeSlurmrestd:
    """Answer by path, as slurmrestd does, and remember what was asked."""

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def talk(self, connection: socket.socket) -> None:
        """Read one request and answer it; a path without an answer is not found."""
        request = read_request(connection)
        self.requests.append(request)
        path = request.split(" ", 2)[1]
        missing = (404, b"Unable find requested URL. Please view /openapi/v3 for API reference.")
        connection.sendall(http_answer(*self.answers.get(path, missing)))

    @property
    def paths(self) -> list[str]:
        """Return the paths that were asked for."""
        return [request.split(" ", 2)[1] for request in self.requests]

    def header(self, name: str) -> str | None:
        """Return a header of the last request."""
        lines = self.requests[-1].split("\r\n")
        return next((line.partition(": ")[2] for line in lines if line.lower().startswith(f"{name.lower()}: ")), None)
