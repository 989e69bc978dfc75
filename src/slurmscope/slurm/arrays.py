# SPDX-License-Identifier: Apache-2.0
"""Count the tasks of a job array in one record, or list them."""

from __future__ import annotations

import re

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
