# SPDX-License-Identifier: Apache-2.0
"""Limit how often something may happen: a burst at once, then a steady rate; after failures with longer pauses."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable


class TokenBuckets:
    """One token bucket per key, such as a user or an address; thread-safe.

    A bucket that is full again is dropped, and so is the one used longest ago while there are more than ``max_keys``.
    """

    def __init__(
        self,
        per_second: float,
        burst: float,
        *,
        max_keys: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with full buckets; a rate of 0 means no limit."""
        self._per_second = per_second
        self._burst = burst
        self._max_keys = max_keys
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """Count the keys whose buckets are not full."""
        return len(self._buckets)

    def take(self, key: Hashable = None, count: int = 1) -> float:
        """Take tokens and return 0, or return the seconds until there are enough; a refusal costs nothing."""
        if not self._per_second:
            return 0.0
        with self._lock:
            now = self._clock()
            tokens = self._tokens(key, now)
            wait_seconds = max(0.0, (count - tokens) / self._per_second)
            self._keep(key, tokens if wait_seconds else tokens - count, now)
            return wait_seconds

    def left(self, key: Hashable = None) -> float:
        """Return how many tokens there are; less than none after more was spent."""
        with self._lock:
            return self._tokens(key, self._clock())

    def spend(self, count: float, key: Hashable = None, *, most_debt: float = math.inf) -> None:
        """Take tokens, whether there are enough or not."""
        with self._lock:
            now = self._clock()
            self._keep(key, max(self._tokens(key, now) - count, -most_debt), now)

    def _tokens(self, key: Hashable, now: float) -> float:
        tokens, filled_at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - filled_at) * self._per_second)

    def _keep(self, key: Hashable, tokens: float, now: float) -> None:
        self._buckets[key] = (tokens, now)
        self._buckets.move_to_end(key)
        while self._buckets:
            oldest = next(iter(self._buckets))
            if len(self._buckets) <= self._max_keys and self._tokens(oldest, now) < self._burst:
                return
            del self._buckets[oldest]


def random_share() -> float:
    """Return a number from 0 to less than 1; the module ``random`` costs 1 MB that agents do not need."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def backoff_seconds(
    failures: int, first_seconds: float, longest_seconds: float, random: Callable[[], float] = random_share
) -> float:
    """Return the pause after so many failures in a row: doubled each time up to the longest, then cut by up to half.

    The cut is random: thousands of nodes must not retry at the same moment.
    """
    pause_seconds = min(first_seconds * (1 << min(failures - 1, 32)), longest_seconds)
    return pause_seconds * (0.5 + 0.5 * random())
