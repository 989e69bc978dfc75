# SPDX-License-Identifier: Apache-2.0
"""Attack: 45 clients request the page of an exporter and never read it."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
import time
from contextlib import ExitStack
from pathlib import Path

from slurmscope.http.server.connection import ConnectionLimits
from tests.processes import PATIENCE_SECONDS, run_slurmscope, serving, until

CLIENTS = 45


def never_reading(address: str) -> socket.socket:
    """Request a page and leave it unread."""
    host, port = address.rsplit(":", 1)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(PATIENCE_SECONDS)
    sock.connect((host, int(port)))
    sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return sock


def unread_bytes(sock: socket.socket) -> int:
    """Return how much a client was sent, without reading it: the server would send the rest."""
    count = fcntl.ioctl(sock, termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", count)[0])


def test_scrapes_go_on_beside_clients_that_never_read(tmp_path: Path) -> None:
    simulated = ("simulate", "--output", str(tmp_path / "slurm"), "--jobs", "60000", "--nodes", "200")
    assert 0 == run_slurmscope(*simulated).returncode
    # A page of some megabytes, far more than the kernel takes for a client with a small window.
    flags = ("--slurm.bin-path", str(tmp_path / "slurm"), "--collector.job_info", "--slurm.private-data=ignore")

    with serving("cluster", *flags) as exporter, ExitStack() as stack:
        status, page = exporter.get()
        assert (200, True) == (status, len(page) > 1_000_000)
        clients = [stack.enter_context(never_reading(exporter.addresses[0])) for _ in range(CLIENTS)]
        # Requests are refused while a busy machine makes all these pages; then every slot waits for a client.
        until(lambda: len(select.select(clients, [], [], 0)[0]) == CLIENTS)
        started = time.monotonic()
        replies = [exporter.get() for _ in range(5)]
        took_seconds = time.monotonic() - started

        # Their slots would be free again when the time limit for sending is over.
        assert took_seconds < ConnectionLimits().write_seconds / 2
        assert [(200, True)] * 5 == [(status, "slurm_jobs{" in body) for status, body in replies]
        # They were attacking: their pages did not fit anywhere.
        assert max(map(unread_bytes, clients)) < len(page)
