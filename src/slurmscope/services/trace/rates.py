# SPDX-License-Identifier: Apache-2.0
"""Limit how many posts per second each job, user or address may send."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

BURST_SECONDS = 2.0
"""A bucket holds the posts of this many seconds."""


class RateBuckets:
    """Hold one token bucket per key; a bucket that was full again is forgotten, so their number is bounded."""

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic, limit: int = 20_000) -> None:
        """Set the rate of every key; 0 means no limit."""
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST_SECONDS)
        self._fill_seconds = self._burst / per_second if per_second else 0.0
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Take one token and return 0, or return the seconds until the next one."""
        if not self._per_second:
            return 0.0
        with self._lock:
            now = self._clock()
            tokens, filled_at = self._buckets.pop(key, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled_at) * self._per_second)
            wait_seconds = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
            self._buckets[key] = (tokens if wait_seconds else tokens - 1, now)
            self._forget(now)
            return wait_seconds

    def _forget(self, now: float) -> None:
        """Drop the buckets used longest ago: those that are full again, and others if there are too many."""
        while self._buckets:
            oldest = next(iter(self._buckets))
            if now - self._buckets[oldest][1] < self._fill_seconds and len(self._buckets) <= self._limit:
                return
            del self._buckets[oldest]
