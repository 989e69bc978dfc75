# SPDX-License-Identifier: Apache-2.0
"""Limit the rate of requests with a bucket of tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Limiter:
    """Allow ``burst`` requests at once and one more per ``interval_seconds``."""

    def __init__(self, interval_seconds: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a full bucket."""
        self._interval_seconds = interval_seconds
        self._burst = float(burst)
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled_at = clock()

    def allow(self) -> bool:
        """Take a token, or tell that there is none."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) / self._interval_seconds)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
