# SPDX-License-Identifier: Apache-2.0
"""Compute the mean number of threads by program from samples at irregular times."""

from __future__ import annotations

from collections import Counter

PROGRAMS = 20


class ThreadMeans:
    """Add up threads times seconds, so that a moment with many short-lived processes weighs little."""

    def __init__(self) -> None:
        self._thread_seconds: dict[str, float] = {}
        self._last: Counter[str] = Counter()
        self._last_seconds: float | None = None
        self._seconds = 0.0

    def add(self, threads: Counter[str], now_seconds: float) -> None:
        """Take in one sample; between two samples the number of threads counts as their mean."""
        passed = 0.0 if self._last_seconds is None else max(0.0, now_seconds - self._last_seconds)
        for program in threads.keys() | self._last.keys():
            added = (threads[program] + self._last[program]) / 2 * passed
            self._thread_seconds[program] = self._thread_seconds.get(program, 0.0) + added
        largest = sorted(self._thread_seconds.items(), key=lambda item: item[1], reverse=True)[:PROGRAMS]
        self._thread_seconds = dict(largest)
        self._seconds += passed
        self._last, self._last_seconds = threads, now_seconds

    def means(self) -> dict[str, int]:
        """Return the programs that had a thread for at least half of the time."""
        if not self._seconds:
            return {}
        rounded = {program: round(total / self._seconds) for program, total in self._thread_seconds.items()}
        return {program: mean for program, mean in rounded.items() if mean}
