# SPDX-License-Identifier: Apache-2.0
"""Copy an SQLite file while others write to it, into a new file that appears only when it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from slurmscope.core.errors import ArchiveError, OutputError
from slurmscope.core.log import escape

STEP_PAGES = 1000
BUSY_SECONDS = 30.0
PARTIAL = ".partial"
"""How names of files end that are not complete yet."""

# Errors of the copy: of the original, nothing is ever written.
_UNWRITABLE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})

ShowPages = Callable[[int, int], None]
"""Is called with the number of copied pages and that of all pages."""


def back_up(source: Path, target: Path, *, may_replace: bool, show_pages: ShowPages) -> int:
    """Copy a database as it is at this moment, readable by this user only; return the size of the copy in bytes.

    A process that is killed leaves no part of the copy under the name of the target. Raises ArchiveError if the
    database cannot be read or is damaged, OutputError if the copy cannot be written.
    """
    if os.path.lexists(target):
        if not may_replace:
            raise OutputError(f"{_shown(target)} exists; choose another file, or replace it with --force")
        if target.exists() and target.samefile(source):
            raise OutputError(f"{_shown(target)} is the database itself; choose another file")
    try:
        _delete_leftovers(target)
        with _open_partial(target) as partial:
            _copy(source, partial, show_pages)
            return _publish(partial, target, may_replace=may_replace)
    except FileExistsError as error:
        raise OutputError(f"{_shown(target)} was created meanwhile; choose another file") from error
    except OSError as error:
        raise OutputError(f"cannot write {_shown(target)}: {error.strerror}") from error


@contextmanager
def _open_partial(target: Path) -> Iterator[Path]:
    """Make a file beside the target, locked while it is written, and delete it in the end."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PARTIAL, dir=target.parent)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Path(name)
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            Path(f"{name}{ending}").unlink(missing_ok=True)
        os.close(descriptor)


def _delete_leftovers(target: Path) -> None:
    """Delete what processes that were killed have left of this backup; a running one holds its lock."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _copy(source: Path, partial: Path, show_pages: ShowPages) -> None:
    try:
        with closing(_connect(source, "ro")) as origin, closing(_connect(partial, "rw")) as copy:
            # A transaction fixes the moment: without it, every write of another process would start the copy again.
            origin.execute("BEGIN")
            origin.execute("SELECT count(*) FROM sqlite_master").fetchone()
            copy.execute("PRAGMA journal_mode=OFF").close()
            copy.execute("PRAGMA synchronous=OFF").close()
            origin.backup(copy, pages=STEP_PAGES, progress=lambda _, left, total: show_pages(total - left, total))
            # The copy is one file, without a WAL: it can be read where nothing can be written.
            copy.execute("PRAGMA journal_mode=DELETE").close()
            (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in _UNWRITABLE:
            raise OutputError(f"cannot write the copy of {_shown(source)}: {error}") from error
        raise ArchiveError(f"cannot read {_shown(source)}: {error}") from error
    if verdict != "ok":
        raise ArchiveError(f"{_shown(source)} is damaged, and was not copied: {escape(str(verdict))}")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a file that exists."""
    address = f"file:{quote(os.fspath(path.absolute()))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _publish(partial: Path, target: Path, *, may_replace: bool) -> int:
    """Bring the copy to the disk, then give it its name, at once."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
        size_bytes = os.fstat(file.fileno()).st_size
    if may_replace:
        partial.replace(target)
    else:
        os.link(partial, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(directory)
    finally:
        os.close(directory)
    return size_bytes


def _shown(path: Path) -> str:
    return escape(str(path))
