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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from slurmscope.core.errors import SourceError
from slurmscope.jobs.traced_run import TreeSample
from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.io_totals import Counts, KeptTotals
from slurmscope.node.procfs.process import IoReading
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stat import NO_IO, ProcessSample, child_ticks, parse_peak_resident_bytes

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


MOST_PROCESSES = 20_000
"""A scan reads no more processes than this."""


class TreeProcess(NamedTuple):
    """One process; ``io`` and ``peak_resident_bytes`` are None where they may not be read."""

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
        children = None if self._has_lists else self._children_by_parent()
        waiting = self._listed_children() if children is None else list(children[self._root_id])
        seen = {*ignored, self._root_id}
        self._known, before = {}, self._known
        for pid in waiting:
            if pid in seen or len(seen) > MOST_PROCESSES:
                continue
            seen.add(pid)
            found = self._read(pid, before.get(pid))
            if found is not None:
                self._known[pid] = found[0]
                waiting += found[1] if children is None else children[pid]
        return list(self._known.values())

    def read(self, pid: int) -> TreeProcess | None:
        """Read one process, which may be a zombie."""
        found = self._read(pid, self._known.get(pid))
        return found[0] if found else None

    def last(self, pid: int) -> TreeProcess | None:
        """Return a process as it was at the last scan."""
        return self._known.get(pid)

    def pids(self) -> frozenset[int]:
        return frozenset(self._known)

    def _listed_children(self) -> list[int]:
        with self._reader.process(self._root_id) as root:
            listed = Missing.GONE if isinstance(root, Missing) else root.child_ids(threads=2)
        return [] if isinstance(listed, Missing) else listed

    def _children_by_parent(self) -> Mapping[int, list[int]]:
        children = defaultdict(list)
        for sample in self._reader.read(self._reader.process_ids()):
            children[sample.parent_id].append(sample.pid)
        return children

    def _read(self, pid: int, before: TreeProcess | None) -> tuple[TreeProcess, list[int]] | None:
        """Read a process, and the PIDs of its children where the kernel lists them."""
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
        return self._thread_means.means()

    def close(self) -> None:
        self._reader.close()

    def note_start(self) -> None:
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
        """Return the PIDs of the last scan; from any thread."""
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
