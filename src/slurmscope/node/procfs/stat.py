# SPDX-License-Identifier: Apache-2.0
"""Parse files below ``/proc``."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk_sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
}
UNKNOWN_STATE = "unknown"
MOST_DIGITS = 20
COMMAND_LIMIT = 64
"""Characters of a command's name; the kernel's own threads have up to this many, programs 15."""


class ProcessSample(NamedTuple):
    """``/proc/PID/stat`` of one process, all threads together, and its effective user.

    A tuple, because thousands are made at each scrape and a frozen dataclass takes five times as long to make.
    ``child_minor_faults`` are those of children that ended and were waited for. ``text`` is the line itself.
    """

    pid: int
    parent_id: int
    group_id: int
    session_id: int
    start_ticks: int
    state: str
    command: str
    threads: int
    user_ticks: int
    system_ticks: int
    minor_faults: int
    major_faults: int
    child_minor_faults: int
    resident_pages: int
    processor: int
    uid: int
    text: bytes


class ThreadSample(NamedTuple):
    """``/proc/PID/task/TID/stat`` of one thread."""

    thread_id: int
    start_ticks: int
    state: str
    processor: int


class IoCounts(NamedTuple):
    """``/proc/PID/io``: the I/O of the process and of all children that ended and were waited for."""

    read_chars: int
    write_chars: int
    reads: int
    writes: int
    read_bytes: int
    write_bytes: int


NO_IO = IoCounts(0, 0, 0, 0, 0, 0)
_IO_KEYS = [b"rchar:", b"wchar:", b"syscr:", b"syscw:", b"read_bytes:", b"write_bytes:"]


MOST_COUNT = (1 << 64) - 1
"""The kernel counts in 64 bits; a larger number is garbage, and may be too large for a float."""
# In the order of ProcessSample, without state and command; then the two times that ``child_ticks`` reads.
_STAT_NUMBERS = itemgetter(1, 2, 3, 19, 17, 11, 12, 7, 9, 8, 21, 36, 13, 14)


def parse_stat(text: bytes, uid: int) -> ProcessSample:
    """Parse the line of a process; the command is in parentheses and may contain any character."""
    try:
        begin, end = text.index(b"("), text.rindex(b")")
        rest = text[end + 2 :].split()
        numbers = (int(text[:begin]), *map(int, _STAT_NUMBERS(rest)))
        if min(numbers) < 0 or max(numbers) > MOST_COUNT:
            raise ValueError("a number out of range")
        pid, parent, group, session, start, threads, user, system, minor, major, child_minor, pages, core, *_ = numbers
        command = clean_command(text[begin + 1 : end])
        return ProcessSample(
            pid, parent, group, session, start, chr(rest[0][0]), command, threads, user, system, minor, major,
            child_minor, pages, core, uid, text,
        )  # fmt: skip
    except (ValueError, IndexError) as error:
        raise MalformedAnswer(f"a process has a stat file of unknown format: {text[:200]!r}") from error


def is_reaped(text: bytes) -> bool:
    """Return whether a process or thread was reaped while its line was read: it has no group and no session."""
    return text[text.rfind(b")") + 2 :].split()[2:4] == [b"-1", b"-1"]


def has_terminal(sample: ProcessSample) -> bool:
    """Return whether a process belongs to a terminal, from which its user may have stopped it."""
    fields = sample.text[sample.text.rfind(b")") + 2 :].split()
    return len(fields) > 4 and fields[4] != b"0"


def child_ticks(sample: ProcessSample) -> tuple[int, int]:
    """Return the CPU time of children that were waited for, in user mode and in the kernel."""
    rest = sample.text[sample.text.rindex(b")") + 2 :].split()
    return int(rest[13]), int(rest[14])


def parse_thread_stat(text: bytes) -> ThreadSample:
    """Parse the line of a thread, which has the format of that of a process."""
    sample = parse_stat(text, 0)
    return ThreadSample(sample.pid, sample.start_ticks, sample.state, sample.processor)


def clean_command(name: bytes) -> str:
    """Return a command name as one printable line: a process may set any name without a zero byte."""
    text = name.decode("utf-8", "replace")
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text[:COMMAND_LIMIT]


def parse_io(text: bytes) -> IoCounts | None:
    """Parse the counters; None when the file is empty or has another format."""
    words = text.split()
    if words[:12:2] != _IO_KEYS:
        return None
    try:
        counts = IoCounts(*map(int, words[1:12:2]))
    except (TypeError, ValueError):
        return None
    return counts if min(counts) >= 0 and max(counts) <= MOST_COUNT else None


def parse_switches(status: bytes) -> tuple[int, int] | None:
    """Parse the voluntary and involuntary context switches of a thread from its ``status``."""
    # The lines are the last two, or nearly: search from the end, the middle is long.
    voluntary = status.rfind(b"\nvoluntary_ctxt_switches:")
    involuntary = status.rfind(b"\nnonvoluntary_ctxt_switches:")
    if voluntary < 0 or involuntary < 0:
        return None
    try:
        counts = int(status[voluntary:].split(None, 2)[1]), int(status[involuntary:].split(None, 2)[1])
    except (ValueError, IndexError):
        return None
    return counts if min(counts) >= 0 and max(counts) <= MOST_COUNT else None


def parse_queue_ns(text: bytes) -> tuple[int, int] | None:
    """Parse for how long a thread ran and waited for a core; zeros where the kernel counts neither."""
    words = text.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) <= MOST_DIGITS for word in words):
        return None
    counts = int(words[0]), int(words[1])
    return counts if max(counts) <= MOST_COUNT else None


def parse_real_user(status: bytes) -> int | None:
    """Parse the real user ID from ``status``; the name of the process, which is above it, is escaped by the kernel."""
    words = status.partition(b"\nUid:")[2].split(None, 1)[:1]
    return int(words[0]) if words and words[0].isdigit() and len(words[0]) <= MOST_DIGITS else None


def parse_peak_resident_bytes(status: bytes) -> int | None:
    """Parse the highest resident memory from ``status``; None for a zombie, which has no memory."""
    words = status.partition(b"\nVmHWM:")[2].split(None, 2)[:2]
    is_known = len(words) == 2 and words[1] == b"kB" and words[0].isdigit() and len(words[0]) <= MOST_DIGITS
    return int(words[0]) * 1024 if is_known else None


def parse_child_ids(children: bytes) -> list[int]:
    """Parse the PIDs in ``task/TID/children``."""
    return [int(word) for word in children.split() if word.isdigit() and len(word) <= MOST_DIGITS]


def parse_file_limit(limits: bytes) -> int | None:
    """Parse the limit of open files; None for no limit."""
    soft = limits.partition(b"Max open files")[2].split(None, 1)[:1]
    return int(soft[0]) if soft and soft[0].isdigit() and len(soft[0]) <= MOST_DIGITS else None


def parse_environment(text: bytes, names: Collection[str]) -> dict[str, str]:
    """Parse the named variables; where one is set twice the first counts, as for the program itself."""
    found: dict[str, str] = {}
    for entry in text.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        key = name.decode("utf-8", "replace")
        if equals and key in names and key not in found:
            found[key] = value.decode("utf-8", "replace")
    return found


def parse_uptime_seconds(text: bytes) -> float:
    """Parse the time since the machine started from ``/proc/uptime``."""
    try:
        seconds = float(text.split(None, 1)[0])
        if not 0 <= seconds <= MOST_COUNT:
            raise ValueError("not a time")
        return seconds
    except (ValueError, IndexError) as error:
        raise MalformedAnswer(f"the uptime file has an unknown format: {text[:200]!r}") from error


def parse_memory_bytes(meminfo: bytes) -> int:
    """Parse the memory size from ``/proc/meminfo``."""
    for line in meminfo.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == b"MemTotal:" and words[1].isdigit() and len(words[1]) <= MOST_DIGITS:
            return int(words[1]) * 1024
    raise MalformedAnswer("the meminfo file has no MemTotal line")
