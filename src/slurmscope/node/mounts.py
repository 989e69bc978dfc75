# SPDX-License-Identifier: Apache-2.0
"""Read the NFS mounts of the host, and those that only the processes of a job see.

The bytes are those exchanged with the server, including direct and memory-mapped I/O; reads from the page cache are not
among them. Spaces and line breaks in names are octal escapes (``\040``), and stay so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from slurmscope.core.errors import SourceError
from slurmscope.node.job_use import JobKey


class MountedFilesystem(NamedTuple):
    """Identify a file system by what is mounted (``server:/export``) and by its type."""

    name: str
    fstype: str


class ClientUse(NamedTuple):
    """What a client transferred and requested; None was not counted."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    metadata_operations: int | None = None


NOT_COUNTED = ClientUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The counters of one mount since it was mounted."""

    filesystem: MountedFilesystem
    age_seconds: int | None = None
    use: ClientUse = NOT_COUNTED


class MountReading(NamedTuple):
    """The mounts of a node at one moment of a clock that never goes back."""

    at_seconds: float
    mounts: tuple[Mount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilesystems:
    """The mounts of a node, and what each job used while no other job ran there.

    ``left_out`` is the number of mounts above the limit.
    """

    mounts: tuple[Mount, ...] = ()
    jobs: Mapping[JobKey, Mapping[MountedFilesystem, ClientUse]] = field(default_factory=dict)
    left_out: int = 0


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


MAX_BYTES = 4 * 1024 * 1024
"""Bytes read of one list of mounts; a mount of NFS 4 takes 6 kB."""

MAX_PROCESSES = 8
"""Processes of a job whose mount namespace is compared with that of the host."""

_CHUNK_BYTES = 256 * 1024
_FILE = "mountstats"


def read_mounts(procfs_root: Path, pids: Iterable[int] = ()) -> list[Mount]:
    """Return the NFS mounts of the host and of the first of these processes with another mount namespace.

    Without the right to read those of process 1, those that we see ourselves.
    """
    mounts = list(parse_mountstats(_read_host(procfs_root)))
    for text in islice(_other_namespaces(procfs_root, pids), 1):
        mounts += parse_mountstats(text)
    return mounts


def _read_host(root: Path) -> bytes:
    try:
        return _read(root / "1" / _FILE)
    except OSError:
        pass
    try:
        return _read(root / "self" / _FILE)
    except FileNotFoundError:  # a kernel without procfs entries for mounts, or not procfs at all
        return b""
    except OSError as error:
        raise SourceError(f"cannot read {root / 'self' / _FILE}: {error.strerror}") from error


def _other_namespaces(root: Path, pids: Iterable[int]) -> Iterator[bytes]:
    """Yield the lists of processes in other mount namespaces; those that ended or are not ours to read are skipped."""
    for pid in sorted(pids)[:MAX_PROCESSES]:
        try:
            if _namespace(root, str(pid)) != _namespace(root, "1"):
                yield _read(root / str(pid) / _FILE)
        except OSError:
            continue


def _namespace(root: Path, pid: str) -> str:
    return os.readlink(root / pid / "ns" / "mnt")  # noqa: PTH115 - not a path


def _read(path: Path) -> bytes:
    """Read a list up to the limit, without a mount that is cut off there."""
    text = bytearray()
    with path.open("rb", buffering=0) as file:
        while len(text) < MAX_BYTES and (chunk := file.read(_CHUNK_BYTES)):
            text += chunk
    if len(text) < MAX_BYTES:
        return bytes(text)
    return bytes(text[: max(0, text.rfind(b"\ndevice "))])
