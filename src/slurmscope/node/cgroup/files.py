# SPDX-License-Identifier: Apache-2.0
"""Parse single cgroup files: bytes in, numbers out.

An empty file, or one in an unknown format, gives None or nothing: never a zero that was not measured. Keys are looked
up by name, since kernels add and drop lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from slurmscope.node.job_use import BlockUse

# v1 writes "no limit" as the highest number of pages that it can count, which depends on the page size and the kernel.
UNLIMITED_FROM = 1 << 62
# The kernel counts in 64 bits; a larger number is garbage, and may be too large for a float.
MOST_COUNT = (1 << 64) - 1
MOST_CORES = 1 << 16
MOST_DEVICES = 4096
NANOSECONDS = 1_000_000_000
MICROSECONDS = 1_000_000
UNKNOWN_FORMAT = "unknown format"

_DEVICE = re.compile(rb"[0-9]{1,10}:[0-9]{1,10}")
_NUMA_NODE = re.compile(rb" N([0-9]{1,4})=([0-9]{1,19})(?= |$)")
_PRESSURE_KINDS = {b"some ": "some", b"full ": "full"}
_IO_KEYS = {b"rbytes": "read_bytes", b"wbytes": "write_bytes", b"rios": "reads", b"wios": "writes"}


def parse_number(data: bytes) -> int | None:
    """Parse a file with one number."""
    if not data:  # usually a missing file; an exception costs five times as much
        return None
    try:
        number = int(data)
    except ValueError:
        return None
    return number if 0 <= number <= MOST_COUNT else None


def parse_limit(data: bytes) -> int | None:
    """Parse a limit; None where there is none, written as ``max`` (v2) or as a huge number (v1)."""
    number = parse_number(data)
    return number if number is not None and 0 <= number < UNLIMITED_FROM else None


def count_of(data: bytes, key: bytes) -> int | None:
    """Parse the line of one key in a file of "key number" lines."""
    return counts_of(data, line_keys(key.decode("ascii")))[0]


def line_keys(*names: str) -> tuple[bytes, ...]:
    """Return keys for ``counts_of``; the lookup is fastest in the order in which the kernel writes them."""
    return tuple(f"\n{name} ".encode("ascii") for name in names)


def counts_of(data: bytes, keys: Sequence[bytes]) -> list[int | None]:
    """Parse the lines of some keys, made by ``line_keys``, in a file of "key number" lines.

    Searching a few keys costs a fifth of splitting a file of fifty lines.
    """
    if not data:
        return [None] * len(keys)
    data = b"\n" + data + b"\n"
    counts: list[int | None] = []
    end = 0
    for key in keys:
        start = data.find(key, end)
        if start < 0:
            start = data.find(key)
        if start < 0:
            counts.append(None)
            continue
        start += len(key)
        end = data.find(b"\n", start)
        counts.append(parse_number(data[start:end]))
    return counts


class CheckedParser:
    """Parse the files of one cgroup, and note those whose content is not what the kernel writes."""

    __slots__ = ("malformed",)

    def __init__(self) -> None:
        """Start without a fault."""
        self.malformed: dict[str, str] = {}

    def number(self, name: str, data: bytes) -> int | None:
        """Parse a file with one number."""
        number = parse_number(data)
        if number is None and data:
            self.malformed[name] = UNKNOWN_FORMAT
        return number

    def counts(self, name: str, data: bytes, keys: Sequence[bytes]) -> list[int | None]:
        """Parse the lines of some keys; a key that is absent is no fault, since kernels lack some."""
        counts = counts_of(data, keys)
        if None in counts and data:
            lines = b"\n" + data
            is_malformed = not any(map(lines.__contains__, keys)) or any(
                count is None and key in lines for key, count in zip(keys, counts, strict=True)
            )
            if is_malformed:
                self.malformed[name] = UNKNOWN_FORMAT
        return counts


def in_units(count: int | None, divisor: int) -> float | None:
    """Convert a count of small units, such as microseconds, into the base unit."""
    return None if count is None else count / divisor


def parse_counts(data: bytes) -> dict[str, int]:
    """Parse all lines of "key number" and skip others."""
    counts = {}
    for line in data.splitlines():
        key, _, value = line.partition(b" ")
        number = parse_number(value)
        if number is not None:
            counts[key.decode("ascii", "replace")] = number
    return counts


def parse_cores(data: bytes) -> tuple[int, ...] | None:
    """Parse a list of cores such as ``0-3,8``; None when it is empty or invalid."""
    cores: list[int] = []
    for part in data.strip().split(b","):
        first, dash, last = part.partition(b"-")
        low = parse_number(first)
        high = parse_number(last) if dash else low
        if low is None or high is None or not 0 <= low <= high or high - low + len(cores) >= MOST_CORES:
            return None
        cores.extend(range(low, high + 1))
    return tuple(cores)


def parse_core_seconds(data: bytes, cores: Iterable[int] | None) -> dict[int, float]:
    """Parse ``cpuacct.usage_percpu`` for the given cores, or for all that were used."""
    spent = data.split()
    wanted = range(len(spent)) if cores is None else cores
    seconds = {}
    for core in wanted:
        nanoseconds = parse_number(spent[core]) if core < len(spent) else None
        if nanoseconds is not None and (nanoseconds or cores is not None):
            seconds[core] = nanoseconds / NANOSECONDS
    return seconds


def parse_pressure(data: bytes) -> dict[str, float]:
    """Parse the stall seconds by kind: ``some`` or ``full`` (older kernels have no ``full`` for the CPU)."""
    seconds = {}
    for line in data.splitlines():
        kind = _PRESSURE_KINDS.get(line[:5])
        microseconds = parse_number(line.partition(b" total=")[2])
        if kind and microseconds is not None:
            seconds[kind] = microseconds / MICROSECONDS
    return seconds


def parse_io(data: bytes) -> dict[str, BlockUse]:
    """Parse v2 ``io.stat`` by device.

    Some kernels print devices without values, also several in one line: such a device did no I/O yet, or its
    values are not known, and is left out.
    """
    found: dict[str, dict[str, int]] = {}
    device = ""
    for word in data.split():
        if _DEVICE.fullmatch(word):
            device = word.decode("ascii")
            continue
        key, _, value = word.partition(b"=")
        name, number = _IO_KEYS.get(key), parse_number(value)
        if name and number is not None and device and len(found) < MOST_DEVICES:
            found.setdefault(device, {})[name] = number
    return _block_use(found)


def parse_blkio(service_bytes: bytes, serviced: bytes) -> dict[str, BlockUse]:
    """Parse v1 ``blkio.throttle.io_service_bytes`` and ``io_serviced`` by device."""
    found: dict[str, dict[str, int]] = {}
    for data, names in (
        (service_bytes, {b"Read": "read_bytes", b"Write": "write_bytes"}),
        (serviced, {b"Read": "reads", b"Write": "writes"}),
    ):
        for line in data.splitlines():
            words = line.split()
            if len(words) != 3 or words[1] not in names or not _DEVICE.fullmatch(words[0]):
                continue
            number = parse_number(words[2])
            if number is not None and len(found) < MOST_DEVICES:
                found.setdefault(words[0].decode("ascii"), {})[names[words[1]]] = number
    return _block_use(found)


def _block_use(found: Mapping[str, Mapping[str, int]]) -> dict[str, BlockUse]:
    # A partly known device would show zeros that were not measured.
    return {device: BlockUse(**numbers) for device, numbers in found.items() if len(numbers) == len(_IO_KEYS)}


def name_refaults(counts: Sequence[int | None]) -> dict[str, int]:
    """Name the pages that were read again, of anonymous memory and of files; kernels before 5.9 lack them."""
    return {kind: count for kind, count in zip(("anon", "file"), counts, strict=True) if count is not None}


def parse_numa(data: bytes, starts: tuple[bytes, ...]) -> dict[int, int]:
    """Parse ``memory.numa_stat``: the sum of the lines that begin so, for each NUMA node."""
    found: dict[int, int] = {}
    for line in data.splitlines():
        if line.startswith(starts):
            for name, value in _NUMA_NODE.findall(line):
                found[int(name)] = found.get(int(name), 0) + int(value)
    return found


def parse_pids(data: bytes) -> list[int]:
    """Parse ``cgroup.procs``; skip 0, which stands for a process of another PID namespace."""
    return [pid for word in data.split() if (pid := parse_number(word)) is not None and pid > 0]
