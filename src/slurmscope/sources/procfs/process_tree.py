# SPDX-License-Identifier: Apache-2.0
"""Find and read all descendants of one process, parents before their children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from slurmscope.sources.procfs.process import IoReading, Missing
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stat import ProcessSample

MOST_PROCESSES = 20_000
"""A scan reads no more processes than this."""


class TreeProcess(NamedTuple):
    """Hold one process; ``io`` and ``peak_resident_bytes`` are None where they may not be read."""

    sample: ProcessSample
    io: IoReading | None
    peak_resident_bytes: int | None


class ProcessTree:
    """Read the descendants of one process. Not thread-safe.

    The kernel lists the children of each thread. Where it was built without that, the parents of all processes
    are read.
    """

    def __init__(self, reader: ProcessReader, root_id: int) -> None:
        self._reader = reader
        self._root_id = root_id
        self._known: dict[int, TreeProcess] = {}
        with reader.process(root_id) as root:
            self._has_lists = not isinstance(root, Missing) and root.has_child_lists()

    def scan(self, ignored: Collection[int] = ()) -> list[TreeProcess]:
        """Read every descendant, except the processes in ``ignored`` and their descendants."""
        found = list(self._walk(ignored) if self._has_lists else self._search(ignored))
        self._known = {process.sample.pid: process for process in found}
        return found

    def read(self, pid: int) -> TreeProcess | None:
        """Read one process, which may be a zombie."""
        found = self._read(pid)
        return found[0] if found else None

    def last(self, pid: int) -> TreeProcess | None:
        """Return a process as it was at the last scan."""
        return self._known.get(pid)

    def pids(self) -> frozenset[int]:
        """Return the PIDs of the last scan."""
        return frozenset(self._known)

    def _walk(self, ignored: Collection[int]) -> Iterator[TreeProcess]:
        with self._reader.process(self._root_id) as root:
            listed = Missing.GONE if isinstance(root, Missing) else root.child_ids(threads=2)
        waiting = [] if isinstance(listed, Missing) else listed
        seen = {*ignored, self._root_id}
        for pid in waiting:
            if pid in seen or len(seen) > MOST_PROCESSES:
                continue
            seen.add(pid)
            found = self._read(pid)
            if found is not None:
                waiting += found[1]
                yield found[0]

    def _search(self, ignored: Collection[int]) -> Iterator[TreeProcess]:
        samples = self._reader.read(self._reader.process_ids())
        children = defaultdict(list)
        for sample in samples:
            children[sample.parent_id].append(sample.pid)
        waiting = list(children[self._root_id])
        for pid in waiting:
            if pid in ignored:
                continue
            found = self._read(pid)
            if found is not None:
                waiting += children[pid]
                yield found[0]

    def _read(self, pid: int) -> tuple[TreeProcess, list[int]] | None:
        """Read a process, and the PIDs of its children where the kernel lists them."""
        before = self._known.get(pid)
        with self._reader.process(pid) as process:
            if isinstance(process, Missing):
                return None
            sample = process.sample(before.sample if before else None)
            if isinstance(sample, Missing):
                return None
            if before is not None and before.sample.start_ticks != sample.start_ticks:
                before = None
            io_before = before.io if before else None
            io = process.io(io_before)
            peak = process.peak_resident_bytes()
            children = process.child_ids(sample.threads) if self._has_lists else []
        if io is Missing.GONE:
            return None
        found = TreeProcess(
            sample, io_before if isinstance(io, Missing) else io, None if isinstance(peak, Missing) else peak
        )
        return found, [] if isinstance(children, Missing) else children
