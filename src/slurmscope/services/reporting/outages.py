# SPDX-License-Identifier: Apache-2.0
"""Remember which servers are missing now, for a banner on every page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FORGET_SECONDS = 300.0
"""A trouble that nobody met again for so long is taken for over."""


class Outages:
    """Keep the last trouble with each server, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any."""
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def note(self, server: str, sentence: str) -> None:
        """Say what is wrong with a server now."""
        with self._lock:
            self._known[server] = (sentence, self._clock())

    def clear(self, server: str) -> None:
        """Say that a server has answered."""
        with self._lock:
            self._known.pop(server, None)

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each server that is missing."""
        now = self._clock()
        with self._lock:
            return tuple(sentence for sentence, at in self._known.values() if now - at < FORGET_SECONDS)
