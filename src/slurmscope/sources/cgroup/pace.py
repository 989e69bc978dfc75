# SPDX-License-Identifier: Apache-2.0
"""Choose when to look again at what seldom changes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

FIRST_SECONDS = 0.02
SLOWEST_SECONDS = 60.0


class Pace:
    """Be due at once, then ever more seldom as the thing grows old.

    A cgroup is made first and gets its limits a moment later, so what was read from a young one is soon read again.
    The name spreads the due times of many cgroups, so that they do not all fall into the same scrape.
    """

    __slots__ = ("_clock", "_due_at", "_since", "_slowest_seconds", "_spread")

    def __init__(self, clock: Callable[[], float], name: str, slowest_seconds: float = SLOWEST_SECONDS) -> None:
        """Take a monotonic clock; the age counts from the first question."""
        self._clock = clock
        self._slowest_seconds = slowest_seconds
        self._spread = 0.75 + zlib.crc32(name.encode("utf-8", "replace")) % 512 / 1024
        self._since: float | None = None
        self._due_at = 0.0

    def is_due(self) -> bool:
        """Tell whether it is time; a yes sets the next time."""
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now < self._due_at:
            return False
        wait = min(max(now - self._since, FIRST_SECONDS), self._slowest_seconds)
        self._due_at = now + wait * self._spread
        return True
