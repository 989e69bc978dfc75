# SPDX-License-Identifier: Apache-2.0
"""Cache how long jobs of each shape waited in the last weeks: pages must not sum up weeks each time."""

from __future__ import annotations

import threading
from collections import OrderedDict

from slurmscope.analysis.pending.smaller_request import WaitsByShape
from slurmscope.errors import ArchiveError
from slurmscope.model.archive import Archive
from slurmscope.services.runtime.clock import Clock
from slurmscope.units import DAY_SECONDS

PERIOD_SECONDS = 28 * DAY_SECONDS
KEPT_SECONDS = 600.0
MAX_PARTITIONS = 256


class WaitingTimesCache:
    """Return waiting times by shape, read again after ten minutes; thread-safe."""

    def __init__(self, archive: Archive | None, clock: Clock | None = None) -> None:
        """Take the archive; without one, nothing is known."""
        self._archive = archive
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], tuple[float, WaitsByShape]] = OrderedDict()

    def find(self, cluster: str, partition: str) -> WaitsByShape:
        """Return the waiting times of one partition; none while the archive cannot be read."""
        with self._lock:
            read_at, waits = self._known.get((cluster, partition), (float("-inf"), {}))
            if self._clock.monotonic() - read_at < KEPT_SECONDS:
                return waits
            waits = self._read(cluster, partition)
            self._known[cluster, partition] = (self._clock.monotonic(), waits)
            if len(self._known) > MAX_PARTITIONS:
                self._known.popitem(last=False)
            return waits

    def _read(self, cluster: str, partition: str) -> WaitsByShape:
        if self._archive is None:
            return {}
        since = int(self._clock.wall() - PERIOD_SECONDS)
        try:
            found = self._archive.waiting_times(since, cluster=cluster, partition=partition)
        except ArchiveError:
            return {}
        return {(waits.cores_class, waits.limit_class): waits for waits in found}
