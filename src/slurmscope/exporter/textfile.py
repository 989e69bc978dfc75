# SPDX-License-Identifier: Apache-2.0
"""Write metrics to a file for the textfile collector of node_exporter.

The file is replaced atomically: readers, also after a power failure, find the old page or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmscope.core.errors import OutputError
from slurmscope.core.log import escape

_PART_SUFFIX = ".part"  # node_exporter reads only names that end in .prom
_MODE = 0o644


def write_textfile(path: Path, blocks: Iterable[bytes]) -> None:
    """Replace the file with the blocks, or raise and leave it unchanged.

    The page is written to a temporary file, synced to disk and renamed. Exceptions of the blocks pass through after
    the temporary file has been removed.
    """
    part = f".{path.name}.{os.urandom(8).hex()}{_PART_SUFFIX}"
    with _open_folder(path) as folder:
        try:
            _write_part(part, folder, blocks, path)
            with _naming_file("cannot be replaced", path):
                os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        _sync_folder(folder, path)


def remove_stale_parts(path: Path) -> int:
    """Remove temporary files that an earlier, killed process left; return their number.

    Call it once, before the first write: it would also remove the temporary file of a running writer.
    """
    own_part = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}" + re.escape(_PART_SUFFIX) + r"\Z")
    removed = 0
    with _open_folder(path) as folder, _naming_file("has leftover temporary files that cannot be removed", path):
        with os.scandir(folder) as entries:
            own_parts = [entry.name for entry in entries if own_part.match(entry.name)]
        for name in own_parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
                removed += 1
    return removed


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Open the directory, so that the rename stays in it even if its path changes meanwhile."""
    with _naming_file("cannot be written", path):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _write_part(part: str, folder: int, blocks: Iterable[bytes], path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _naming_file("cannot be written", path):
        descriptor = os.open(part, flags, 0o600, dir_fd=folder)
    try:
        for block in blocks:
            with _naming_file("cannot be written", path):
                _write_all(descriptor, block)
        with _naming_file("cannot be written", path):
            os.fchmod(descriptor, _MODE)  # independent of the umask, node_exporter must be able to read it
            os.fsync(descriptor)
    finally:
        with _naming_file("cannot be written", path):  # network file systems may report only now that the disk is full
            os.close(descriptor)


def _write_all(descriptor: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: int, path: Path) -> None:
    with _naming_file("is written, but may not survive a power failure", path):
        try:
            os.fsync(folder)
        except OSError as error:
            # Some network and user-space file systems cannot sync a directory.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise


@contextlib.contextmanager
def _naming_file(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError into an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.ENOENT: f"; does the directory {path.parent} exist?",
            errno.ENOSPC: "; free some space, the next write tries again",
            errno.EDQUOT: "; free some space, the next write tries again",
        }.get(error.errno or 0, "")
        raise OutputError(escape(f"{path} {what}: {error.strerror or error}{hint}")) from error
