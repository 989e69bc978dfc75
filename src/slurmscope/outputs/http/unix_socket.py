# SPDX-License-Identifier: Apache-2.0
"""Listen on a unix socket that every user may connect to; the kernel says who does."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from slurmscope.errors import ConfigError
from slurmscope.outputs.http.address import BACKLOG

# Linux limits the path of a socket; the temporary name is a little longer than the final one.
_LONGEST_PATH_BYTES = 90


def open_unix_listener(path: Path) -> socket.socket:
    """Return a listening socket; raise ConfigError if it cannot be made.

    It is made under another name and moved into place, so clients never find a socket that refuses them, and a socket
    left behind by an agent that was killed is replaced.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(f"the path of the socket {path} is longer than {_LONGEST_PATH_BYTES} bytes")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        beside.chmod(0o666)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        beside.replace(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ConfigError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listener


def remove_socket(path: Path, inode: int) -> None:
    """Remove a socket, unless another one has taken its place."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()
