# SPDX-License-Identifier: Apache-2.0
"""Read the files of one process, which may vanish at any moment or be unreadable.

A process is accessed through a descriptor of its folder: when its PID is reused, the descriptor still refers to the
old process and reports that it is gone. So all values that are read through one :class:`Process` belong together.
Nothing here follows a user's path: a dead file system would block us.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer
from slurmscope.node.kernel_files import Denials, Missing
from slurmscope.node.procfs.stat import (
    IoCounts,
    ProcessSample,
    ThreadSample,
    is_reaped,
    parse_child_ids,
    parse_environment,
    parse_file_limit,
    parse_io,
    parse_peak_resident_bytes,
    parse_queue_ns,
    parse_real_user,
    parse_switches,
    parse_thread_stat,
)

# A read allocates its limit first: for files that are read of each process, no more than needed.
STAT_LIMIT_BYTES = 2048
IO_LIMIT_BYTES = 512
TEXT_LIMIT_BYTES = 16 * 1024
ENVIRONMENT_LIMIT_BYTES = 1024 * 1024
# slurmstepd has about five.
THREAD_LIMIT = 256

# The kernel returns at most a page at a time of a list that it writes entry by entry.
_PAGE_BYTES = 4096
_MOST_PAGES = 64
_MOST_SOCKET_PAGES = 2048

_READ = os.O_RDONLY | os.O_CLOEXEC
_LIST = _READ | os.O_DIRECTORY


class OpenFiles(NamedTuple):
    """The number of open files of a process, None if it was not counted, and whether their targets could be read."""

    number: int | None
    has_targets: bool


class IoReading(NamedTuple):
    """The I/O of a process, and the text that it was parsed from."""

    text: bytes
    counts: IoCounts


class Process:
    """Read the files of one process; each result may be ``Missing``.

    One that is kept over scans has the files open that are read at each of them: a read takes a third of the time.
    """

    __slots__ = ("_denials", "_folder", "_io", "_on_close", "_stat", "pid")

    def __init__(self, pid: int, folder: int, denials: Denials) -> None:
        """Own the descriptor of the process's folder; :meth:`close` closes it."""
        self.pid = pid
        self._folder = folder
        self._denials = denials
        self._stat = self._io = -1
        self._on_close: Callable[[], object] | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in (self._folder, self._stat, self._io):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._stat = self._io = -1
        if self._on_close is not None:
            self._on_close()
            self._on_close = None

    @property
    def is_kept(self) -> bool:
        return self._on_close is not None

    def keep(self, on_close: Callable[[], object]) -> bool:
        """Open the files that are read at each scan; return whether that is possible."""
        try:
            self._stat = os.open("stat", _READ, dir_fd=self._folder)
            with contextlib.suppress(PermissionError):
                self._io = os.open("io", _READ, dir_fd=self._folder)
        except OSError:
            return False
        self._on_close = on_close
        return True

    def number_of_files(self) -> int:
        """Return the number of open files where the kernel counts them, from Linux 6.2 on; otherwise 0."""
        try:
            return os.stat("fd", dir_fd=self._folder).st_size
        except OSError:
            return 0

    def sample(self, before: ProcessSample | None = None) -> ProcessSample | Missing:
        """Read ``stat``, and the user from the owner of the folder: ``status`` would cost twice as much.

        From Linux 6.2 on, the resident memory there lacks what each CPU has not added to the total yet, less than 2 %
        of 25 MB on a small machine. ``ps`` reads ``status``, whose number is exact from 6.17 on; reading it, or
        ``statm``, for each process would cost half as much again as ``stat`` does.

        ``before`` is the last sample of the process; it is returned if nothing changed, as for a sleeping process.
        """
        try:
            # The folder belongs to the effective user even where the process may not be inspected.
            uid = os.fstat(self._folder).st_uid
            if self._stat >= 0:
                text = os.pread(self._stat, STAT_LIMIT_BYTES, 0)
            else:
                text = read_file("stat", self._folder, STAT_LIMIT_BYTES)
        except OSError as error:
            return self._denials.classify(error, "stat")
        if before is not None and before.text == text and before.uid == uid:
            return before
        return self._denials.parse_sample(text, uid, self.pid)

    def io(self, before: IoReading | None = None) -> IoReading | Missing:
        """Read ``io``; it can be read of a zombie too, and is then final.

        ``before`` is the last reading; it is returned if nothing changed.
        """
        try:
            if self._io >= 0:
                text = os.pread(self._io, IO_LIMIT_BYTES, 0)
            else:
                text = read_file("io", self._folder, IO_LIMIT_BYTES)
        except OSError as error:
            return self._denials.classify(error, "io")
        if before is not None and before.text == text:
            return before
        counts = parse_io(text)
        return self._unknown_format("io", text) if counts is None else IoReading(text, counts)

    def thread_io(self) -> dict[int, IoCounts]:
        """Read the I/O of each thread by thread ID; without those that ended, and empty if nothing can be read."""
        names = self._names("task")
        if isinstance(names, Missing):
            return {}
        texts = {int(name): self._read(f"task/{name}/io", IO_LIMIT_BYTES, source="io") for name in names[:THREAD_LIMIT]}
        parsed = {thread_id: parse_io(text) for thread_id, text in texts.items() if not isinstance(text, Missing)}
        return {thread_id: counts for thread_id, counts in parsed.items() if counts is not None}

    def switches(self, thread_id: int) -> tuple[int, int] | Missing:
        """Read the context switches of one thread, voluntary and involuntary; the kernel does not add up threads."""
        text = self._read(self._of_thread(thread_id, "status"), source="status")
        if isinstance(text, Missing):
            return text
        counts = parse_switches(text)
        return self._unknown_format("status", text) if counts is None else counts

    def queue_ns(self, thread_id: int) -> tuple[int, int] | Missing:
        """Read for how many nanoseconds a thread ran and waited for a core; the kernel does not add up threads."""
        text = self._read(self._of_thread(thread_id, "schedstat"), IO_LIMIT_BYTES, source="schedstat")
        if isinstance(text, Missing):
            return text
        counts = parse_queue_ns(text)
        if counts is None:
            return self._unknown_format("schedstat", text)
        return counts if any(counts) else Missing.GONE

    def _of_thread(self, thread_id: int, name: str) -> str:
        """Return the path of a file of a thread; the first one's is also in the process's folder, which is nearer."""
        return name if thread_id == self.pid else f"task/{thread_id}/{name}"

    def file_limit(self) -> int | Missing | None:
        """Read how many files the process may have open; None for no limit."""
        text = self._read("limits")
        return text if isinstance(text, Missing) else parse_file_limit(text)

    def command_line(self) -> tuple[str, ...] | Missing:
        """Read the arguments; a zombie and the kernel's own threads have none."""
        text = self._read("cmdline")
        if isinstance(text, Missing):
            return text
        words = text.removesuffix(b"\0").split(b"\0") if text else []
        return tuple(word.decode("utf-8", "replace") for word in words)

    def real_user(self) -> int | Missing | None:
        """Read the real user ID: that of who started the program, also if it is setuid."""
        text = self._read("status")
        return text if isinstance(text, Missing) else parse_real_user(text)

    def peak_resident_bytes(self) -> int | Missing | None:
        """Read the highest resident memory since the program started; a zombie has none."""
        text = self._read("status")
        return text if isinstance(text, Missing) else parse_peak_resident_bytes(text)

    def has_child_lists(self) -> bool:
        """Return whether the kernel lists the children of threads."""
        try:
            os.stat(f"task/{self.pid}/children", dir_fd=self._folder)
        except OSError:
            return False
        return True

    def child_ids(self, threads: int) -> list[int] | Missing:
        """Read the PIDs of the children of all threads; ``threads`` is their number in the last sample."""
        thread_ids: list[str] | Missing = [str(self.pid)] if threads <= 1 else self._names("task")
        if isinstance(thread_ids, Missing):
            return thread_ids
        found: list[int] = []
        for thread_id in thread_ids:
            try:
                found += parse_child_ids(read_long_file(f"task/{thread_id}/children", self._folder))
            except OSError as error:
                if self._denials.classify(error, "children") is not Missing.GONE:
                    return Missing.DENIED
        return found

    def unix_sockets(self) -> bytes | Missing:
        """Read the sockets of the process's network namespace, which may be many."""
        try:
            return read_long_file("net/unix", self._folder, _MOST_SOCKET_PAGES)
        except OSError as error:
            return self._denials.classify(error, "net")

    def program(self) -> str | Missing:
        """Read the path of the program, without following it."""
        try:
            return os.readlink("exe", dir_fd=self._folder)
        except OSError as error:
            return self._denials.classify(error, "exe")

    def environment(self, names: Collection[str]) -> dict[str, str] | Missing:
        """Read the named variables, as they were when the program started; none where it is just starting."""
        text = self._read("environ", ENVIRONMENT_LIMIT_BYTES)
        return text if isinstance(text, Missing) else parse_environment(text, names)

    def open_files(self, room: int, take: Callable[[bytes], object], *, may_list: bool = True) -> OpenFiles | Missing:
        """Count descriptors, and hand over the targets of the first ones, without opening any of them.

        From Linux 6.2 on, the size of the folder is their number: a process may have a million, which take long to
        list. Before, they are counted if they ``may_list``.
        """
        try:
            folder = os.open("fd", _LIST, dir_fd=self._folder)
        except OSError as error:
            return self._denials.classify(error, "fd")
        try:
            number = os.fstat(folder).st_size
            if number > room:
                return OpenFiles(number, self._take_targets(folder, _first_names(folder, room), take))
            if not number and not may_list:
                return OpenFiles(None, has_targets=True)
            names = os.listdir(folder)  # noqa: PTH208 - a Path for each entry would cost more than the entry
            return OpenFiles(len(names), self._take_targets(folder, names[:room], take))
        except OSError as error:
            return self._denials.classify(error, "fd")
        finally:
            os.close(folder)

    def threads(self, limit: int) -> list[ThreadSample] | Missing:
        """Read the state of each thread, up to a limit."""
        found = self._list("task")
        if isinstance(found, Missing):
            return found
        folder, names = found
        try:
            return list(self._thread_samples(folder, names[:limit]))
        finally:
            os.close(folder)

    def _take_targets(self, folder: int, names: Iterable[str], take: Callable[[bytes], object]) -> bool:
        for name in names:
            try:
                take(os.readlink(name.encode("ascii"), dir_fd=folder))
            except OSError as error:  # closed meanwhile, not permitted, or a path that is too long
                if self._denials.classify(error, "fd_target") is not Missing.GONE:
                    return False
        return True

    def _thread_samples(self, folder: int, names: Iterable[str]) -> Iterator[ThreadSample]:
        for name in names:
            try:
                text = read_file(f"{name}/stat", folder, STAT_LIMIT_BYTES)
            except OSError as error:
                self._denials.classify(error, "task")
                continue
            try:
                if text:
                    yield parse_thread_stat(text)
            except MalformedAnswer as error:
                if not is_reaped(text):
                    self._denials.add_fault("task", str(error))

    def _list(self, name: str) -> tuple[int, list[str]] | Missing:
        """Open a folder of the process and list it; the caller closes the descriptor."""
        try:
            folder = os.open(name, _LIST, dir_fd=self._folder)
        except OSError as error:
            return self._denials.classify(error, name)
        try:
            return folder, os.listdir(folder)  # noqa: PTH208 - a Path for each entry would cost more than the entry
        except OSError as error:
            os.close(folder)
            return self._denials.classify(error, name)

    def _names(self, folder_name: str) -> list[str] | Missing:
        found = self._list(folder_name)
        if isinstance(found, Missing):
            return found
        os.close(found[0])
        return found[1]

    def _unknown_format(self, source: str, text: bytes) -> Missing:
        """Count a file with unknown content; one of a process that has just ended is empty."""
        return self._denials.add_fault(source, f"unknown format: {text[:100]!r}") if text else Missing.GONE

    def _read(self, name: str, limit_bytes: int = TEXT_LIMIT_BYTES, *, source: str = "") -> bytes | Missing:
        try:
            return read_file(name, self._folder, limit_bytes)
        except OSError as error:
            return self._denials.classify(error, source or name)


def _first_names(folder: int, number: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, number)]


def read_file(name: str, folder: int, limit_bytes: int) -> bytes:
    """Read a file below an open folder, up to a limit, in one call."""
    file = os.open(name, _READ, dir_fd=folder)
    try:
        return os.read(file, limit_bytes)
    finally:
        os.close(file)


def read_long_file(name: str, folder: int, most_pages: int = _MOST_PAGES) -> bytes:
    """Read a list below an open folder, page by page up to a limit; entries are never split between pages."""
    file = os.open(name, _READ, dir_fd=folder)
    try:
        pages = [os.read(file, _PAGE_BYTES)]
        while len(pages[-1]) > _PAGE_BYTES // 2 and len(pages) < most_pages:
            pages.append(os.read(file, _PAGE_BYTES))
        return b"".join(pages)
    finally:
        os.close(file)
