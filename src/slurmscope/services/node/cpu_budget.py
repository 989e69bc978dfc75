# SPDX-License-Identifier: Apache-2.0
"""Limit the CPU time of a thread: bursts are allowed, the long-term share of one core is small."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOW_SHARE = 0.1
# One very long task must not block the next one for too long.
DEBT_SHARE = 0.2


class CpuBudget:
    """Charge the CPU time of one thread against its budget; for that thread only."""

    def __init__(
        self,
        share: float,
        burst_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Take the share of a core that may be used permanently, and the CPU time that may be used at once."""
        self.share = share
        self._burst_seconds = burst_seconds
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._left_seconds = burst_seconds
        self._counted_at = clock()

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge the CPU time of the block."""
        began = self._cpu_clock()
        try:
            yield
        finally:
            self._earn()
            left = self._left_seconds - (self._cpu_clock() - began)
            self._left_seconds = max(left, -self._burst_seconds * DEBT_SHARE)

    def low_seconds(self) -> float:
        """Return for how long only urgent work should be done; 0 most of the time."""
        self._earn()
        return max(0.0, (self._burst_seconds * LOW_SHARE - self._left_seconds) / self.share)

    def _earn(self) -> None:
        now = self._clock()
        earned = (now - self._counted_at) * self.share
        self._left_seconds = min(self._burst_seconds, self._left_seconds + earned)
        self._counted_at = now
