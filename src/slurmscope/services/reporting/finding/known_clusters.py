# SPDX-License-Identifier: Apache-2.0
"""Cache the clusters that have jobs in the archive: every link depends on whether there are several."""

from __future__ import annotations

import threading
from contextlib import suppress

from slurmscope.errors import ArchiveError
from slurmscope.model.archive import Archive
from slurmscope.services.runtime.clock import Clock

KEPT_SECONDS = 60.0


class KnownClusters:
    """Return the names of the clusters, read again after a minute; call it as a function, from any thread."""

    def __init__(self, archive: Archive | None, clock: Clock | None = None) -> None:
        """Take the archive; without one, no cluster is known."""
        self._archive = archive
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._known: tuple[str, ...] = ()
        self._read_at = float("-inf")

    def __call__(self) -> tuple[str, ...]:
        """Return the last known clusters in order; while the archive cannot be read, those known before."""
        is_first = self._read_at == float("-inf")
        if self._clock.monotonic() - self._read_at >= KEPT_SECONDS and self._lock.acquire(blocking=is_first):
            try:
                # Another thread may have read them while this one waited.
                if self._clock.monotonic() - self._read_at >= KEPT_SECONDS:
                    self._read()
            finally:
                self._lock.release()
        return self._known

    def _read(self) -> None:
        # What reads jobs reports that the archive cannot be read.
        with suppress(ArchiveError):
            self._known = self._archive.clusters() if self._archive else ()
        self._read_at = self._clock.monotonic()
