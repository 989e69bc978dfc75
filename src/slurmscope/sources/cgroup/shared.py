# SPDX-License-Identifier: Apache-2.0
"""Hold what all jobs of a cgroup tree share, such as the limits of the folders above them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurmscope.sources.cgroup.files import parse_limit
from slurmscope.sources.cgroup.kept_files import PAGE, DescriptorBudget
from slurmscope.sources.cgroup.owners import ProcessOwners

LIFETIME_SECONDS = 60.0


class InheritedLimits:
    """Cache the limits of folders above jobs, which all jobs below them inherit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Set a monotonic clock."""
        self._clock = clock
        self._known: dict[str, int | None] = {}
        self._expires_at = 0.0

    def effective(self, own: bytes, folder: str, top: str, name: str) -> int | None:
        """Return the limit in force for a folder whose own file content is known; None where there is none.

        ``top`` is the folder of its job. Without an own file the controller is off, and a limit further up does not
        apply to this cgroup. The root of a hierarchy has no such file (v2), or no limit in it (v1).
        """
        limit = parse_limit(own) if own else None
        # A young job's limits are still being written: they are read again for its steps and tasks.
        while own and limit is None and len(folder) > len(top):
            folder = folder.rpartition("/")[0]
            limit = parse_limit(_read(f"{folder}/{name}"))
        return self._limit_above(top, name) if own and limit is None else limit

    def _limit_above(self, folder: str, name: str) -> int | None:
        """Return the nearest limit above a folder, from the cache where possible."""
        now = self._clock()
        if now >= self._expires_at:
            self._known.clear()
            self._expires_at = now + LIFETIME_SECONDS
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """Hold what all jobs of a tree share.

    ``keeps_processes`` allows open descriptors of cgroup.procs (v2 only); ``unneeded`` files are never read.
    """

    budget: DescriptorBudget
    keeps_processes: bool
    limits: InheritedLimits
    owners: ProcessOwners
    clock: Callable[[], float]
    unneeded: frozenset[str] = frozenset()
