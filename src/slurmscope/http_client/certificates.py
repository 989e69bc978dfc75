# SPDX-License-Identifier: Apache-2.0
"""Hold the TLS context of connections to one server, and reload it when one of its files is replaced.

Reading the system's certificate authorities takes 25 ms of CPU, four times as long as encoding a request.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.http_client.request import tls_context

if TYPE_CHECKING:
    from ssl import SSLContext

FileState = tuple[int, ...]
"""Inode, time of the last change in nanoseconds, and size; empty if there is no such file."""


class Certificates:
    """Make contexts from files; any thread may."""

    def __init__(self, ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> None:
        """Take the paths; nothing is read yet. Without a CA file, the system's certificate authorities are used."""
        self._files = (ca_file, cert_file, key_file)
        self._lock = threading.Lock()
        self._states: tuple[FileState, ...] = ()
        self._context: SSLContext | None = None

    def context(self) -> SSLContext:
        """Return the context of the current files; raise ConfigError if one of them cannot be used."""
        # Before they are read: a file that is replaced meanwhile is read again next time.
        states = tuple(map(_state_of, (*self._files, *(() if self._files[0] else _system_paths()))))
        with self._lock:
            if self._context is None or states != self._states:
                self._context = None
                self._context, self._states = tls_context(*self._files), states
            return self._context


def _system_paths() -> tuple[str | None, ...]:
    from ssl import get_default_verify_paths  # 5 MB that an agent without TLS does not need

    paths = get_default_verify_paths()
    return paths.cafile, paths.capath


def _state_of(path: Path | str | None) -> FileState:
    try:
        status = Path(path).stat() if path else None
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size) if status else ()
