# SPDX-License-Identifier: Apache-2.0
"""Limit how many jobs users look up in accounting: each lookup starts an sacct, or queries Slurm's database.

A user who tries many job IDs gets an error early, and leaves queries for others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slurmscope.core.errors import ServerBusy
from slurmscope.core.rate_limit import TokenBuckets

MAX_CONCURRENT = 2
"""Lookups of one user at the same time; half of the concurrent accounting queries."""
BURST, PER_SECOND = 20, 1.0
"""Lookups of one user: so many at once, then so many per second."""
ALL_BURST, ALL_PER_SECOND = 100, 10.0
"""Lookups of all users together."""
MAX_USERS = 10_000
MESSAGE = "too many jobs were looked up in accounting; try again in a few seconds"


class TooManyLookups(ServerBusy):
    """Too many jobs were looked up in accounting, by this user or by all."""


class LookupLimits:
    """Count lookups by user; thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        queue_timeout_seconds: float = 10.0,
        message: str = MESSAGE,
    ) -> None:
        """Start with full bursts; ``message`` is for users beyond a limit."""
        self._queue_timeout_seconds = queue_timeout_seconds
        self._message = message
        self._all = TokenBuckets(ALL_PER_SECOND, ALL_BURST, clock=clock)
        self._users = TokenBuckets(PER_SECOND, BURST, max_keys=MAX_USERS, clock=clock)
        self._running: Counter[str] = Counter()
        self._ended = threading.Condition()

    @contextmanager
    def turn(self, user: str) -> Iterator[None]:
        """Wait until this user has less than two lookups under way; raise TooManyLookups after the timeout."""
        with self._ended:
            if not self._ended.wait_for(lambda: self._running[user] < MAX_CONCURRENT, self._queue_timeout_seconds):
                raise TooManyLookups(self._message)
            self._running[user] += 1
        try:
            yield
        finally:
            with self._ended:
                self._running[user] -= 1
                # Without those that are 0.
                self._running += Counter()
                self._ended.notify_all()

    def count(self, user: str) -> None:
        """Count one lookup; raise TooManyLookups if there were too many."""
        # In this order: a user beyond their own limit takes nothing from the others.
        if self._users.take(user) or self._all.take():
            raise TooManyLookups(self._message)
