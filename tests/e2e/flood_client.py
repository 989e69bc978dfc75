# SPDX-License-Identifier: Apache-2.0
"""Misuse an exporter over many connections at once, until the input ends.

Usage: ``flood_client.py SOURCE HOST PORT CONNECTIONS KIND...``. Each connection is from another address, the first one
from SOURCE, and of one of the kinds: ``scrape`` requests the page as fast as it is answered, ``unread`` requests it and
reads nothing, ``slow`` sends a head byte by byte, ``garbage`` sends what is no request, ``guess`` sends a new password
each time, ``new`` needs a connection for each request, ``part`` requests ever other parts of the page. In the end it
prints how many responses began, by status.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import ipaddress
import itertools
import selectors
import socket
import sys
from collections.abc import Sequence

COLLECTORS = ("jobs", "nodes", "scheduler", "limits", "shares", "licenses", "reservations", "controller")
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
TAIL = b"0\r\n\r\n"


class Flood:
    """All connections, and what came back."""

    def __init__(self, source: str, address: tuple[str, int]) -> None:
        self.statuses = collections.Counter[str]()
        self._sources = itertools.count(int(ipaddress.ip_address(source)))
        self._address = address
        self._numbers = itertools.count()
        self.waiting = selectors.DefaultSelector()

    def connect(self, kind: str) -> None:
        source = str(ipaddress.ip_address(next(self._sources)))
        sock = socket.create_connection(self._address, timeout=30, source_address=(source, 0))
        sock.setblocking(False)
        self.waiting.register(sock, selectors.EVENT_WRITE if kind == "slow" else selectors.EVENT_READ, kind)
        self._send(sock, kind)

    def go_on(self, sock: socket.socket, kind: str) -> None:
        """Read a response and send the next request, or the next byte of a slow one."""
        if kind == "slow":
            self._send(sock, kind)
            return
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(1 << 20) if kind != "unread" else sock.recv(1, socket.MSG_PEEK)
        if data.startswith(b"HTTP/1.1 "):
            self.statuses[data[9:12].decode()] += 1
        if not data or kind == "new":
            self._replace(sock, kind)
        elif kind == "unread":
            self.waiting.modify(sock, selectors.EVENT_WRITE, "idle")
        elif data.endswith(TAIL) or data.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")):
            self._send(sock, kind)

    def _send(self, sock: socket.socket, kind: str) -> None:
        number = next(self._numbers)
        password = base64.b64encode(b"a:guess%d" % number).decode()
        guess = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {password}\r\n\r\n".encode()
        data = {
            "slow": b"G" if number % 1000 else b"\r\n",
            "garbage": b"\x16\x03\0" * 1000 + b"\r\n\r\n",
            "guess": guess,
            "part": SCRAPE.replace(b"/metrics", _part(number)),
        }
        try:
            sock.send(data.get(kind, SCRAPE))
        except OSError:
            self._replace(sock, kind)

    def _replace(self, sock: socket.socket, kind: str) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.waiting.unregister(sock)
        sock.close()
        with contextlib.suppress(OSError):
            self.connect(kind)


def _part(number: int) -> bytes:
    chosen = (name for bit, name in enumerate(COLLECTORS) if number >> bit & 1)
    return ("/metrics?" + "&".join(f"collect[]={name}" for name in chosen)).encode()


def main(source: str, host: str, port: int, connections: int, kinds: Sequence[str]) -> None:
    flood = Flood(source, (host, port))
    flood.waiting.register(sys.stdin, selectors.EVENT_READ, "end")
    for _, kind in zip(range(connections), itertools.cycle(kinds), strict=False):
        flood.connect(kind)
    print("flooding", flush=True)
    while True:
        for key, _ in flood.waiting.select(1):
            if key.data == "end":
                print(dict(flood.statuses), flush=True)
                return
            if key.data == "idle":
                flood.waiting.unregister(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                flood.go_on(key.fileobj, key.data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
