# SPDX-License-Identifier: Apache-2.0
"""Separate the I/O that a slurmstepd received from its children from its own.

slurmstepd samples the usage of its job by reading files of /proc, thousands of times a minute. Its counters include
those of children that it waited for and of threads that ended. The counters of a running thread are its own, so what
the threads did, as far as they were seen, is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.sources.procfs.stat import NO_IO, IoCounts


class StepdIo:
    """Track the threads of one slurmstepd over scans.

    ``has_lost_thread`` is whether a thread ended since the last scan: what it read meanwhile is not known.
    """

    def __init__(self) -> None:
        self._threads: Mapping[int, IoCounts] = {}
        self._ended: IoCounts = NO_IO
        self.has_lost_thread = False

    def received(self, total: IoCounts, threads: Mapping[int, IoCounts]) -> IoCounts:
        """Return what came from children, from the counters of the process and, read before, of its threads."""
        ended = [counts for thread_id, counts in self._threads.items() if thread_id not in threads]
        self.has_lost_thread = bool(ended)
        self._ended = IoCounts(*map(sum, zip(self._ended, *ended, strict=True)))
        self._threads = threads
        own = map(sum, zip(self._ended, *threads.values(), strict=True))
        return IoCounts(*(max(0, count - mine) for count, mine in zip(total, own, strict=True)))
