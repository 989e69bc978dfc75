# SPDX-License-Identifier: Apache-2.0
"""Format numbers the way Slurm's commands print them.

Every rule here was seen in the output of squeue and sinfo 22.05.8 on a real controller.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from slurmscope.core.units import MIB

# squeue writes an array's step form only from this many tasks on: 0-12:3 stays "0,3,6,9,12", 0-15:3 does not.
STEP_FORM_TASKS = 6


def memory_text(size_bytes: int) -> str:
    """Write memory with the largest unit that keeps a whole or a half number: 1500M, 2G, 2.50G, 1.50T."""
    amount, units = size_bytes // MIB, "MGTP"
    while len(units) > 1 and amount >= 1024 and amount % 512 == 0:
        if amount % 1024:
            return f"{amount / 1024:.2f}{units[1]}"
        amount, units = amount // 1024, units[1:]
    return f"{amount}{units[0]}"


def duration_text(seconds: int) -> str:
    """Write a duration with days and hours only where needed: 0:18, 1:02:03, 1-02:03:00."""
    minutes, second = divmod(max(0, seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    if hour:
        return f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}"


def index_text(indexes: Sequence[int]) -> str:
    """Write ascending array indexes: 4-10, 5,7-9, and a regular long list by its step: 0-998:2."""
    if len(indexes) >= STEP_FORM_TASKS:
        step = indexes[1] - indexes[0]
        if step > 1 and all(later - earlier == step for earlier, later in itertools.pairwise(indexes)):
            return f"{indexes[0]}-{indexes[-1]}:{step}"
    return ",".join(_range_text(first, last, 0) for first, last in _runs(indexes))


def hosts_text(names: Iterable[str]) -> str:
    """Write node names as a host list: c[01-03,05],n1. The order of first appearance is kept."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in names:
        prefix, digits = _split_number(name)
        groups.setdefault((prefix, len(digits)), []).append(int(digits) if digits else 0)
    return ",".join(_group_text(prefix, width, sorted(set(numbers))) for (prefix, width), numbers in groups.items())


def _split_number(name: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?)(\d*)", name, re.DOTALL)
    return (found[1], found[2]) if found else (name, "")


def _group_text(prefix: str, width: int, numbers: Sequence[int]) -> str:
    if not width:
        return prefix
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}}"
    return f"{prefix}[{','.join(_range_text(first, last, width) for first, last in _runs(numbers))}]"


def _range_text(first: int, last: int, width: int) -> str:
    return f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Join neighbours of an ascending sequence into (first, last) pairs."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
