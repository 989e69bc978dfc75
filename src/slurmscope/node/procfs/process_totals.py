# SPDX-License-Identifier: Apache-2.0
"""Add up the CPU time, threads and open files of the processes of one job.

CPU time and faults never decrease: only growth is added, under the name that the process has at the moment, since it
may change when a program starts another. Processes that start and end between two scans are not seen; the cgroup has
the whole.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import sub

from slurmscope.node.procfs.stat import STATES, UNKNOWN_STATE, ProcessSample, ThreadSample

OTHER = "other"
_NAME_LIMIT = 256
_UNSEEN = (0, 0, 0, 0)


class ProgramTotals:
    """Keep the CPU time and faults of one job, and the programs with the most CPU time."""

    def __init__(self, shown_limit: int) -> None:
        """Set how many programs are shown by name; all others are summed as one."""
        self._shown_limit = shown_limit
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self._ticks: Counter[str] = Counter()
        self._shown: frozenset[str] = frozenset()
        self._other_ticks = 0
        self._told: dict[str, int] = {}
        self._told_ticks = 0
        self.cpu_ticks = 0
        self.minor_faults = 0
        self.major_faults = 0

    def update(self, samples: Iterable[ProcessSample]) -> None:
        """Add one scan."""
        seen = {}
        for sample in samples:
            ticks = sample.user_ticks + sample.system_ticks
            seen[sample.pid] = now = (sample.start_ticks, ticks, sample.minor_faults, sample.major_faults)
            before = self._last.get(sample.pid, _UNSEEN)
            if before != now:
                self._add_growth(sample.command, now, before if before[0] == now[0] else _UNSEEN)
        self._last = seen
        if len(self._ticks) > _NAME_LIMIT:
            # A job that changes its name endlessly; all names beyond the limit count as other.
            self._ticks = Counter(dict(self._ticks.most_common(_NAME_LIMIT // 2)))

    def _add_growth(self, command: str, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        _, ticks, minor_faults, major_faults = (max(0, growth) for growth in map(sub, now, before))
        self.cpu_ticks += ticks
        self.minor_faults += minor_faults
        self.major_faults += major_faults
        if ticks and command != OTHER:
            self._ticks[command] += ticks

    def cpu_ticks_by_program(self) -> dict[str, int]:
        """Return the programs with the most CPU time, and the rest under one name; no value ever decreases.

        A program that is shown stays until another has 10 % more, so that two similar ones do not alternate.
        """
        ranked = sorted(self._ticks, key=lambda name: -self._ticks[name] * (11 if name in self._shown else 10))
        shown = {name: self._ticks[name] for name in ranked[: self._shown_limit]}
        self._shown = frozenset(shown)
        # The rest grows only by what is spent meanwhile: it must not decrease when a program of it is shown, nor jump
        # when one is not shown any more, which would look like CPU time spent at that moment.
        of_shown = sum(max(0, ticks - self._told.get(name, 0)) for name, ticks in shown.items())
        self._other_ticks += max(0, self.cpu_ticks - self._told_ticks - of_shown)
        self._told, self._told_ticks = dict(self._ticks), self.cpu_ticks
        return {**shown, OTHER: self._other_ticks} if self._other_ticks else shown


class GrowthTotals:
    """Add up the growth of two counters of things that come and go."""

    def __init__(self) -> None:
        self._last: Mapping[Hashable, tuple[int, int]] = {}
        self.totals = (0, 0)

    def update(self, seen: Mapping[Hashable, tuple[int, int]]) -> None:
        """Add the counters of one scan."""
        first, second = self.totals
        for key, now in seen.items():
            before = self._last.get(key, (0, 0))
            first += max(0, now[0] - before[0])
            second += max(0, now[1] - before[1])
        self._last = seen
        self.totals = (first, second)


def bounded(counts: Counter[str], limit: int) -> dict[str, int]:
    """Return the largest counts by name, and the sum of the rest under one name."""
    shown = dict(counts.most_common(limit))
    rest = sum(counts.values()) - sum(shown.values())
    if rest:
        shown[OTHER] = shown.get(OTHER, 0) + rest
    return shown


def bounded_most(most: Mapping[str, int], shown: Iterable[str]) -> dict[str, int]:
    """Return the values of the names that are shown, and the largest of the rest under one name."""
    found: dict[str, int] = {}
    names = frozenset(shown)
    for name, value in most.items():
        key = name if name in names else OTHER
        found[key] = max(value, found.get(key, 0))
    return found


# Targets of descriptors that have a path but are not files.
_NO_FILES = (b"/dev/", b"/proc/", b"/sys/", b"/memfd:", b"/anon_hugepage")
_SHARED_MEMORY = b"/dev/shm/"
# Names of descriptors that are listed per job where the kernel does not count them.
_NAME_ROOM = 200_000


class ThreadTally:
    """Count threads by state and by program, and running threads by core."""

    def __init__(self) -> None:
        self.in_state: Counter[str] = Counter()
        self.of_program: Counter[str] = Counter()
        self.most_of_program: dict[str, int] = {}
        self.on_core: Counter[int] = Counter()

    def add(self, sample: ProcessSample, threads: Sequence[ThreadSample] | None = None) -> None:
        """Add one process and its threads; threads that were not read count as unknown state."""
        self.of_program[sample.command] += sample.threads
        self.most_of_program[sample.command] = max(sample.threads, self.most_of_program.get(sample.command, 0))
        if threads is None and sample.threads <= 1:
            self._add_one(sample.state, sample.processor)
            return
        for thread in threads or ():
            self._add_one(thread.state, thread.processor)
        unread = sample.threads - len(threads or ())
        if unread > 0:
            self.in_state[UNKNOWN_STATE] += unread

    def _add_one(self, state: str, processor: int) -> None:
        self.in_state[STATES.get(state, UNKNOWN_STATE)] += 1
        # The last core of a sleeping thread is not a load on that core.
        if state == "R":
            self.on_core[processor] += 1


class ProcessFiles:
    """The open files of one process; of each path only a hash, since users may make them long, and many."""

    __slots__ = ("_scratch_words", "has_targets", "hashes", "number", "targets", "uses_scratch")

    def __init__(self, scratch_words: Iterable[bytes]) -> None:
        self._scratch_words = scratch_words
        self.number: int | None = 0
        self.has_targets = True
        self.targets = 0
        self.hashes = array("q")
        self.uses_scratch = False

    def take(self, target: bytes) -> None:
        """Add the target of a descriptor."""
        self.targets += 1
        if is_file(target):
            self.hashes.append(hash(target))
        if target[:1] == b"/" and not self.uses_scratch:
            self.uses_scratch = any(word in target for word in self._scratch_words)


class FileTally:
    """Count descriptors and the distinct files behind them, at most ``room`` of these.

    ``name_room`` is how many descriptors may still be listed to count them.
    """

    def __init__(self, scratch_words: Iterable[str], room: int, name_room: int = _NAME_ROOM) -> None:
        self.scratch_words = tuple(word.encode("utf-8", "surrogateescape") for word in scratch_words)
        self._files: set[int] = set()
        self._uses_scratch = False
        self._has_targets = True
        self.processes = 0
        self.open_files: int | None = 0
        self.worst_ratio: float | None = None
        self.room = room
        self.name_room = name_room

    def add(self, files: ProcessFiles, limit: int | None) -> None:
        """Add one process with its limit of open files."""
        self.processes += 1
        if files.number is None or self.open_files is None:
            self.open_files = None
        else:
            self.open_files += files.number
        if limit and files.number is not None:
            self.worst_ratio = max(files.number / limit, self.worst_ratio or 0.0)
        self._has_targets = self._has_targets and files.has_targets
        self._uses_scratch = self._uses_scratch or files.uses_scratch
        self._files.update(files.hashes)
        self.room = max(0, self.room - files.targets)
        self.name_room -= files.number or 0

    @property
    def distinct_files(self) -> int | None:
        """Return how many distinct files are open, deleted ones included, without devices, pipes and sockets.

        An open directory counts: distinguishing it from a file would need an access, which may block.
        """
        return len(self._files) if self._has_targets else None

    @property
    def uses_scratch(self) -> bool | None:
        """Return whether the path of an open file contains one of the words for scratch space."""
        return self._uses_scratch if self._has_targets else None


def is_file(target: bytes) -> bool:
    """Return whether the target of a descriptor is a file, judged by its path."""
    return target[:1] == b"/" and (not target.startswith(_NO_FILES) or target.startswith(_SHARED_MEMORY))
