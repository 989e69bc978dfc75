# SPDX-License-Identifier: Apache-2.0
"""Hold the newest samples of live series in memory, write those of one metric and job as a slab, and read slabs again.

Numbers are 64-bit floats. Before they are compressed, the first bytes of all numbers are grouped, then the
second ones, and so on: neighbours in a series share their sign, exponent and leading digits, so whole runs of bytes
become equal. That is done by slices alone, so it costs no step of Python for each number.

Of samples in memory, one thread writes; any thread may take copies. They are also in the journal of the recorder's
file, from which memory is filled again after a crash.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from math import inf
from operator import gt
from typing import NamedTuple, TypeAlias

from slurmscope.jobs.series import JOB_LABEL

_WIDTH = 8
_LEVEL = 1
BLOCK_LIMIT_BYTES = 512 * 1024 * 1024
"""What a block may unpack to; a larger one is damaged."""

NO_JOB = 0
"""The job ID of series that belong to no job; Slurm never assigns it."""

LabelPairs = tuple[tuple[str, str], ...]
"""Names and values of labels that are not empty, in the order of the names."""

_KEYS_LIMIT = 4


class BlockSummary(NamedTuple):
    """Sum up the samples of one series within some time; ``growth`` is that of a counter, over resets."""

    first_at: float
    last_at: float
    samples: float
    total: float
    highest: float
    first: float
    last: float
    growth: float


DIGEST_WIDTH = len(BlockSummary._fields)


def digest(times: Sequence[float], values: Sequence[float]) -> BlockSummary:
    """Sum up samples, of which there is at least one."""
    grown = grow(values)
    return BlockSummary(
        times[0], times[-1], len(values), sum(values), max(values), values[0], values[-1], grown[-1] - grown[0]
    )


def join(before: BlockSummary, after: BlockSummary) -> BlockSummary:
    """Sum up two stretches of one series that follow each other."""
    # A counter that is lower than before restarted at 0.
    between = after.first - before.last if after.first >= before.last else after.first
    return BlockSummary(
        before.first_at,
        after.last_at,
        before.samples + after.samples,
        before.total + after.total,
        max(before.highest, after.highest),
        before.first,
        after.last,
        before.growth + between + after.growth,
    )


def rise(values: Sequence[float]) -> Sequence[float]:
    """Return a counter's values as if it had not lost what it lost at each fall."""
    risen, lost, before = array("d"), 0.0, 0.0
    for value in values:
        lost += max(0.0, before - value)
        risen.append(value + lost)
        before = value
    return risen


def grow(values: Sequence[float]) -> Sequence[float]:
    """Return a counter's values as if it had never been reset."""
    if not any(map(gt, values, islice(values, 1, None))):
        return values
    grown, lost, before = array("d"), 0.0, 0.0
    for value in values:
        if value < before:
            lost += before
        grown.append(value + lost)
        before = value
    return grown


def pack_floats(numbers: array[float]) -> bytes:
    raw = numbers.tobytes()
    return zlib.compress(b"".join(raw[place::_WIDTH] for place in range(_WIDTH)), _LEVEL)


def unpack_floats(packed: bytes) -> array[float]:
    """Read what :func:`pack_floats` wrote; raise ValueError when it is damaged."""
    planes = unpack_bytes(packed)
    count, rest = divmod(len(planes), _WIDTH)
    if rest:
        raise ValueError("a block of samples is damaged")
    raw = bytearray(len(planes))
    for place in range(_WIDTH):
        raw[place::_WIDTH] = planes[place * count : (place + 1) * count]
    numbers = array("d")
    numbers.frombytes(raw)
    return numbers


def unpack_bytes(packed: bytes) -> bytes:
    """Unpack at most :data:`BLOCK_LIMIT_BYTES`; raise ValueError when it is damaged."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, BLOCK_LIMIT_BYTES)
    except zlib.error as error:
        raise ValueError("a block of samples is damaged") from error
    if not unpacking.eof:
        raise ValueError("a block of samples is damaged")
    return content


SampleArrays: TypeAlias = "tuple[array[float], array[float]]"
"""Times, and the values at these times."""

_INSERT_TIMES = "INSERT INTO times (period, data) VALUES (?, ?)"
_INSERT_SLAB = (
    "INSERT INTO slabs (period, metric, job_id, start, end, times_id, labels, layout, digests, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_SLABS = (
    "SELECT times_id, labels, layout, digests, data FROM slabs"
    " WHERE job_id = ? AND metric = ? AND start <= ? AND end >= ? ORDER BY start"
)
_SELECT_TIMES = "SELECT data FROM times WHERE id = ?"


class Piece(NamedTuple):
    """One stretch of one series; equal ``times_key`` means equal times."""

    digest: BlockSummary
    times_key: Hashable
    load: Callable[[], SampleArrays]

    @property
    def has_reset(self) -> bool:
        """Return whether a counter fell within this stretch."""
        return self.digest.growth != self.digest.last - self.digest.first

    def between(self, start_seconds: float, end_seconds: float) -> BlockSummary | None:
        """Sum up what lies within a span, its ends included."""
        if self.digest.first_at >= start_seconds and self.digest.last_at <= end_seconds:
            return self.digest
        times, values = self.load()
        begin, end = bisect_left(times, start_seconds), bisect_right(times, end_seconds)
        return digest(times[begin:end], values[begin:end]) if end > begin else None


def make_piece(times: array[float], values: array[float]) -> Piece:
    return Piece(digest(times, values), times.tobytes(), lambda: (times, values))


def in_order(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces of a series in order of time.

    They overlap when samples were packed during a read, or when the clock was set back. Then they become
    one piece; of two samples of one moment the later piece's counts.
    """
    ordered = sorted(pieces, key=lambda piece: piece.digest.first_at)
    if all(a.digest.last_at < b.digest.first_at for a, b in pairwise(ordered)):
        return ordered
    merged: dict[float, float] = {}
    for piece in pieces:
        merged.update(zip(*piece.load(), strict=True))
    return [make_piece(array("d", sorted(merged)), array("d", (merged[time] for time in sorted(merged))))]


def write_slabs(
    connection: sqlite3.Connection, period: float, job_id: int, metrics: Sequence[tuple[str, Sequence[Head]]]
) -> None:
    """Write all series of one job; those that were recorded together share their times."""
    places: dict[bytes, int] = {}
    shared = array("d")
    for head in (head for _, heads in metrics for head in heads):
        if (content := head.times.tobytes()) not in places:
            places[content] = len(shared)
            shared.extend(head.times)
    times_id = connection.execute(_INSERT_TIMES, (period, pack_floats(shared))).lastrowid
    for metric, heads in metrics:
        start, end = min(head.times[0] for head in heads), max(head.times[-1] for head in heads)
        packed = _pack_slab(heads, [places[head.times.tobytes()] for head in heads])
        connection.execute(_INSERT_SLAB, (period, metric, job_id, start, end, times_id, *packed))


def _pack_slab(heads: Sequence[Head], places: Sequence[int]) -> tuple[bytes, bytes, bytes, bytes]:
    labels = json.dumps([dict(head.labels) for head in heads], separators=(",", ":")).encode("ascii")
    layout, digests, values = array("q"), array("d"), array("d")
    for head, place in zip(heads, places, strict=True):
        layout.extend((place, len(head.times)))
        digests.extend(digest(head.times, head.values))
        values.extend(head.values)
    return zlib.compress(labels, 1), layout.tobytes(), digests.tobytes(), pack_floats(values)


class SlabReader:
    """Read slabs through one connection; what several of them share is unpacked once. A damaged one is a ValueError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._times: dict[int, array[float]] = {}
        self._labels: dict[bytes, list[LabelPairs]] = {}

    def read(
        self, metric: str, job_id: int, start_seconds: float, end_seconds: float
    ) -> Iterator[tuple[LabelPairs, Piece]]:
        """Yield labels and samples of the series of one metric and job that may have samples within a span."""
        rows = self._connection.execute(_SELECT_SLABS, (job_id, metric, end_seconds, start_seconds))
        for times_id, packed_labels, packed_layout, digests, data in rows:
            labels = self._unpack_labels(packed_labels)
            layout, numbers = array("q", packed_layout), array("d", digests)
            if len(layout) != 2 * len(labels) or len(numbers) != DIGEST_WIDTH * len(labels):
                raise ValueError("a block of samples is damaged")
            slab = _Slab(partial(self._read_times, times_id), data)
            offset = 0
            for index, pairs in enumerate(labels):
                place, count = layout[2 * index], layout[2 * index + 1]
                summed = BlockSummary(*numbers[index * DIGEST_WIDTH : (index + 1) * DIGEST_WIDTH])
                yield pairs, Piece(summed, (times_id, place, count), partial(slab.samples, place, offset, count))
                offset += count

    def _unpack_labels(self, packed: bytes) -> list[LabelPairs]:
        if packed not in self._labels:
            self._labels[packed] = [tuple(named.items()) for named in json.loads(unpack_bytes(packed))]
        return self._labels[packed]

    def _read_times(self, times_id: int) -> array[float]:
        if times_id not in self._times:
            row = self._connection.execute(_SELECT_TIMES, (times_id,)).fetchone()
            if row is None:
                raise ValueError("the times of a block of samples are gone")
            self._times[times_id] = unpack_floats(row[0])
        return self._times[times_id]


@dataclass(slots=True)
class _Slab:
    """Unpack a slab when the first of its series is needed."""

    times: Callable[[], array[float]]
    data: bytes
    values: array[float] | None = field(default=None)

    def samples(self, place: int, offset: int, count: int) -> SampleArrays:
        if self.values is None:
            self.values = unpack_floats(self.data)
        return self.times()[place : place + count], self.values[offset : offset + count]


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
