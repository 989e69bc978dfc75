# SPDX-License-Identifier: Apache-2.0
"""Encode samples as requests of Prometheus' remote write protocol 1.0.

A request is a protobuf message, compressed with snappy::

    WriteRequest { repeated TimeSeries timeseries = 1; }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    Label        { string name = 1; string value = 2; }
    Sample       { double value = 1; int64 timestamp = 2; }  // milliseconds

Labels are sorted by name; the metric's name is the label ``__name__``. Empty labels are left out, as in Prometheus.

A search for repetitions in plain Python would cost more than everything else a request does. Requests of remote write
repeat names, label sets and samples as a whole, so a dictionary of these pieces finds nearly all of them: a request is
a quarter of its size, for about 2 µs of CPU a sample (``bench/agent_page.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.metrics.family import Family, Labels
from slurmscope.metrics.write import flat_samples

_MIN_COPY = 5
"""Shorter pieces are not worth a copy, which takes three bytes and ends a literal."""
_MAX_COPY = 64
_MAX_LITERAL = 65_536
_NEAR = 65_536
"""Copies from nearer than this have an offset of two bytes."""


def encode_varint(number: int) -> bytes:
    """Encode a number of 0 or more in groups of seven bits, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class SnappyWriter:
    """Build one block."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes before compression."""
        self._seen: dict[bytes, int] = {}
        self._literal = bytearray()
        self._encoded = bytearray()

    def add(self, data: bytes) -> None:
        """Append bytes that are not expected again."""
        self._literal += data
        self.size += len(data)

    def add_piece(self, piece: bytes) -> None:
        """Append a piece that may have occurred before, or may occur again."""
        before = self._seen.get(piece)
        self._seen[piece] = self.size  # the nearest one has the shortest offset
        if before is None or len(piece) < _MIN_COPY:
            self._literal += piece
        else:
            self._end_literal()
            self._copy(self.size - before, len(piece))
        self.size += len(piece)

    def finish(self) -> bytes:
        self._end_literal()
        return encode_varint(self.size) + self._encoded

    def _copy(self, offset: int, length: int) -> None:
        kind, width = (2, 2) if offset < _NEAR else (3, 4)
        place = offset.to_bytes(width, "little")
        while length:
            part = min(length, _MAX_COPY)
            self._encoded.append((part - 1) << 2 | kind)
            self._encoded += place
            length -= part

    def _end_literal(self) -> None:
        for start in range(0, len(self._literal), _MAX_LITERAL):
            part = self._literal[start : start + _MAX_LITERAL]
            self._encoded += _literal_tag(len(part) - 1)
            self._encoded += part
        self._literal.clear()


def _literal_tag(last: int) -> bytes:
    if last < 60:
        return bytes((last << 2,))
    return bytes((60 << 2, last)) if last < 256 else bytes((61 << 2, last & 0xFF, last >> 8))


NAME_LABEL = "__name__"
EMPTY_REQUEST = encode_varint(0)
"""A request without series: snappy's block begins with the number of its bytes."""
STALE = struct.pack("<Q", 0x7FF0_0000_0000_0002)
"""The not-a-number that Prometheus writes as the last sample of a series."""
_pack = struct.Struct("<d").pack
SERIES_PER_REQUEST = 5000
"""About half a megabyte before compression; servers limit the size of a request to some tens of megabytes."""

Series = tuple[bytes, bytes]
"""Encoded labels: those up to the name of the metric, and those after it, which other metrics share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One compressed request."""

    body: bytes = field(repr=False)
    samples: int


class RequestEncoder:
    """Encode one round of samples after the other, with a stale marker for every series that is gone."""

    def __init__(self, external_labels: Mapping[str, str]) -> None:
        """Take the labels that every series gets, such as ``instance`` and ``job``."""
        self._external = dict(external_labels)
        self._own: set[Series] = set()
        self._pushed: set[Series] = set()
        self._last_ms = 0

    def encode(
        self, families: Iterable[Family], at_ms: int, pushed: Iterable[tuple[Series, float]] = ()
    ) -> Iterator[WriteRequest]:
        """Yield the requests of one round; all of them must be taken.

        ``pushed`` are samples of series that ``encode_series`` encoded before. They get requests of their own: others
        may send the same series, and a server refuses a whole request for one sample.
        """
        writer = _RequestWriter(self._own_time(at_ms))
        known, self._own = self._own, set()
        for series, value in self._series(families):
            self._own.add(series)
            known.discard(series)
            if writer.add(series, _pack(value)):
                yield writer.finish()
        values: dict[Series, float] = {}
        for series, value in pushed:
            if series not in self._own:  # a server refuses a series that occurs twice
                values.setdefault(series, value)
        yield from _encode_stale(writer, known.difference(values))
        yield from self._encode_pushed(writer, values)

    def encode_end(self, at_ms: int) -> Iterator[WriteRequest]:
        return self.encode((), at_ms)

    def encode_series(self, name: str, labels: Mapping[str, str]) -> Series:
        """Encode a series that others pushed: its own labels are kept, and it has neither our ``instance`` nor ``job``.

        That is what a scrape with ``honor_labels`` does.
        """
        pairs = {**self._external, "instance": "", "job": "", **labels}
        pairs.pop(NAME_LABEL, None)
        before, after = _encode_labels(pairs)
        return before + encode_label(NAME_LABEL, name), after

    def _encode_pushed(self, writer: _RequestWriter, values: Mapping[Series, float]) -> Iterator[WriteRequest]:
        known, self._pushed = self._pushed, set(values)
        for series, value in values.items():
            if writer.add(series, _pack(value)):
                yield writer.finish()
        yield from _encode_stale(writer, known.difference(self._own, values))

    def _own_time(self, at_ms: int) -> int:
        """Return the time of a round; servers refuse two samples of a series in one millisecond."""
        self._last_ms = at_ms + 1 if at_ms == self._last_ms else at_ms
        return self._last_ms

    def _series(self, families: Iterable[Family]) -> Iterator[tuple[Series, float]]:
        rows: dict[tuple[tuple[str, ...], Labels], Series] = {}
        for family in families:
            for name, label_names, samples in flat_samples(family):
                encoded_name = encode_label(NAME_LABEL, name)
                for labels, value in samples:
                    encoded = rows.get((label_names, labels))
                    if encoded is None:
                        encoded = rows[label_names, labels] = self._encode_row(label_names, labels)
                    yield (encoded[0] + encoded_name, encoded[1]), value

    def _encode_row(self, names: Sequence[str], values: Labels) -> Series:
        """Return the encoded labels before and after the name of the metric."""
        pairs = dict(self._external)
        own = {name: value for name, value in zip(names, values, strict=True) if value}
        for name, value in own.items():
            # As Prometheus does when it scrapes a target.
            free = name
            while free in pairs or (free != name and free in own):
                free = f"exported_{free}"
            pairs[free] = value
        return _encode_labels(pairs)


def _encode_labels(pairs: Mapping[str, str]) -> Series:
    """Return the encoded labels before and after the name of the metric."""
    labels = [(name, encode_label(name, value)) for name, value in sorted(pairs.items()) if value]
    before = b"".join(label for name, label in labels if name < NAME_LABEL)
    return before, b"".join(label for name, label in labels if name >= NAME_LABEL)


def encode_label(name: str, value: str) -> bytes:
    label = _encode_text(b"\x0a", name) + _encode_text(b"\x12", value)
    return b"\x0a" + encode_varint(len(label)) + label


def _encode_text(tag: bytes, text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return tag + encode_varint(len(data)) + data


def _encode_stale(writer: _RequestWriter, series: Iterable[Series]) -> Iterator[WriteRequest]:
    """Add stale markers, and finish the request."""
    for gone in sorted(series):
        if writer.add(gone, STALE):
            yield writer.finish()
    if writer.samples:
        yield writer.finish()


class _RequestWriter:
    """Fill requests of a limited size with samples of one moment."""

    def __init__(self, at_ms: int) -> None:
        timestamp = b"\x10" + encode_varint(at_ms)
        self._head = b"\x12" + encode_varint(9 + len(timestamp)) + b"\x09"
        self._timestamp = timestamp
        self._block = SnappyWriter()
        self.samples = 0

    def add(self, series: Series, value: bytes) -> bool:
        """Add a sample; return whether the request is full."""
        before, after = series
        sample = self._head + value + self._timestamp
        block = self._block
        block.add(b"\x0a" + encode_varint(len(before) + len(after) + len(sample)))
        block.add_piece(before)
        block.add_piece(after)
        block.add_piece(sample)
        self.samples += 1
        return self.samples >= SERIES_PER_REQUEST

    def finish(self) -> WriteRequest:
        """Return the request, and begin the next one."""
        request = WriteRequest(body=self._block.finish(), samples=self.samples)
        self._block, self.samples = SnappyWriter(), 0
        return request
