# SPDX-License-Identifier: Apache-2.0
"""Expand host lists such as ``n[1-3,7],m01`` into names, or match names with them.

A host list is a few characters that may stand for a million names, so the names are counted before
the first of them is made. Matching makes none of them: what a client sends is never expanded.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

LONGEST_NAME = 255
"""Characters of the longest name: a host name of the DNS has no more."""

RANGED_LIMIT = 32
"""Most items with brackets in a list that is matched: every name is compared with each of them."""
BRACKETS_LIMIT = 4
"""Most brackets of one item in a list that is matched."""

# As in Slurm, blanks separate names too.
_ITEM = re.compile(r"((?:[^\[\], \t\n]|\[[^\[\]]*\])+)(?:[, \t\n]|\Z)|[, \t\n]")
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


def match_hosts(text: str) -> Callable[[str], bool]:
    """Return whether a name is one of a host list; the cost does not grow with the number of names that it stands for.

    Raises ValueError for text that is no host list, and for one with too many brackets.
    """
    names: set[str] = set()
    ranged: list[tuple[list[str], list[_Numbers]]] = []
    for item in _split(text):
        literals, insides = _BRACKETS.split(item)[::2], _BRACKETS.findall(item)
        if not insides:
            names.add(item)
            continue
        if len(ranged) == RANGED_LIMIT or len(insides) > BRACKETS_LIMIT:
            raise ValueError("the host list has too many brackets")
        ranged.append((literals, [_Numbers(_parse_ranges(inside)) for inside in insides]))
    return lambda name: name in names or any(_matches(name, literals, numbers) for literals, numbers in ranged)


def _matches(name: str, literals: Sequence[str], numbers: Sequence[_Numbers]) -> bool:
    """Try every way to divide a name into the literals and the numbers between them."""
    if not name.startswith(literals[0]):
        return False
    rest = name[len(literals[0]) :]
    if not numbers:
        return not rest
    found = _DIGITS.match(rest)
    return found is not None and any(
        numbers[0].has(rest[:end]) and _matches(rest[end:], literals[1:], numbers[1:])
        for end in range(1, len(found[0]) + 1)
    )


class _Numbers:
    """The numbers of one pair of brackets, by how many digits they have at least."""

    def __init__(self, ranges: list[_Range]) -> None:
        self._by_digits: dict[int, tuple[list[int], list[int]]] = {}
        for first, last, digits in sorted(ranges):
            firsts, lasts = self._by_digits.setdefault(digits, ([], []))
            firsts.append(first)
            lasts.append(max(last, lasts[-1]) if lasts else last)

    def has(self, text: str) -> bool:
        """Return whether the digits are one of the numbers, written with its zeros."""
        number, length = int(text), len(text)
        for digits, (firsts, lasts) in self._by_digits.items():
            if length == digits or (length > digits and text[0] != "0"):
                place = bisect_right(firsts, number)
                if place and number <= lasts[place - 1]:
                    return True
        return False


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
