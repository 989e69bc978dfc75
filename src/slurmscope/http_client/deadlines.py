# SPDX-License-Identifier: Apache-2.0
"""Read a whole HTTP answer before one moment, however slowly its bytes drip."""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def seconds_left(deadline: float) -> float:
    """Return the time until a monotonic moment; raise TimeoutError when it has passed."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


class DeadlineSocket:
    """Give HTTPResponse a socket that keeps to a deadline: its own limit starts anew with every byte."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        """Take a connection, which its owner closes."""
        self._connection = connection
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what the answer is read from."""
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
