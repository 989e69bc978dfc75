# SPDX-License-Identifier: Apache-2.0
"""Run a server whose handler reads and writes raw bytes, on a loopback port or a unix socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.certificates import make_authority, make_identity

GENEROUS_SECONDS = 30.0

Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def scripted_server(handle: Handler, path: Path | None = None, *, host: str = "127.0.0.1") -> Iterator[str]:
    """Handle each connection in a thread of its own and yield the address of the server."""
    family = socket.AF_UNIX if path else socket.AF_INET6 if ":" in host else socket.AF_INET
    is_over = threading.Event()
    with socket.socket(family) as listener:
        listener.bind(str(path) if path else (host, 0))
        listener.listen()

        def accept() -> None:
            while not is_over.is_set():
                connection, _ = listener.accept()
                if is_over.is_set():
                    connection.close()
                else:
                    threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                    threads[-1].start()

        def serve(connection: socket.socket) -> None:
            connection.settimeout(GENEROUS_SECONDS)
            with connection, contextlib.suppress(OSError):
                handle(connection)

        threads = [threading.Thread(target=accept, daemon=True)]
        threads[0].start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"unix:{path}" if path else f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            # Closing the listener does not wake a thread that waits in accept; one more connection does.
            with socket.socket(family) as last:
                last.connect(listener.getsockname())
            for thread in threads:
                thread.join(GENEROUS_SECONDS)
            assert not any(thread.is_alive() for thread in threads)


@contextlib.contextmanager
def scripted_tls_server(handle: Handler, folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve with a certificate for 127.0.0.1; yield the address and the certificate of its authority."""
    authority = make_authority(folder, "authority")
    identity = make_identity(folder, "server", authority, "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)

    def secure(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            handle(secured)

    with scripted_server(secure) as url:
        yield url.replace("http:", "https:"), authority.cert


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    """Hold one request as it was received."""

    line: str
    headers: dict[str, str]
    body: bytes


def read_whole_request(connection: socket.socket) -> RawRequest:
    """Read one request with its body."""
    received = b""
    while b"\r\n\r\n" not in received and (data := connection.recv(65536)):
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    while len(body) < int(headers.get("Content-Length", "0")) and (data := connection.recv(65536)):
        body += data
    return RawRequest(line=first, headers=headers, body=body)


def read_request(connection: socket.socket) -> str:
    """Read one request without a body."""
    received = b""
    while not received.endswith(b"\r\n\r\n") and (data := connection.recv(65536)):
        received += data
    return received.decode("latin-1")


def http_answer(status: int, body: bytes, *headers: str) -> bytes:
    """Return the bytes of a response."""
    lines = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@dataclass(slots=True)
class FakeSlurmrestd:
    """Answer by path, as slurmrestd does, and keep the requests."""

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def handle(self, connection: socket.socket) -> None:
        """Read one request and answer it; a path without an answer is not found."""
        request = read_request(connection)
        self.requests.append(request)
        path = request.split(" ", 2)[1]
        missing = (404, b"Unable find requested URL. Please view /openapi/v3 for API reference.")
        connection.sendall(http_answer(*self.answers.get(path, missing)))

    @property
    def paths(self) -> list[str]:
        """Return the requested paths."""
        return [request.split(" ", 2)[1] for request in self.requests]

    def header(self, name: str) -> str | None:
        """Return a header of the last request."""
        lines = self.requests[-1].split("\r\n")
        return next((line.partition(": ")[2] for line in lines if line.lower().startswith(f"{name.lower()}: ")), None)
