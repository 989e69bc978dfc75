# SPDX-License-Identifier: Apache-2.0
"""Find the clusters in which coordinators of accounts have their rights.

Slurm keeps coordinators for all clusters of one slurmdbd. An archive may hold jobs of clusters that belong to others,
where accounts of the same names are those of other people.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from slurmscope.errors import SourceError
from slurmscope.services.runtime.clock import Clock

KEPT_SECONDS = 300.0
FAILED_SECONDS = 30.0

ReadClusters = Callable[[], Sequence[str]]


class CoordinatedClusters:
    """Return the clusters of the accounting that the portal reads; call it as a function, from any thread."""

    def __init__(self, read: ReadClusters, archived: ReadClusters, clock: Clock | None = None) -> None:
        """Take what reads the clusters of accounting, and those that the archive has jobs of."""
        self._read = read
        self._archived = archived
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._until = float("-inf")

    def __call__(self) -> frozenset[str]:
        """Return the clusters; while they cannot be read, the only one that the archive has, or none of several.

        It is named even if it is the only one: the archive may have jobs of another before that is noticed here.
        """
        with self._lock:
            if self._clock.monotonic() >= self._until:
                self._refresh()
            known = self._known
        if known:
            return known
        archived = self._archived()
        return frozenset(archived) if len(archived) == 1 else frozenset()

    def _refresh(self) -> None:
        try:
            self._known, seconds = frozenset(self._read()), KEPT_SECONDS
        except SourceError:
            self._known, seconds = frozenset(), FAILED_SECONDS
        self._until = self._clock.monotonic() + seconds
