# SPDX-License-Identifier: Apache-2.0
"""Find the limit that holds for a cgroup: its own, or that of the nearest folder above it that has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmscope.sources.cgroup.files import parse_limit
from slurmscope.sources.cgroup.kept import PAGE

LIFETIME_SECONDS = 60.0


class InheritedLimits:
    """Read the limits of folders above jobs once for all jobs below them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take a monotonic clock."""
        self._clock = clock
        self._known: dict[str, int | None] = {}
        self._forget_at = 0.0

    def effective(self, own: bytes, folder: str, top: str, name: str) -> int | None:
        """Return the limit in force in a folder of which the file's own text is known; None where there is none.

        ``top`` is the folder of its job. Without an own file its controller is off here, and a limit further up is not
        one of this cgroup. The root of a hierarchy has no such file (v2), or no limit in it (v1).
        """
        limit = parse_limit(own) if own else None
        # A young job's limits are still being written: they are read anew for its steps and tasks.
        while own and limit is None and len(folder) > len(top):
            folder = folder.rpartition("/")[0]
            limit = parse_limit(_read(f"{folder}/{name}"))
        return self._limit_above(top, name) if own and limit is None else limit

    def _limit_above(self, folder: str, name: str) -> int | None:
        """Return the nearest limit above a folder, and remember it."""
        now = self._clock()
        if now >= self._forget_at:
            self._known.clear()
            self._forget_at = now + LIFETIME_SECONDS
        parent = folder.rpartition("/")[0]
        path = f"{parent}/{name}"
        if path not in self._known:
            text = _read(path)
            limit = parse_limit(text)
            self._known[path] = self._limit_above(parent, name) if text and limit is None else limit
        return self._known[path]


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(PAGE) or b""
    except OSError:
        return b""
