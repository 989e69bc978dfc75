# SPDX-License-Identifier: Apache-2.0
"""Slow down whoever guesses tokens."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

FAILURE_LIMIT = 5
PERIOD_SECONDS = 15 * 60.0
TABLE_LIMIT = 10_000


class SignInLimits:
    """Count failures by address: after ``failure_limit`` within the period, the address has to wait.

    The address waits until the oldest of those failures is a period ago. At most ``table_limit`` addresses are
    remembered; the one that failed longest ago is forgotten first. Safe to use from any thread.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        failure_limit: int = FAILURE_LIMIT,
        period_seconds: float = PERIOD_SECONDS,
        table_limit: int = TABLE_LIMIT,
    ) -> None:
        self._clock = clock
        self._failure_limit = failure_limit
        self._period_seconds = period_seconds
        self._table_limit = table_limit
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._failures)

    def wait_seconds(self, peer: str) -> int:
        """Return how long this address has to wait, in whole seconds; 0 when it may try."""
        with self._lock:
            times = self._failures.get(peer)
            if times is None or len(times) < self._failure_limit:
                return 0
            return max(0, math.ceil(times[0] + self._period_seconds - self._clock()))

    def fail(self, peer: str) -> None:
        """Count one failure."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            # A full deque lets its oldest time go: only the last few decide.
            times = self._failures.setdefault(peer, deque(maxlen=self._failure_limit))
            times.append(now)
            self._failures.move_to_end(peer)
            while len(self._failures) > self._table_limit:
                self._failures.popitem(last=False)

    def _forget(self, now: float) -> None:
        """Drop addresses whose last failure is long ago; they are in the order of that."""
        while self._failures:
            peer, times = next(iter(self._failures.items()))
            if times[-1] + self._period_seconds > now:
                return
            del self._failures[peer]
