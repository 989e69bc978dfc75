# SPDX-License-Identifier: Apache-2.0
"""Add up what processes used, by the name of their program, so that nothing falls when one ends.

Only growth is added: to the name that the process bears at the moment, for it may change when a program starts
another. Processes that lived between two scans are not seen; the cgroup knows the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from operator import sub

from slurmscope.sources.procfs.stat import ProcessSample

OTHER = "other"
_NAME_LIMIT = 256
_UNSEEN = (0, 0, 0, 0)


class ProgramTotals:
    """Keep the totals of one job and the programs that used most of the CPU."""

    def __init__(self, shown_limit: int) -> None:
        """Take how many programs are shown by name; all others are one."""
        self._shown_limit = shown_limit
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self._ticks: Counter[str] = Counter()
        self._shown: frozenset[str] = frozenset()
        self._other_ticks = 0
        self.cpu_ticks = 0
        self.minor_faults = 0
        self.major_faults = 0

    def update(self, samples: Iterable[ProcessSample]) -> None:
        """Take one scan."""
        seen = {}
        for sample in samples:
            ticks = sample.user_ticks + sample.system_ticks
            seen[sample.pid] = now = (sample.start_ticks, ticks, sample.minor_faults, sample.major_faults)
            before = self._last.get(sample.pid, _UNSEEN)
            if before != now:
                self._book(sample.command, now, before if before[0] == now[0] else _UNSEEN)
        self._last = seen
        if len(self._ticks) > _NAME_LIMIT:
            # A job that renames itself without end; all that is cut off counts as other.
            self._ticks = Counter(dict(self._ticks.most_common(_NAME_LIMIT // 2)))

    def _book(self, command: str, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        _, ticks, minor_faults, major_faults = (max(0, growth) for growth in map(sub, now, before))
        self.cpu_ticks += ticks
        self.minor_faults += minor_faults
        self.major_faults += major_faults
        if ticks and command != OTHER:
            self._ticks[command] += ticks

    def cpu_ticks_by_program(self) -> dict[str, int]:
        """Return the programs with the most CPU time, and the rest under one name; no value ever falls.

        One that is shown stays until another has a tenth more, so that two of a kind do not take turns.
        """
        ranked = sorted(self._ticks, key=lambda name: -self._ticks[name] * (11 if name in self._shown else 10))
        shown = {name: self._ticks[name] for name in ranked[: self._shown_limit]}
        self._shown = frozenset(shown)
        # When a program leaves the rest to be shown by name, the rest must not fall.
        self._other_ticks = max(self._other_ticks, self.cpu_ticks - sum(shown.values()))
        return {**shown, OTHER: self._other_ticks} if self._other_ticks else shown


class GrowthTotals:
    """Add up two counters of things that come and go."""

    def __init__(self) -> None:
        self._last: Mapping[Hashable, tuple[int, int]] = {}
        self.totals = (0, 0)

    def update(self, seen: Mapping[Hashable, tuple[int, int]]) -> None:
        """Take the counters of one scan."""
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
