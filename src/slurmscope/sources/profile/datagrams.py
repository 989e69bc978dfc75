# SPDX-License-Identifier: Apache-2.0
"""Receive datagrams over a unix socket, with the user who sent each."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmscope.errors import SourceError
from slurmscope.log import escape
from slurmscope.sources.profile.events import MAX_DATAGRAM_BYTES

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
# Room for the credentials and nothing else: the kernel then discards descriptors that a sender attaches.
_ANCILLARY_BYTES = socket.CMSG_LEN(_CREDENTIALS.size)
# A burst may fill the queue as fast as it is emptied; what is left is received the next time.
_DATAGRAMS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Datagram:
    """Hold a datagram and the real uid of its sender; None if the kernel did not say."""

    content: bytes
    sender_uid: int | None


class PathInUse(SourceError):
    """Another process listens on the path."""


class DatagramSocket:
    """Listen on a path that only its owner and root can send to."""

    def __init__(self, path: Path) -> None:
        """Bind the path, and replace a socket that no process listens on any more; raise SourceError on failure."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            # Before bind: no datagram may arrive without credentials.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            _remove_dead_socket(path)
            self._socket.bind(str(path))
            path.chmod(0o600)
            self._inode = path.stat().st_ino
        except (OSError, ValueError) as error:
            self._socket.close()
            raise SourceError(f"cannot listen on {escape(str(path))}: {error}") from error
        except SourceError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self._socket.fileno()

    def receive(self) -> Iterator[Datagram]:
        """Yield what has arrived, without waiting."""
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                content, ancillary, _, _ = self._socket.recvmsg(MAX_DATAGRAM_BYTES + 1, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                raise SourceError(f"cannot receive on {escape(str(self._path))}: {error}") from error
            yield Datagram(content, _sender(ancillary))

    def close(self) -> None:
        """Stop listening, and remove the path unless another process has replaced it."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size:
            _, uid, _ = _CREDENTIALS.unpack(data)
            return int(uid)
    return None


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket that an earlier process left; raise SourceError if it is in use or not a socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SourceError(f"{escape(str(path))} exists and is not a socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise PathInUse(f"another process listens on {escape(str(path))}")
