# SPDX-License-Identifier: Apache-2.0
"""Read the NFS mounts of the host, and those that only the processes of a job see."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from slurmscope.errors import SourceError
from slurmscope.model.mounts import Mount
from slurmscope.sources.procfs.mountstats import parse_mountstats

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
