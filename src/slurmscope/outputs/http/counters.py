# SPDX-License-Identifier: Apache-2.0
"""Count answered requests by method and status code.

Both labels come from fixed lists: a client that invents methods must not invent series
(CVE-2022-21698).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from slurmscope.outputs.http.response import REASONS

METHODS = frozenset({"GET", "HEAD", "POST"})
OTHER = "other"


class RequestCounters(Mapping[tuple[str, str], int]):
    """Map (method, code) to the number of requests; safe to read while requests are counted."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, method: str, status: int) -> None:
        """Count one answer."""
        key = (method if method in METHODS else OTHER, str(status) if status in REASONS else OTHER)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1

    def __getitem__(self, key: tuple[str, str]) -> int:
        """Return how many requests had this method and code."""
        return self._counts[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs seen so far; a copy, because other threads go on counting."""
        with self._lock:
            return iter(tuple(self._counts))

    def __len__(self) -> int:
        """Return how many pairs were seen."""
        return len(self._counts)
