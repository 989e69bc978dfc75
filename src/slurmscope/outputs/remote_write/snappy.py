# SPDX-License-Identifier: Apache-2.0
"""Compress in snappy's block format, where the caller marks the pieces of the data that repeat.

A search for repetitions in plain Python would cost more than everything else a request does. Requests of remote write
repeat names, label sets and samples as a whole, so a dictionary of these pieces finds nearly all of them: a request is
a quarter of its size, for about 2 µs of CPU a sample (``bench/agent_page.py``).
"""

from __future__ import annotations

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
        """Return the block."""
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
