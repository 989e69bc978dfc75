# SPDX-License-Identifier: Apache-2.0
"""Post samples to the trace socket over many connections at once, as fast as it answers, until the input ends.

Usage: ``flood_socket.py SOCKET JOB CONNECTIONS``. At the end it prints how many responses came, by status.
"""

from __future__ import annotations

import collections
import contextlib
import json
import selectors
import socket
import sys


def make_post(job_id: int) -> bytes:
    """Return a post as large as it may be."""
    body = json.dumps([{"job_id": job_id, "pid": pid, "command": "x" * 60} for pid in range(1, 500)]).encode()
    return (
        f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def main(path: str, job_id: int, connections: int) -> None:
    waiting, statuses, request = selectors.DefaultSelector(), collections.Counter[str](), make_post(job_id)

    def connect() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sock.connect(path)
        sock.setblocking(False)
        waiting.register(sock, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            sock.send(request)

    waiting.register(sys.stdin, selectors.EVENT_READ)
    sys.stdin.readline()
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
            if data and b"close" not in data:
                with contextlib.suppress(OSError):
                    sock.send(request)
            else:
                waiting.unregister(sock)
                sock.close()
                connect()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
