# SPDX-License-Identifier: Apache-2.0
"""Limit how often something may happen: a burst at once, then a steady rate."""

from __future__ import annotations

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
            tokens, filled_at = self._buckets.pop(key, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled_at) * self._per_second)
            wait_seconds = max(0.0, (count - tokens) / self._per_second)
            self._buckets[key] = (tokens if wait_seconds else tokens - count, now)
            self._drop_unused(now)
            return wait_seconds

    def _drop_unused(self, now: float) -> None:
        full_since = now - self._burst / self._per_second
        while self._buckets:
            _, used_at = next(iter(self._buckets.values()))
            if used_at > full_since and len(self._buckets) <= self._max_keys:
                return
            self._buckets.popitem(last=False)
