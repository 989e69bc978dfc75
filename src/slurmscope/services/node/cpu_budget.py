# SPDX-License-Identifier: Apache-2.0
"""Let a thread work in bursts, but over time take only a small share of one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOW_SHARE = 0.1
# One piece of work that takes very long must not keep us from the next for ever.
DEBT_SHARE = 0.2


class CpuBudget:
    """Count the CPU time of one thread against what it may use; for that thread only."""

    def __init__(
        self,
        share: float,
        burst_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Take the share of a core that may be used for ever, and how much may be used at once after a rest."""
        self.share = share
        self._burst_seconds = burst_seconds
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._left_seconds = burst_seconds
        self._counted_at = clock()

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Count what the block uses."""
        began = self._cpu_clock()
        try:
            yield
        finally:
            self._earn()
            left = self._left_seconds - (self._cpu_clock() - began)
            self._left_seconds = max(left, -self._burst_seconds * DEBT_SHARE)

    def low_seconds(self) -> float:
        """Tell for how long only what cannot wait should be done; 0 most of the time."""
        self._earn()
        return max(0.0, (self._burst_seconds * LOW_SHARE - self._left_seconds) / self.share)

    def _earn(self) -> None:
        now = self._clock()
        earned = (now - self._counted_at) * self.share
        self._left_seconds = min(self._burst_seconds, self._left_seconds + earned)
        self._counted_at = now
