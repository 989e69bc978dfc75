# SPDX-License-Identifier: Apache-2.0
"""Add up what a command and all its descendants use, also those that ended or were re-parented.

This process is the subreaper of the command: a process whose parent ends becomes our child. So every descendant ends in
one of three ways, and none is counted twice:

- We wait for it. The kernel then gives its exact CPU time, with that of all descendants it waited for itself, and its
  I/O can be read while it is a zombie.
- Its parent waits for it, and receives its CPU time and I/O.
- Its parent ignores SIGCHLD: then the last values that a scan saw are kept, see :class:`KeptTotals`.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from slurmscope.errors import SourceError
from slurmscope.model.traced_run import TreeSample
from slurmscope.sources.procfs.io_totals import Counts, KeptTotals
from slurmscope.sources.procfs.process_tree import ProcessTree, TreeProcess
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stat import NO_IO, ProcessSample, child_ticks, parse_peak_resident_bytes
from slurmscope.sources.procfs.thread_means import ThreadMeans

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MOST_ENDED = 500
"""Processes that may end between two scans before an extra scan takes them in."""

_NOTHING: Counts = (0, 0, *NO_IO)


class TreeMeter:
    """Measure the descendants of this process. Not thread-safe.

    ``clock`` returns the Unix time.
    """

    def __init__(self, clock: Callable[[], float], *, procfs_root: Path = Path("/proc"), root_id: int = 0) -> None:
        self._clock = clock
        self._reader = ProcessReader(procfs_root)
        self._tree = ProcessTree(self._reader, root_id or os.getpid())
        self._totals = KeptTotals(_NOTHING)
        self._ended: dict[int, tuple[ProcessSample, Counts]] = {}
        self._user_correction = self._system_correction = 0.0
        self._has_io = False
        self._own_peak_bytes = own_peak_bytes()
        self.peak_resident_bytes = 0
        self.peak_processes = self.peak_threads = 0
        self._thread_means = ThreadMeans()
        self.ignored: set[int] = set()
        """Processes that are ours, not the command's."""
        self.has_unread_io = False
        """Whether the I/O of some process could not be read while it ran."""

    @property
    def program_threads(self) -> dict[str, int]:
        """Return the mean number of threads by program."""
        return self._thread_means.means()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def note_start(self) -> None:
        """Note that the command was started just now."""
        self._own_peak_bytes = own_peak_bytes()

    def scan(self) -> TreeSample:
        """Read the tree and return its totals."""
        found = [process for process in self._tree.scan(self.ignored) if process.sample.pid not in self._ended]
        seen = [*self._ended.values(), *((process.sample, self._counts(process)) for process in found)]
        self._ended = {}
        user, system, *io = self._totals.update(seen)
        alive = [process for process in found if process.sample.state != "Z"]
        now_seconds = self._clock()
        self._note_peaks(alive)
        self._thread_means.add(_threads_by_program(alive), now_seconds)
        return TreeSample(
            now_seconds,
            max(0.0, user / TICKS_PER_SECOND + self._user_correction),
            max(0.0, system / TICKS_PER_SECOND + self._system_correction),
            sum(process.sample.resident_pages for process in alive) * PAGE_BYTES,
            len(alive),
            sum(process.sample.threads for process in alive),
            *(io if self._has_io else ()),
        )

    def has(self, pid: int) -> bool:
        """Return whether a PID was in the tree at the last scan."""
        return self._tree.last(pid) is not None

    def pids(self) -> frozenset[int]:
        """Return the PIDs of the last scan; any thread may ask."""
        return self._tree.pids()

    def reap(self, pid: int) -> int:
        """Wait for a child that has ended, take in its totals as far as they can be read, and return its status."""
        if pid in self.ignored:
            return self._reap_helper(pid)
        process = None
        with contextlib.suppress(SourceError):
            process = self._tree.read(pid)
        _, status, usage = os.wait4(pid, 0)
        self._take_in(pid, process or self._tree.last(pid), usage)
        if len(self._ended) >= MOST_ENDED:
            with contextlib.suppress(SourceError):
                self.scan()
        return status

    def _reap_helper(self, pid: int) -> int:
        self.ignored.discard(pid)
        try:
            return os.waitpid(pid, 0)[1]
        except ChildProcessError:  # the thread that uses it was faster
            return 0

    def _take_in(self, pid: int, process: TreeProcess | None, usage: resource.struct_rusage) -> None:
        counts = self._counts(process) if process else _NOTHING
        if process:
            self._ended[pid] = (process.sample, counts)
        # The kernel counts in microseconds, but shows the time of a process in hundredths of a second.
        self._user_correction += usage.ru_utime - counts[0] / TICKS_PER_SECOND
        self._system_correction += usage.ru_stime - counts[1] / TICKS_PER_SECOND
        peak_bytes = usage.ru_maxrss * 1024
        # A program that we start counts our own memory too: between fork and exec it is a copy of us.
        if peak_bytes > self._own_peak_bytes:
            self._note_largest(peak_bytes)

    def _counts(self, process: TreeProcess) -> Counts:
        sample = process.sample
        child_user, child_system = child_ticks(sample)
        self._has_io |= process.io is not None
        self.has_unread_io |= process.io is None
        io = process.io.counts if process.io else NO_IO
        return (sample.user_ticks + child_user, sample.system_ticks + child_system, *io)

    def _note_peaks(self, alive: Collection[TreeProcess]) -> None:
        for process in alive:
            self._note_largest(process.peak_resident_bytes or 0)
        resident_bytes = sum(process.sample.resident_pages for process in alive) * PAGE_BYTES
        self.peak_resident_bytes = max(self.peak_resident_bytes, resident_bytes)
        self.peak_processes = max(self.peak_processes, len(alive))
        self.peak_threads = max(self.peak_threads, sum(process.sample.threads for process in alive))

    def _note_largest(self, peak_bytes: int) -> None:
        self.peak_resident_bytes = max(self.peak_resident_bytes, peak_bytes)


def _threads_by_program(alive: Collection[TreeProcess]) -> Counter[str]:
    threads: Counter[str] = Counter()
    for process in alive:
        threads[process.sample.command] += process.sample.threads
    return threads


def own_peak_bytes() -> int:
    """Return the highest resident memory of this process since it was started.

    ``ru_maxrss`` has also that of the process that started us, if it was forked: a large one would hide the command.
    """
    peak_bytes = None
    with contextlib.suppress(OSError):
        peak_bytes = parse_peak_resident_bytes(Path("/proc/self/status").read_bytes())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if peak_bytes is None else peak_bytes
