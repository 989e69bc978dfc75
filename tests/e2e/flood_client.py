# SPDX-License-Identifier: Apache-2.0
"""Scrape an exporter over many kept connections at once, as fast as it answers, until the input ends.

Usage: ``flood_client.py SOURCE HOST PORT CONNECTIONS``. At the end it prints how many responses began, by status.
"""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
import sys

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
TAIL = b"0\r\n\r\n"


def main(source: str, host: str, port: int, connections: int) -> None:
    waiting, statuses = selectors.DefaultSelector(), collections.Counter[str]()

    def connect() -> None:
        sock = socket.create_connection((host, port), timeout=30, source_address=(source, 0))
        sock.setblocking(False)
        waiting.register(sock, selectors.EVENT_READ)
        sock.send(REQUEST)

    waiting.register(sys.stdin, selectors.EVENT_READ)
    for _ in range(connections):
        connect()
    print("flooding", flush=True)
    while True:
        for key, _ in waiting.select(1):
            if key.fileobj is sys.stdin:
                print(dict(statuses), flush=True)
                return
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            data = b""
            with contextlib.suppress(OSError):
                data = sock.recv(1 << 20)
            if data.startswith(b"HTTP/1.1 "):
                statuses[data[9:12].decode()] += 1
            if not data:
                waiting.unregister(sock)
                sock.close()
                connect()
            elif data.endswith(TAIL) or b"HTTP/1.1 503" in data:
                with contextlib.suppress(OSError):
                    sock.send(REQUEST)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
