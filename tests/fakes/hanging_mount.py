# SPDX-License-Identifier: Apache-2.0
"""Serve a file system (FUSE) of one file, which never answers that the file may be closed.

A program that has the file open and starts another one hangs in the kernel, with its files in /proc, as with a file
server that is dead. Run as root: ``python -m tests.fakes.hanging_mount FOLDER`` mounts it, and says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

DEVICE = Path("/dev/fuse")
REQUEST = struct.Struct("<IIQQ")
REQUEST_BYTES = 1 << 17
# From linux/fuse.h.
LOOKUP, FORGET, GETATTR, OPEN, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 25, 26, 36, 42
ROOT, FILE = 1, 2
LONG_SECONDS = 3600
MOST_SECONDS = 60


def attributes(node: int) -> bytes:
    mode = 0o40755 if node == ROOT else 0o100666
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(operation: int, node: int) -> tuple[int, bytes] | None:
    """Return the error and the body; None if there is no answer."""
    if operation in (FLUSH, FORGET, BATCH_FORGET, INTERRUPT):
        return None
    bodies = {
        INIT: struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7),
        LOOKUP: struct.pack("<QQQQII", FILE, 0, LONG_SECONDS, LONG_SECONDS, 0, 0) + attributes(FILE),
        GETATTR: struct.pack("<QII", LONG_SECONDS, 0, 0) + attributes(node),
        OPEN: struct.pack("<QII", 1, 0, 0),
    }
    return (0, bodies[operation]) if operation in bodies else (-errno.ENOSYS, b"")


def serve(folder: str) -> None:
    device = os.open(DEVICE, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"hanging", folder.encode(), b"fuse", 0, options) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    # All of this machine's ps hang as long as that process does.
    signal.alarm(MOST_SECONDS)
    while True:
        _, operation, number, node = REQUEST.unpack_from(os.read(device, REQUEST_BYTES))
        if operation == FLUSH:
            print("hanging", flush=True)
        if (given := answer(operation, node)) is not None:
            os.write(device, struct.pack("<IiQ", 16 + len(given[1]), given[0], number) + given[1])


@dataclass(frozen=True)
class HangingMount:
    """The file, and the process that serves it."""

    file: Path
    server: Popen[str]

    def wait_hanging(self) -> None:
        assert "hanging\n" == self._line()

    def go_on(self) -> None:
        """End all requests, so that whoever hangs goes on."""
        self.server.kill()
        self.server.wait()

    def is_mounted(self) -> bool:
        return self._line() == "mounted\n"

    def _line(self) -> str:
        assert self.server.stdout
        return self.server.stdout.readline()


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[HangingMount | None]:
    """Mount the file system for the time of a block; None where this machine cannot."""
    with Popen([sys.executable, "-m", "tests.fakes.hanging_mount", str(folder)], stdout=PIPE, text=True) as server:
        mount = HangingMount(folder / "file", server)
        try:
            yield mount if mount.is_mounted() else None
        finally:
            mount.go_on()
            ctypes.CDLL(None).umount2(os.fsencode(folder), 2)


if __name__ == "__main__":
    serve(sys.argv[1])
