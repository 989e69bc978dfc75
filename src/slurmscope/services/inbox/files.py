# SPDX-License-Identifier: Apache-2.0
"""Keep groups in a directory, one file each, so that a push costs one small file and survives any end of the process.

A file is written aside, synced and renamed. A file that cannot be read is left where it is and reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from slurmscope.errors import ConfigError, OutputError, SlurmscopeError
from slurmscope.log import fields
from slurmscope.outputs.textfile import write_textfile
from slurmscope.services.inbox.group import Group, Key, parse_group

logger = logging.getLogger(__name__)

SUFFIX = ".prom"
FILE_LIMIT_BYTES = 256 * 1024 * 1024
_LOCK = "lock"


class GroupFiles:
    """Own a directory; no other process may use it at the same time."""

    def __init__(self, directory: Path) -> None:
        """Lock the directory, which is created if needed; raise ConfigError if it cannot be used."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"push-inbox.directory {directory} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(f"push-inbox.directory {directory} is used by another process") from error

    def close(self) -> None:
        """Release the directory."""
        os.close(self._lock)

    def load(self) -> Iterator[Group]:
        """Yield the groups of an earlier process, and remove what it left half written."""
        for path in sorted(self._directory.iterdir()):
            if path.suffix == ".part" and path.name.startswith("."):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix == SUFFIX:
                try:
                    yield _read(path)
                except (OSError, SlurmscopeError) as error:
                    logger.error("pushed metrics are not restored", extra=fields(file=path, error=error))

    def save(self, group: Group) -> None:
        """Write a group to disk; raise OutputError if it may not survive a crash."""
        write_textfile(self._path(group.key), (group.content(),))

    def remove(self, key: Key) -> None:
        """Remove a group from disk."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{path} cannot be removed: {error.strerror}") from error

    def _path(self, key: Key) -> Path:
        return self._directory / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}{SUFFIX}"


def _read(path: Path) -> Group:
    # A pipe or a link in our own directory is not ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        return parse_group(stream.read(FILE_LIMIT_BYTES))
