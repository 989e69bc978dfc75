# SPDX-License-Identifier: Apache-2.0
"""Cut what ``scontrol --oneliner show`` prints into records and fields, and read lists of array tasks.

A record is one line of ``Key=value`` pairs. Names that administrators choose may hold blanks and
equal signs, so a name reaches up to the next key that is known to follow; other values are words.

The tasks of a job array in one record::

    1-10%2        ten tasks, two at a time
    0,3,5-9:2     0, 3, 5, 7, 9
    1-2,5,8-9,1...  cut: Slurm writes no more than 64 characters unless SLURM_BITSTR_LEN is set
"""

from __future__ import annotations

import re

from slurmscope.core.errors import MalformedAnswer


def split_lines(answer: bytes, subject: str) -> list[str]:
    if not answer.endswith(b"\n"):
        raise MalformedAnswer(f"scontrol show {subject}: the answer is empty or ends in the middle of a line")
    return answer.decode("utf-8", "surrogateescape").split("\n")[:-1]


def cut(line: str, *keys: str) -> list[str]:
    """Return the texts between the keys, which follow each other in this order, and the text after the last.

    Raises ValueError when a key is missing. The first place of each key counts.
    """
    start = f"{keys[0]}="
    if not line.startswith(start):
        raise ValueError(f"the record does not begin with {start}")
    values = []
    rest = line[len(start) :]
    for key in keys[1:]:
        value, found, rest = rest.partition(f" {key}=")
        if not found:
            raise ValueError(f"the record has no {key}")
        values.append(value)
    return [*values, rest]


def words(text: str) -> dict[str, str]:
    """Read ``Key=word Key=word``; a comment, which is free text at the end of newer records, is left out."""
    found: dict[str, str] = {}
    for word in text.partition(" Comment=")[0].split(" "):
        key, _, value = word.partition("=")
        found.setdefault(key, value)
    return found


def parse_whole(text: str | None) -> int | None:
    """Parse an integer; None where it is absent or a word (``N/A``, ``Unknown``)."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 20:
        return None
    return int(text)


_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_CUT = "..."


def is_cut(text: str) -> bool:
    """Return whether Slurm has left out the end of the list."""
    return text.partition("%")[0].endswith(_CUT)


def count_tasks(text: str) -> int:
    """Return the number of tasks, without making a list of them.

    Raises ValueError for text that Slurm does not print, or has truncated.
    """
    return sum(map(len, parse_tasks(text)))


def parse_tasks(text: str) -> tuple[range, ...]:
    """Return the tasks of a list that is not truncated; raises ValueError for text that Slurm does not print."""
    return tuple(map(_parse_range, text.partition("%")[0].split(",")))


def _parse_range(part: str) -> range:
    found = _PART.fullmatch(part)
    if not found:
        raise ValueError(f"{part!r} is not a task or a range of tasks")
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"{part!r} is not a range of tasks")
    return range(first, last + 1, step)
