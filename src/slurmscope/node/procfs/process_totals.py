# SPDX-License-Identifier: Apache-2.0
"""Add up the CPU time, threads and open files of the processes of one job.

CPU time and faults never decrease: only growth is added, under the name that the process has at the moment, since it
may change when a program starts another. Processes that start and end between two scans are not seen; the cgroup has
the whole.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import sub
from typing import NamedTuple, TypeVar

from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.node.procfs.stat import STATES, UNKNOWN_STATE, ProcessSample, ThreadSample

OTHER = "other"
_NAME_LIMIT = 256
_UNSEEN = (0, 0, 0, 0)
_KEPT_NAMES = 32
_VANISHED_LIMIT = 256
"""Of a job; older ones are not recognized."""
NAMES_AN_HOUR = 60
"""Of a job, and as many at once."""


class Kept(NamedTuple):
    """A total, and the part of it that is of no living process: more or less than nothing where it was attributed."""

    total: int
    ended: int


Totals = Mapping[str, Kept]
"""What a new agent needs of an old one to continue counters, by their names."""
_PROGRAM = "program "
_Counts = TypeVar("_Counts")


def raised(now: int, kept: Kept | None) -> int:
    """Return a counter of a new agent after its first scan: it does not begin below that of the old one."""
    return now if kept is None else max(now, kept.total)


def remember(vanished: dict[int, _Counts], lost: Mapping[int, _Counts]) -> None:
    """Add processes, by PID, that a list lacks; it may lack one for a moment that runs on, and goes on from there."""
    for pid, counts in lost.items():
        vanished.pop(pid, None)
        vanished[pid] = counts
    for pid in list(vanished)[:-_VANISHED_LIMIT]:
        del vanished[pid]


class ProgramTotals:
    """Keep the CPU time and faults of one job, and the programs with the most CPU time."""

    def __init__(self, shown_limit: int) -> None:
        """Set how many programs are shown by name; all others are summed as one."""
        self._shown_limit = shown_limit
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self._vanished: dict[int, tuple[int, int, int, int]] = {}
        self._ticks: Counter[str] = Counter()
        self._shown: frozenset[str] = frozenset()
        self._other_ticks = 0
        self._told: dict[str, int] = {}
        self._told_ticks = 0
        self.cpu_ticks = 0
        self.minor_faults = 0
        self.major_faults = 0
        self._kept: Totals = {}

    def keep(self, samples: Iterable[ProcessSample]) -> Totals:
        """Return what a new agent needs; ``samples`` are the processes of the last scan."""
        living: Counter[str] = Counter()
        for sample in samples:
            if sample.pid in self._last:
                living[sample.command] += self._last[sample.pid][1]
        _, ticks, minor, major = map(sum, zip(_UNSEEN, *self._last.values(), strict=True))
        names = {*self._shown, *(name for name, _ in self._ticks.most_common(_KEPT_NAMES))}
        return {
            "cpu_ticks": Kept(self.cpu_ticks, self.cpu_ticks - ticks),
            "minor_faults": Kept(self.minor_faults, self.minor_faults - minor),
            "major_faults": Kept(self.major_faults, self.major_faults - major),
            "other_ticks": Kept(self._other_ticks, self._other_ticks),
            **{_PROGRAM + name: Kept(self._ticks[name], self._ticks[name] - living[name]) for name in sorted(names)},
        }

    def resume(self, kept: Totals) -> None:
        """Continue the totals of an agent that ran before."""
        nothing = Kept(0, 0)
        programs = {name.removeprefix(_PROGRAM): each for name, each in kept.items() if name.startswith(_PROGRAM)}
        self.cpu_ticks, self._told_ticks = kept.get("cpu_ticks", nothing).ended, kept.get("cpu_ticks", nothing).total
        self.minor_faults = kept.get("minor_faults", nothing).ended
        self.major_faults = kept.get("major_faults", nothing).ended
        self._other_ticks = kept.get("other_ticks", nothing).total
        self._ticks = Counter({name: each.ended for name, each in programs.items()})
        self._told = {name: each.total for name, each in programs.items()}
        self._kept = kept

    def _raise_to_kept(self) -> None:
        kept, self._kept = self._kept, {}
        self.cpu_ticks = raised(self.cpu_ticks, kept.get("cpu_ticks"))
        self.minor_faults = raised(self.minor_faults, kept.get("minor_faults"))
        self.major_faults = raised(self.major_faults, kept.get("major_faults"))
        for name in self._ticks:
            self._ticks[name] = raised(self._ticks[name], kept.get(_PROGRAM + name))

    def update(self, samples: Iterable[ProcessSample]) -> None:
        """Add one scan."""
        seen = {}
        for sample in samples:
            ticks = sample.user_ticks + sample.system_ticks
            seen[sample.pid] = now = (sample.start_ticks, ticks, sample.minor_faults, sample.major_faults)
            before = self._last.get(sample.pid) or self._vanished.get(sample.pid, _UNSEEN)
            if before != now:
                self._add_growth(sample.command, now, before if before[0] == now[0] else _UNSEEN)
        remember(self._vanished, {pid: self._last[pid] for pid in self._last.keys() - seen.keys()})
        self._last = seen
        if self._kept:
            self._raise_to_kept()
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
        self._vanished: Mapping[Hashable, tuple[int, int]] = {}
        self.totals = (0, 0)
        self._kept: tuple[Kept, Kept] | None = None

    def keep(self) -> tuple[Kept, Kept]:
        """Return what a new agent needs."""
        living = [sum(counts) for counts in zip((0, 0), *self._last.values(), strict=True)]
        first, second = self.totals
        return Kept(first, first - living[0]), Kept(second, second - living[1])

    def resume(self, kept: tuple[Kept, Kept]) -> None:
        """Continue the totals of an agent that ran before."""
        self._kept = kept
        self.totals = (kept[0].ended, kept[1].ended)

    def update(self, seen: Mapping[Hashable, tuple[int, int]]) -> None:
        """Add the counters of one scan."""
        first, second = self.totals
        for key, now in seen.items():
            before = self._last.get(key) or self._vanished.get(key, (0, 0))
            if before is now:  # most threads sleep, or are not read each time
                continue
            first += max(0, now[0] - before[0])
            second += max(0, now[1] - before[1])
        # A scan may lack for a moment what goes on. Many threads end, so only those of one scan are kept.
        self._vanished = {key: counts for key, counts in self._last.items() if key not in seen}
        self._last = seen
        if self._kept is not None:
            first, second = max(first, self._kept[0].total), max(second, self._kept[1].total)
            self._kept = None
        self.totals = (first, second)


class NewNames:
    """Let a job show only so many new names of programs: each is a series, and processes may rename themselves."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._room = TokenBuckets(NAMES_AN_HOUR / 3600, NAMES_AN_HOUR, clock=clock)
        self._known: OrderedDict[str, None] = OrderedDict()

    def admits(self, name: str) -> bool:
        """Return whether a name may be shown, as one that was shown lately may."""
        if name not in self._known and self._room.take():
            return False
        self._known[name] = None
        self._known.move_to_end(name)
        if len(self._known) > 2 * NAMES_AN_HOUR:
            self._known.popitem(last=False)
        return True


def bounded(counts: Counter[str], limit: int, names: NewNames) -> dict[str, int]:
    """Return the largest counts by name, and the sum of the rest under one name."""
    shown = {name: count for name, count in counts.most_common(limit) if names.admits(name)}
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
