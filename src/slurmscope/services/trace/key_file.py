# SPDX-License-Identifier: Apache-2.0
"""Read and rotate the keys that sign job tokens; the file must not be readable by others."""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slurmscope.errors import ConfigError
from slurmscope.services.trace.tokens import KEY_BYTES, JobToken, make_token, parse_keys

LIVE_KEYS = 2
"""Keys that a rotation leaves in the file: the new one, and the one before it until its tokens have expired."""

_SIZE_LIMIT_BYTES = 16 * 1024
_CHECK_SECONDS = 1.0


class KeyFile:
    """Hold the keys of a file, and read it again when it changes."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file; raise ConfigError if it is invalid or others may read it."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp, self._keys = read_keys(path)
        self._checked_at = clock()

    def keys(self) -> Mapping[str, bytes]:
        """Return the keys by name; none while the file is invalid, so that a lost file closes the way in."""
        with self._lock:
            if self._clock() - self._checked_at >= _CHECK_SECONDS:
                self._checked_at = self._clock()
                if _stamp(self._path) != self._stamp:
                    try:
                        self._stamp, self._keys = read_keys(self._path)
                    except ConfigError:
                        self._stamp, self._keys = None, {}
            return self._keys

    def sign(self, token: JobToken) -> str | None:
        """Return a token signed with the first key; None if there is no key or the node name is not valid."""
        for key_id, key in self.keys().items():
            try:
                return make_token(token, key_id, key)
            except ValueError:
                return None
        return None


_Stamp = tuple[int, int, int, int]


def read_keys(path: Path) -> tuple[_Stamp | None, dict[str, bytes]]:
    """Read a key file; raise ConfigError if it cannot be used."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            text = stream.read(_SIZE_LIMIT_BYTES)
    except OSError as error:
        advice = "; create it with slurmscope trace key" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}{advice}") from error
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        raise ConfigError(f"the key file {path} must be a file that only its owner may read: chmod 600 {path}")
    try:
        keys = parse_keys(text.decode("ascii"))
    except ValueError as error:
        what = "it is not ASCII text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"the key file {path} is invalid: {what}") from None
    return _stamp_of(status), keys


def rotate_keys(path: Path) -> str:
    """Put a new key first into the file, keep the one before it, drop older ones, and return its name."""
    lines = []
    if path.exists():
        lines = [f"{name} {key.hex()}" for name, key in read_keys(path)[1].items()]
    name = f"k{int(time.time())}-{secrets.token_hex(2)}"
    lines = [f"{name} {secrets.token_hex(KEY_BYTES)}", *lines][:LIVE_KEYS]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write("\n".join(lines) + "\n")
            if path.exists():
                status = path.stat()
                os.fchown(stream.fileno(), status.st_uid, status.st_gid)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        advice = f"; create the folder {path.parent}" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot write the key file {path}: {error.strerror}{advice}") from error
    return name


def _stamp(path: Path) -> _Stamp | None:
    try:
        return _stamp_of(path.stat())
    except OSError:
        return None


def _stamp_of(status: os.stat_result) -> _Stamp:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode
