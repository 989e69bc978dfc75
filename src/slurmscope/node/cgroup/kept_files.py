# SPDX-License-Identifier: Apache-2.0
"""Read the files of a cgroup together, with minimal work between two system calls.

Reading an open descriptor costs one system call instead of three, and a fifth of the time. A descriptor of a removed
cgroup returns ENODEV, so old values are never taken for new ones.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

PAGE = 4096
MOST_BYTES = 4 << 20
# Not a failure: the kernel, the layout or the boot options have no such file, or it vanished with its cgroup.
MISSING_ERRORS = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EINVAL, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ESTALE}
)
# The machine lacks a resource at the moment; the file may be readable next time.
TEMPORARY_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


class DescriptorBudget:
    """Limit how many descriptors stay open; files beyond the limit are opened, read and closed each time.

    Steps and tasks may take only the first half, so that there is room for every job.
    """

    def __init__(self, limit: int) -> None:
        """Set the maximum number of descriptors; 0 keeps none open."""
        self.limit = limit
        self.taken = 0
        self.closings = 0

    def take(self, *, is_optional: bool) -> bool:
        """Reserve one; return whether there was room. A reserved one must be given back."""
        if self.taken >= (self.limit // 2 if is_optional else self.limit):
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        """Release one; ``closings`` counts them, so that a Batch knows that its descriptors are outdated."""
        self.taken -= 1
        self.closings += 1


NOTHING_KEPT = DescriptorBudget(0)


class Folder:
    """One cgroup folder: whether it still exists, and which of its files cannot be read.

    ``was_opened`` is whether a file was opened since the last call of ``was_replaced``.
    """

    __slots__ = (
        "_budget",
        "_files",
        "_inode",
        "_is_optional",
        "_skipped",
        "is_gone",
        "path",
        "unreadable",
        "was_opened",
    )

    def __init__(self, path: str, budget: DescriptorBudget, *, is_optional: bool = False) -> None:
        """Check the folder; ``is_gone`` is set when there is none."""
        self.path = path
        self.is_gone = False
        self.unreadable: dict[str, str] = {}
        self._budget = budget
        self._is_optional = is_optional
        self._files: list[KeptFile] = []
        self._skipped: list[KeptFile] = []
        self._inode = 0
        self.was_opened = False
        self.count_links()

    def open_file(self, name: str, size: int = PAGE) -> KeptFile:
        """Return a file that is read at each scrape; ``size`` is its usual size."""
        return self._add(KeptFile(self, name, size, budget=self._budget, is_optional=self._is_optional))

    def seldom_file(self, name: str) -> KeptFile:
        """Return a file that is read seldom: it stays open only where the budget has room for optional files."""
        return self._add(KeptFile(self, name, PAGE, budget=self._budget, is_optional=True))

    def fresh_file(self, name: str) -> KeptFile:
        """Return a file that is opened for each read, because an open descriptor would return old content."""
        return self._add(KeptFile(self, name, PAGE, budget=NOTHING_KEPT, is_optional=True))

    def count_links(self) -> int:
        """Return the link count, which is 2 plus the number of folders below; 0 when the folder is gone.

        Another folder of the same name is not this one: the job was requeued and runs again.
        """
        try:
            found = self._stat()
        except OSError as error:
            self.is_gone = self.is_gone or error.errno in MISSING_ERRORS
            return 0
        self._inode = self._inode or found.st_ino
        self.is_gone = self.is_gone or found.st_ino != self._inode
        return 0 if self.is_gone else found.st_nlink

    def was_replaced(self) -> bool:
        """Return, after a read, whether another folder of the same name was read.

        This cannot happen on an open descriptor, only on a file that was opened again. Values of a folder that has
        just vanished are valid.
        """
        was_opened, self.was_opened = self.was_opened, False
        if was_opened:
            with contextlib.suppress(OSError):
                self.is_gone = self.is_gone or self._stat().st_ino != self._inode
        return was_opened and self.is_gone

    def retry(self) -> bool:
        """Read missing or unreadable files again from now on; return whether there are any."""
        has_any = bool(self._skipped)
        for file in self._skipped:
            file.is_skipped = False
        self._skipped.clear()
        return has_any

    def skip(self, file: KeptFile) -> None:
        """Skip a file until the next ``retry``."""
        file.is_skipped = True
        self._skipped.append(file)

    def release(self) -> None:
        """Close all descriptors; the files stay readable."""
        for file in self._files:
            file.release()

    def close(self) -> None:
        """Close all descriptors permanently."""
        self.is_gone = True
        self.release()

    def _stat(self) -> os.stat_result:
        # Path.stat costs a third more, and this is called for every folder of every job.
        return os.stat(self.path)  # noqa: PTH116

    def _add(self, file: KeptFile) -> KeptFile:
        self._files.append(file)
        return file


class KeptFile:
    """Read one file; an empty result means that nothing was read, for whatever reason."""

    __slots__ = ("_budget", "_folder", "_is_optional", "_path", "_size", "descriptor", "is_skipped", "name")

    def __init__(self, folder: Folder, name: str, size: int, *, budget: DescriptorBudget, is_optional: bool) -> None:
        """Set the path; the file is opened at the first read."""
        self.name = name
        self.is_skipped = False
        self._folder = folder
        self._path = f"{folder.path}/{name}"
        self._size = size
        self._budget = budget
        self._is_optional = is_optional
        self.descriptor = -1

    def read(self) -> bytes:
        """Read a file that the kernel returns in one piece."""
        if self.descriptor < 0:
            return self._open_and_read(_read_record)
        try:
            data = os.pread(self.descriptor, self._size, 0)
            return data if len(data) < self._size else _read_record(self.descriptor, self._size)
        except OSError as error:
            return self._fail(error)

    def read_list(self) -> bytes:
        """Read a file that the kernel may return in several pieces, such as ``cgroup.procs``."""
        if self.descriptor < 0:
            return self._open_and_read(_read_pieces)
        try:
            return _read_pieces(self.descriptor, self._size)
        except OSError as error:
            return self._fail(error)

    def release(self) -> None:
        """Close the descriptor; the next read opens it again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self._budget.give_back()

    def _open_and_read(self, read: Callable[[int, int], bytes]) -> bytes:
        if self.is_skipped or self._folder.is_gone:
            return b""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            return self._fail(error)
        try:
            data = read(descriptor, self._size)
        except OSError as error:
            os.close(descriptor)
            return self._fail(error)
        self._folder.was_opened = True
        self._folder.unreadable.pop(self.name, None)
        if self._budget.take(is_optional=self._is_optional):
            self.descriptor = descriptor
        else:
            os.close(descriptor)
        return data

    def _fail(self, error: OSError) -> bytes:
        self.release()
        if error.errno in MISSING_ERRORS:
            self._folder.unreadable.pop(self.name, None)
            self._folder.skip(self)
            self._folder.count_links()
            return b""
        if error.errno not in TEMPORARY_ERRORS:
            self._folder.skip(self)
        self._folder.unreadable[self.name] = error.strerror or str(error)
        return b""


def _read_record(descriptor: int, size: int) -> bytes:
    while len(data := os.pread(descriptor, size, 0)) >= size:
        size = _grow(size)
    return data


def _read_pieces(descriptor: int, size: int) -> bytes:
    data = os.pread(descriptor, size, 0)
    if not data:
        return data
    pieces = [data]
    total = len(data)
    while data := os.pread(descriptor, size, total):
        pieces.append(data)
        total += len(data)
        _check(total)
    return b"".join(pieces)


def _grow(size: int) -> int:
    _check(size)
    return size * 4


def _check(size: int) -> None:
    if size >= MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


# Enough for all but the longest; those are read one by one.
SIZE = 16384
BatchValue = TypeVar("BatchValue")


class Batch:
    """Files that are always read together.

    While all of them are open, only their descriptors are used: on a node with many jobs, going from object to object
    costs as much as the kernel does. After anything unusual, such as a closed descriptor, the next read goes through
    the files one by one.
    """

    __slots__ = ("_budget", "_closings", "_files", "_nothing", "_open")

    def __init__(self, budget: DescriptorBudget, files: Sequence[KeptFile | None] = ()) -> None:
        """Set the budget that the files share; None stands for a file whose folder does not exist."""
        self._budget = budget
        self._files = files
        self._nothing = [b""] * len(files)
        self._open: list[tuple[int, int]] | None = None
        self._closings = -1

    def reset(self) -> None:
        """Read the files one by one next time, because missing ones may exist now."""
        self._open = None

    def read(self) -> list[bytes]:
        """Return the contents in the order of the files; empty for files that could not be read."""
        if self._open is not None and self._closings != self._budget.closings:
            self._cache_descriptors()
        if self._open is None:
            return self._read_each()
        texts = self._nothing.copy()
        pread = os.pread
        try:
            for index, descriptor in self._open:
                texts[index] = text = pread(descriptor, SIZE, 0)
                if len(text) == SIZE:
                    return self._read_each()
        except OSError:
            return self._read_each()
        return texts

    def _read_each(self) -> list[bytes]:
        texts = [b"" if file is None else file.read() for file in self._files]
        self._cache_descriptors()
        return texts

    def _cache_descriptors(self) -> None:
        """Cache the descriptors, unless a file has to be opened for each read."""
        files = [(index, file) for index, file in enumerate(self._files) if file is not None and not file.is_skipped]
        has_all = all(file.descriptor >= 0 for _, file in files)
        self._open = [(index, file.descriptor) for index, file in files] if has_all else None
        self._closings = self._budget.closings


class Memo(Generic[BatchValue]):
    """Parse a text only when it has changed: most files of an idle job stay the same."""

    __slots__ = ("_parse", "_text", "_value")

    def __init__(self, parse: Callable[[bytes], BatchValue]) -> None:
        """Set a pure function; its value is returned several times and must not be modified."""
        self._parse = parse
        self._text = b""
        self._value = parse(b"")

    def __call__(self, text: bytes) -> BatchValue:
        if text != self._text:
            self._text = text
            self._value = self._parse(text)
        return self._value
