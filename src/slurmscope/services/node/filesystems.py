# SPDX-License-Identifier: Apache-2.0
"""Read the network file systems of the node, and add up what each job used while it was alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping

from slurmscope.analysis.mount_use import (
    MAX_MOUNTS,
    add_use,
    distinct_mounts,
    find_only_job,
    growth_by_filesystem,
)
from slurmscope.model.job_use import JobKey, Roster
from slurmscope.model.mounts import ClientUse, Mount, MountedFilesystem, MountReading, NodeFilesystems

KEPT_JOBS = 1000
"""Jobs whose totals are kept. No other job is alone while one runs, so this can only drop ended ones."""


class FilesystemReader:
    """Read mounts repeatedly. Not thread-safe."""

    def __init__(
        self,
        read_mounts: Callable[[Collection[int]], Collection[Mount]],
        roster: Callable[[], Roster],
        pids_of: Callable[[JobKey], Collection[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the functions that list the mounts which processes see, the running jobs, and the processes of one."""
        self._read_mounts = read_mounts
        self._roster = roster
        self._pids_of = pids_of
        self._clock = clock
        self._last: tuple[Roster, MountReading] | None = None
        self._jobs: OrderedDict[JobKey, Mapping[MountedFilesystem, ClientUse]] = OrderedDict()

    def read(self) -> NodeFilesystems:
        """Return the mounts and the totals of jobs."""
        # A job that ends during the reading counts before it, and one that begins counts after it: both ran.
        before = self._roster()
        mounts = distinct_mounts(self._read_mounts(self._pids_of(before.alone) if before.alone else ()))
        reading = MountReading(self._clock(), mounts[:MAX_MOUNTS])
        self._attribute(reading, self._roster())
        self._last = (before, reading)
        return NodeFilesystems(mounts=reading.mounts, jobs=dict(self._jobs), left_out=len(mounts) - len(reading.mounts))

    def _attribute(self, reading: MountReading, roster: Roster) -> None:
        if self._last is None:
            return
        key = find_only_job(self._last[0], roster)
        grown = growth_by_filesystem(self._last[1], reading)
        if key is None or not grown:
            return
        self._jobs[key] = add_use(self._jobs.pop(key, {}), grown)
        while len(self._jobs) > KEPT_JOBS:
            self._jobs.popitem(last=False)
