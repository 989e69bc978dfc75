# SPDX-License-Identifier: Apache-2.0
"""Apply one deadline to all reads of a socket, however slowly the bytes arrive."""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def seconds_left(deadline: float) -> float:
    """Return the time until a monotonic deadline; raise TimeoutError when it has passed."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


class DeadlineSocket:
    """Give HTTPResponse a socket with a deadline: a socket's own timeout restarts with every byte."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        """Wrap a connection, which the caller closes."""
        self._connection = connection
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the stream from which HTTPResponse reads."""
        return io.BufferedReader(_DeadlineReader(self._connection, self._deadline))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._connection.settimeout(seconds_left(self._deadline))
        return self._connection.recv_into(buffer)
