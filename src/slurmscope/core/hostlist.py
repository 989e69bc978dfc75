# SPDX-License-Identifier: Apache-2.0
"""Expand host lists such as ``n[1-3,7],m01`` into names.

A host list is a few characters that may stand for a million names, so the names are counted before
the first of them is made.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

LONGEST_NAME = 255
"""Characters of the longest name: a host name of the DNS has no more."""

_ITEM = re.compile(r"((?:[^\[\],]|\[[^\[\]]*\])+)(?:,|\Z)|,")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\Z")
_DIGITS = re.compile(r"([0-9]{1,18})")


def expand_hosts(text: str, limit: int = 100_000) -> tuple[str, ...]:
    """Return the names of a host list in its order, each once.

    Raises ValueError for text that is no host list and for one of more than ``limit`` names.
    """
    names: dict[str, None] = {}
    count = 0
    for item in _split(text):
        literals = _BRACKETS.split(item)[::2]
        ranges = [_parse_ranges(inside) for inside in _BRACKETS.findall(item)]
        count += math.prod(sum(last - first + 1 for first, last, _ in part) for part in ranges)
        if count > limit:
            raise ValueError(f"the host list names more than {limit} hosts")
        if sum(map(len, literals)) > LONGEST_NAME:
            raise ValueError("the host list has a name that is too long")
        names.update(dict.fromkeys(_names(literals, ranges)))
    return tuple(names)


_Range = tuple[int, int, int]


def _split(text: str) -> Iterator[str]:
    """Cut at the commas outside of brackets; nothing between two commas is no name, as in Slurm."""
    position = 0
    while position < len(text):
        found = _ITEM.match(text, position)
        if not found:
            raise ValueError("the brackets of the host list do not match")
        if found[1]:
            yield found[1]
        position = found.end()


def _parse_ranges(inside: str) -> list[_Range]:
    """Read ``001-010,12`` as first, last and number of digits."""
    ranges = []
    for piece in inside.split(","):
        found = _RANGE.match(piece)
        if not found:
            raise ValueError(f"{piece[:40]!r} is no range of a host list")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{piece!r} is a range that runs backwards")
        ranges.append((first, last, len(found[1])))
    return ranges


def _names(literals: list[str], ranges: list[list[_Range]]) -> Iterator[str]:
    numbers = (
        [f"{number:0{digits}}" for first, last, digits in part for number in range(first, last + 1)] for part in ranges
    )
    for chosen in itertools.product(*numbers):
        yield literals[0] + "".join(map("".join, zip(chosen, literals[1:], strict=True)))


def natural_order(label: str) -> list[tuple[int, str]]:
    """Return a sort key that orders n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(label)]
