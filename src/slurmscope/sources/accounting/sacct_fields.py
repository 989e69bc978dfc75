# SPDX-License-Identifier: Apache-2.0
"""Split the output of sacct into rows, and parse its cells.

Names, command lines and directories may hold anything but a NUL, including line ends. The separator is a random word,
new for each call; the first and the last column hold neither line ends nor text from users. So the rows are found by
counting separators, whatever is between them.

::

    12|12|relax|ada|1001|...|COMPLETED
    12.batch|12.batch|batch|||...|COMPLETED
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from slurmscope.errors import MalformedAnswer

SacctRow = Mapping[str, str]

_NO_TIMES = frozenset({2**32 - 1, 2**32 - 2})
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_EXIT_CODE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})\Z")
_ARRAY_TASK = re.compile(r"([0-9]{1,10})_([0-9]{1,10})\Z")
_ARRAY_REST = re.compile(r"([0-9]{1,10})_\[")
_HET_PART = re.compile(r"([0-9]{1,10})\+([0-9]{1,10})\Z")
_CPU_TIME = re.compile(
    r"(?:(?:(?P<days>\d{1,6})-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d{1,6})?)\Z"
)


def split_rows(text: str, mark: str, width: int) -> Iterator[list[str]]:
    """Yield the cells of each row; line ends in a row are kept, except in its first and last cell."""
    if not text:
        return
    cells = text.split(mark)
    if not text.endswith("\n") or len(cells) == 1 or (len(cells) - 1) % (width - 1):
        raise MalformedAnswer("sacct: the output was cut, or does not have the requested columns")
    first = cells[0]
    for start in range(1, len(cells), width - 1):
        *middle, joint = cells[start : start + width - 1]
        last, _, following = joint.partition("\n")
        yield [first, *middle, last]
        first = following


def parse_state(text: str) -> str:
    """Parse a state, without the user id that may follow it: CANCELLED by 1001."""
    return text.partition(" ")[0]


def parse_canceller(text: str) -> int | None:
    """Return the user id that follows a state: 1001 of CANCELLED by 1001."""
    _, is_named, uid = text.partition("CANCELLED by ")
    return parse_count(uid) if is_named else None


def parse_time(text: str) -> int | None:
    """Parse a time; Unknown, None, 0 and Slurm's numbers for no value are None."""
    seconds = parse_count(text)
    return seconds if seconds and seconds not in _NO_TIMES else None


def parse_submit_time(text: str) -> int:
    """Parse the submit time, which every job has."""
    seconds = parse_time(text)
    if seconds is None:
        raise ValueError(f"{text[:40]!r} is not a submit time")
    return seconds


def parse_job_id(text: str) -> int:
    """Parse the unique id of a job."""
    if not _NUMBER.match(text):
        raise ValueError(f"{text[:40]!r} is not a job ID")
    return int(text)


def parse_count(text: str) -> int | None:
    """Parse a whole number; None for any other text."""
    return int(text) if _NUMBER.match(text) else None


def parse_time_limit(text: str) -> int | None:
    """Parse minutes into seconds; None for UNLIMITED and Partition_Limit."""
    minutes = parse_count(text)
    return 60 * minutes if minutes else None


def parse_exit_status(text: str) -> tuple[int | None, int | None]:
    """Parse exit code and signal; nothing is printed for a step whose node failed before it could report."""
    if not text:
        return None, None
    found = _EXIT_CODE.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not an exit code such as 0:9")
    return int(found[1]), int(found[2])


def parse_array_ids(shown_id: str) -> tuple[int | None, int | None]:
    """Parse 12_3 into array and task; the pending rest of an array, 12_[4-9], has no task id."""
    if found := _ARRAY_TASK.match(shown_id):
        return int(found[1]), int(found[2])
    if found := _ARRAY_REST.match(shown_id):
        return int(found[1]), None
    return None, None


def parse_het_ids(shown_id: str) -> tuple[int | None, int | None]:
    """Parse 12+1 into heterogeneous job and offset."""
    found = _HET_PART.match(shown_id)
    return (int(found[1]), int(found[2])) if found else (None, None)


def parse_cpu_time(text: str) -> float:
    """Parse 1-02:03:04, 02:03:04 or 03:04.567; raise ValueError for anything else."""
    found = _CPU_TIME.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a time such as 02:03:04")
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((24 * days + hours) * 60 + minutes) * 60 + float(found["seconds"])


def parse_suspended(text: str) -> int:
    """Parse 00:00:07 or 1-01:01:01; 0 for any other text."""
    return int(parse_cpu_time(text)) if _CPU_TIME.match(text) else 0
