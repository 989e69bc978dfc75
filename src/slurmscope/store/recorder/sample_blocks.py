# SPDX-License-Identifier: Apache-2.0
"""Pack samples of series into small blocks, and summarise a block so that most queries need not unpack it.

Numbers are 64-bit floats. Before they are compressed, the first bytes of all numbers are grouped, then the
second ones, and so on: neighbours in a series share their sign, exponent and leading digits, so whole runs of bytes
become equal. That is done by slices alone, so it costs no step of Python for each number.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import islice
from operator import gt
from typing import NamedTuple

_WIDTH = 8
_LEVEL = 1
BLOCK_LIMIT_BYTES = 512 * 1024 * 1024
"""What a block may unpack to; a larger one is damaged."""


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
    """Compress numbers."""
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
