# SPDX-License-Identifier: Apache-2.0
"""Hold the newest samples of every live series in memory, until they are packed.

One thread writes; any thread may take copies. The samples are also in the journal of the recorder's file,
from which it is filled again after a crash.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from slurmscope.jobs.series import JOB_LABEL

NO_JOB = 0
"""The job ID of series that belong to no job; Slurm never assigns it."""

LabelPairs = tuple[tuple[str, str], ...]
"""Names and values of labels that are not empty, in the order of the names."""

_KEYS_LIMIT = 4


@dataclass(slots=True, eq=False)
class Head:
    """The newest samples of one series; ``keys`` are the names under which it is found."""

    id: int
    metric: str
    job_id: int
    labels: Mapping[str, str]
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    last_at: float = -inf
    keys: list[Hashable] = field(default_factory=list)


class Heads:
    """Find live series by their number, by any key, and by metric and job."""

    def __init__(self) -> None:
        self.samples = 0
        self._by_id: dict[int, Head] = {}
        self._by_key: dict[Hashable, Head] = {}
        self._groups: dict[tuple[str, int], list[Head]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Head]:
        return iter(self._by_id.values())

    def find(self, key: Hashable) -> Head | None:
        return self._by_key.get(key)

    def has(self, head: Head) -> bool:
        return self._by_id.get(head.id) is head

    def add(self, head: Head) -> None:
        with self._lock:
            self._by_id[head.id] = head
            self._groups.setdefault((head.metric, head.job_id), []).append(head)
        self.name(head, series_key(head.metric, head.labels))

    def name(self, head: Head, key: Hashable) -> None:
        """Add a key of a series; the oldest but the first is dropped when there are many."""
        if len(head.keys) >= _KEYS_LIMIT:
            self._by_key.pop(head.keys.pop(1), None)
        head.keys.append(key)
        self._by_key[key] = head

    def feed(self, at_seconds: float, ids: Iterable[int], values: Iterable[float]) -> int:
        """Append samples of one moment; return how many were left out, being no newer than the last of their series."""
        by_id, late, count = self._by_id, 0, 0
        with self._lock:
            for number, value in zip(ids, values, strict=True):
                head = by_id.get(number)
                if head is None or at_seconds <= head.last_at:
                    late += 1
                    continue
                head.last_at = at_seconds
                head.times.append(at_seconds)
                head.values.append(value)
                count += 1
            self.samples += count
        return late

    def groups(self) -> Iterator[tuple[str, int, list[Head]]]:
        """Yield metric, job and series that have samples."""
        for (metric, job_id), heads in self._groups.items():
            if fed := [head for head in heads if head.times]:
                yield metric, job_id, fed

    def idle(self) -> list[Head]:
        """Return series that got no sample since samples were last let go."""
        return [head for head in self._by_id.values() if not head.times]

    def let_go(self, idle: Iterable[Head]) -> None:
        """Forget all samples, which are packed now, and the idle series altogether."""
        with self._lock:
            for head in idle:
                del self._by_id[head.id]
                for key in head.keys:
                    self._by_key.pop(key, None)
                group = self._groups[head.metric, head.job_id]
                group.remove(head)
                if not group:
                    del self._groups[head.metric, head.job_id]
            for head in self._by_id.values():
                head.times, head.values = array("d"), array("d")
            self.samples = 0

    def reset_times(self) -> None:
        """Accept samples of any time again: the clock was set back."""
        for head in self._by_id.values():
            head.last_at = -inf

    def copies(self, metric: str, job_id: int) -> list[tuple[LabelPairs, array[float], array[float]]]:
        """Return labels, times and values of the series of one metric and job."""
        with self._lock:
            heads = self._groups.get((metric, job_id), ())
            return [(tuple(head.labels.items()), head.times[:], head.values[:]) for head in heads if head.times]


def series_key(metric: str, labels: Mapping[str, str]) -> Hashable:
    """Name a series in one way, whatever the order of its labels."""
    return metric, tuple(sorted(labels.items()))


def job_of(labels: Mapping[str, str]) -> int:
    text = labels.get(JOB_LABEL, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else NO_JOB
