# SPDX-License-Identifier: Apache-2.0
"""Load files again when they change."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

RETRY_SECONDS = 1.0
"""How long a failure is raised again before files that have not changed are read again."""

T = TypeVar("T")
Watch = Callable[[Path | str], None]
"""Call it before a file is read; a file that is replaced meanwhile is then noticed. It raises OSError for a pipe or a
device, whose reading could block forever, and accepts a file that does not exist."""


class WatchedFile(Generic[T]):
    """The content of one or several files, loaded again after a change; thread-safe."""

    def __init__(self, load: Callable[[Watch], T], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take what loads the content and calls its argument for each file; nothing is read yet."""
        self.last_good: T | None = None
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._stamps: dict[Path | str, tuple[int, ...]] = {}
        self._failure: Exception | None = None
        self._tried_at = float("-inf")

    def get(self) -> T:
        """Return the content of the current files; while they cannot be loaded, raise why."""
        with self._lock:
            if self._is_due():
                return self._reload()
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            assert self.last_good is not None  # noqa: S101 - loaded without a failure
            return self.last_good

    def reload(self) -> T:
        """Load the current files, changed or not."""
        with self._lock:
            return self._reload()

    def _is_due(self) -> bool:
        can_retry = self.last_good is None or self._failure is not None
        if can_retry and self._clock() - self._tried_at >= RETRY_SECONDS:
            return True
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())

    def _reload(self) -> T:
        self._tried_at, self._stamps = self._clock(), {}
        try:
            self.last_good = self._load(self._watch)
        except Exception as error:
            self._failure = error
            raise
        self._failure = None
        return self.last_good

    def _watch(self, path: Path | str) -> None:
        self._stamps[path] = _stamp(path)
        if self._stamps[path] and not (stat.S_ISREG(mode := self._stamps[path][0]) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "not a regular file", str(path))


def _stamp(path: Path | str) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 - several times per request, and a third cheaper
    except OSError:
        return ()
    # The change time reveals a new owner, and a copy that kept its modification time.
    return found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
