# SPDX-License-Identifier: Apache-2.0
"""Parse ``/proc/PID/mountstats``, in which the kernel counts the use of NFS mounts.

The bytes are those exchanged with the server, including direct and memory-mapped I/O; reads from the page cache are not
among them. Spaces and line breaks in names are octal escapes (``\\040``), and stay so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from slurmscope.model.mounts import ClientUse, Mount, MountedFilesystem

_HEAD = re.compile(rb"(?:\A|\n)device ", re.ASCII)
_FIRST_LINE = re.compile(rb"([^ \n]+) mounted on [^ \n]+ with fstype (nfs4?)(?: statvers=[0-9.]+)? *", re.ASCII)
_AGE = re.compile(rb"\n\tage:\t([0-9]{1,12})(?=\n)", re.ASCII)
_BYTES = re.compile(rb"\n\tbytes:\t([0-9 ]+)(?=\n)", re.ASCII)
_OPERATIONS = re.compile(rb"\n\tper-op statistics\n", re.ASCII)
_OPERATION = re.compile(rb"\s+([A-Z0-9_]+): ([0-9]{1,20})(?: [0-9]+)*\s*", re.ASCII)

# Positions in the line of bytes: those before them count system calls.
_SERVER_READ, _SERVER_WRITE = 4, 5
_MAX_COUNTER = 2**64 - 1
_MAX_OPERATIONS = 200

NOT_METADATA = frozenset((b"NULL", b"READ", b"READ_PLUS", b"WRITE", b"COMMIT", b"RENEW", b"SEQUENCE"))
"""Requests that transfer data, or that the client sends without any process."""


def parse_mountstats(text: bytes) -> Iterator[Mount]:
    """Yield the NFS mounts, in the order of the text; one that cannot be parsed costs its own numbers."""
    for block in _HEAD.split(text)[1:]:
        head, _, rest = block.partition(b"\n")
        if match := _FIRST_LINE.fullmatch(head):
            name, fstype = (part.decode("utf-8", "replace") for part in match.groups())
            yield _parse_mount(MountedFilesystem(name, fstype), b"\n" + rest + b"\n")


def _parse_mount(filesystem: MountedFilesystem, text: bytes) -> Mount:
    age = _AGE.search(text)
    counted = _BYTES.search(text)
    numbers = counted[1].split() if counted else ()
    use = ClientUse(
        read_bytes=_number_at(numbers, _SERVER_READ),
        write_bytes=_number_at(numbers, _SERVER_WRITE),
        metadata_operations=_metadata_operations(text),
    )
    return Mount(filesystem=filesystem, age_seconds=int(age[1]) if age else None, use=use)


def _number_at(numbers: Sequence[bytes], position: int) -> int | None:
    return _counter(numbers[position]) if position < len(numbers) else None


def _counter(digits: bytes) -> int | None:
    if len(digits) > len(str(_MAX_COUNTER)):
        return None
    value = int(digits)
    return value if value <= _MAX_COUNTER else None


def _metadata_operations(text: bytes) -> int | None:
    """Add up requests; without one of them the sum would fall and rise again, so it is None then."""
    operations = _OPERATIONS.search(text)
    if not operations:
        return None
    total = 0
    # Lines without a tab are mounts without a device.
    for line in takewhile(lambda line: line.startswith(b"\t"), text[operations.end() :].split(b"\n", _MAX_OPERATIONS)):
        match = _OPERATION.fullmatch(line)
        count = _counter(match[2]) if match else None
        if match is None or count is None:
            return None
        total += 0 if match[1] in NOT_METADATA else count
    return total
