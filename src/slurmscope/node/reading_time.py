# SPDX-License-Identifier: Apache-2.0
"""Share the time for reading processes between users, so that no job of one makes the numbers of others old.

A job may have a hundred thousand processes, files or threads, or such that are slow to read, and the next trick
is not known. So time is measured, whatever it is spent on: each user has some seconds at once, and a share of each
second after that. Of jobs of a user who has none left, only the cgroups are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

JOB_SECONDS = 2.0
USER_SECONDS = 3.0
USER_SHARE = 0.2
_MANY_USERS = 1000


class ReadingTime:
    """Charge what the readings of each user took; for one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}

    def left(self, user: Hashable) -> float:
        """Return how many seconds the next job of a user may take; none or less if it must not be read."""
        missing_seconds = max(0.0, self._full_at.get(user, 0.0) - self._clock()) * USER_SHARE
        return min(JOB_SECONDS, USER_SECONDS - missing_seconds)

    @contextmanager
    def charged(self, user: Hashable) -> Iterator[None]:
        """Charge the time of the block to a user."""
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            if len(self._full_at) > _MANY_USERS:
                self._full_at = {other: full_at for other, full_at in self._full_at.items() if full_at > now}
            self._full_at[user] = max(now, self._full_at.get(user, 0.0)) + (now - began) / USER_SHARE
