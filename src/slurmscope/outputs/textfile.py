# SPDX-License-Identifier: Apache-2.0
"""Write a page of metrics to a file that node_exporter's textfile collector reads.

A reader, and a machine that loses power, finds the old page or the new one, never a part of either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmscope.errors import OutputError
from slurmscope.log import escape

_PART_SUFFIX = ".part"  # node_exporter reads only names that end in .prom
_MODE = 0o644


def write_textfile(path: Path, blocks: Iterable[bytes]) -> None:
    """Replace the file by the blocks, or raise and leave it as it was.

    The page is written aside, brought to the disk and renamed. What the blocks themselves raise passes
    through after the unfinished page has been removed.
    """
    part = f".{path.name}.{os.urandom(8).hex()}{_PART_SUFFIX}"
    with _open_folder(path) as folder:
        try:
            _write_part(part, folder, blocks, path)
            with _told("cannot be replaced", path):
                os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        _sync_folder(folder, path)


def remove_stale_parts(path: Path) -> int:
    """Remove the unfinished pages that an earlier, killed life left beside the file; return how many.

    To be called once, before the first write: a part of a writer that still runs would be removed as well.
    """
    own_part = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}" + re.escape(_PART_SUFFIX) + r"\Z")
    removed = 0
    with _open_folder(path) as folder, _told("has unfinished parts beside it that cannot be removed", path):
        with os.scandir(folder) as entries:
            own_parts = [entry.name for entry in entries if own_part.match(entry.name)]
        for name in own_parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
                removed += 1
    return removed


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Hold on to the folder: a folder that is swapped under us cannot lead the rename elsewhere."""
    with _told("cannot be written", path):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _write_part(part: str, folder: int, blocks: Iterable[bytes], path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _told("cannot be written", path):
        descriptor = os.open(part, flags, 0o600, dir_fd=folder)
    try:
        for block in blocks:
            with _told("cannot be written", path):
                _write_all(descriptor, block)
        with _told("cannot be written", path):
            os.fchmod(descriptor, _MODE)  # whatever our umask is, node_exporter must be able to read it
            os.fsync(descriptor)
    finally:
        with _told("cannot be written", path):  # network file systems may tell only now that there is no room
            os.close(descriptor)


def _write_all(descriptor: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: int, path: Path) -> None:
    with _told("is written, but may not survive a power failure", path):
        try:
            os.fsync(folder)
        except OSError as error:
            # Some network and user-space file systems cannot do this for a folder.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise


@contextlib.contextmanager
def _told(what: str, path: Path) -> Iterator[None]:
    """Tell a failure of the system in one sentence about the file."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.ENOENT: f"; is there a folder {path.parent}?",
            errno.ENOSPC: "; make room, the next write tries again",
            errno.EDQUOT: "; make room, the next write tries again",
        }.get(error.errno or 0, "")
        raise OutputError(escape(f"{path} {what}: {error.strerror or error}{hint}")) from error
