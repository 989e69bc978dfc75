# SPDX-License-Identifier: Apache-2.0
"""Talk to a server byte by byte, with the standard library's parser as the judge of its answers."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from slurmscope.http.server.address import ListenHost

GENEROUS_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Hold one parsed response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def connect(address: ListenHost) -> socket.socket:
    """Open a connection that gives up late rather than never."""
    return socket.create_connection((address.host, address.port), timeout=GENEROUS_SECONDS)


def get(address: ListenHost, target: str = "/metrics", *, method: str = "GET", **headers: str) -> Answer:
    """Ask once on a connection of its own."""
    with connect(address) as sock:
        return ask(sock, target, method=method, **headers)


def ask(sock: socket.socket, target: str = "/metrics", *, method: str = "GET", **headers: str) -> Answer:
    """Ask once on an open connection."""
    lines = [f"{method} {target} HTTP/1.1", "Host: test"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    sock.sendall("\r\n".join((*lines, "", "")).encode())
    return read_answer(sock, method=method)


def read_answer(sock: socket.socket, *, method: str = "GET") -> Answer:
    """Read one response."""
    response = http.client.HTTPResponse(sock, method=method)
    try:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=headers, body=response.read())
    finally:
        response.close()


def exchange(address: ListenHost, data: bytes) -> bytes:
    """Send bytes, half-close, and return all that comes back; a reset ends it too."""
    with connect(address) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """Read until the other side ends it."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            received += data
    return bytes(received)


def status_of(reply: bytes) -> int:
    """Return the status of a raw response."""
    return int(reply.split(b" ", 2)[1])
