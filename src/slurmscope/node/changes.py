# SPDX-License-Identifier: Apache-2.0
"""Wait until watched folders change (by inotify), watched processes end, or ``wake`` is called.

One thread waits here without using CPU. Where the kernel has no inotify watches, or too few, ``is_polling`` is set and
the caller has to poll.

Works on cgroup file systems: a folder reports subfolders that appear and vanish, and ``cgroup.events`` of version 2 is
"modified" when the last process has left a cgroup. Changes of /proc and other virtual files are not reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import logging
import os
import select
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields

logger = logging.getLogger(__name__)


# From the kernel's <linux/inotify.h>; they are part of its stable ABI and the same on all architectures.
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
# One read never returns more; a name is at most 256 bytes, so this is at least 240 events.
_READ_BYTES = 65536
# A burst may fill the queue as fast as it is emptied; what is left is read the next time.
_READS_AT_ONCE = 16


class Change(enum.IntFlag):
    """Name a change; for a new watch, the changes to report."""

    MODIFIED = 0x002
    OPENED = 0x020
    MOVED_FROM = 0x040
    MOVED_TO = 0x080
    CREATED = 0x100
    DELETED = 0x200
    SELF_DELETED = 0x400
    OVERFLOWED = 0x4000
    IGNORED = 0x8000
    ONLY_FOLDER = 0x1000000
    IS_FOLDER = 0x40000000


FOLDER_CHANGES = (
    Change.CREATED | Change.DELETED | Change.MOVED_FROM | Change.MOVED_TO | Change.SELF_DELETED | Change.ONLY_FOLDER
)
FILE_CHANGES = Change.MODIFIED | Change.SELF_DELETED
# The kernel opens a program to execute it.
PROGRAM_CHANGES = Change.OPENED | Change.SELF_DELETED


class InotifyUnavailable(SourceError):
    """The kernel allows no further watch or instance: limits of the user, or no inotify at all."""

    reason = "refused"


@dataclass(frozen=True, slots=True)
class Event:
    """One change: where, what, and the name of the entry (empty for the watched path itself).

    ``path`` is None when the kernel dropped events: everything may have changed.
    """

    path: Path | None
    change: Change
    name: str = ""

    @property
    def has_lost_others(self) -> bool:
        """Return whether events before this one were dropped, so that a full scan is needed."""
        return Change.OVERFLOWED in self.change


class Inotify:
    """Keep a set of watches and return their events; for one thread, closed by ``with`` or ``close``."""

    def __init__(self, library: object = None) -> None:
        """Open an inotify instance; raise InotifyUnavailable where the kernel allows none."""
        self._library = library or ctypes.CDLL(None, use_errno=True)
        self._path_of: dict[int, Path] = {}
        self._watch_of: dict[Path, int] = {}
        self._descriptor = -1
        self._descriptor = self._call("inotify_init1", _NONBLOCK | _CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._descriptor

    @property
    def paths(self) -> Set[Path]:
        """Return the paths watched at any moment; one that vanished is removed when its last event is read."""
        return self._watch_of.keys()  # a view: a copy for each new watch would cost the square of their number

    def add(self, path: Path, changes: Change = FOLDER_CHANGES) -> bool:
        """Watch a folder or file; return False when it is watched already, is gone or may not be read.

        The same path is watched anew if it is another folder than before (device and inode). Raise InotifyUnavailable
        when the limit of watches is reached. Changes before this call are not reported: scan once after adding.
        """
        try:
            watch = self._call("inotify_add_watch", self._descriptor, os.fsencode(path), int(changes))
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EACCES, errno.EPERM}:
                return False
            raise
        # A folder recreated under an old name: events still queued for the old one must not affect the new watch. The
        # kernel ends watches of removed folders by itself, but not those of cgroups.
        if self._watch_of.get(path, watch) != watch:
            self.remove(path)
        # The same folder under a second name has the same watch, and is reported under the newer name.
        if (former := self._path_of.get(watch, path)) != path:
            self._watch_of.pop(former, None)
        is_new = path not in self._watch_of
        self._path_of[watch] = path
        self._watch_of[path] = watch
        return is_new

    def remove(self, path: Path) -> None:
        """Stop watching a path; one that is no longer watched is ignored."""
        if (watch := self._watch_of.pop(path, None)) is None:
            return
        self._path_of.pop(watch, None)
        # The kernel may have removed it already: then this fails with EINVAL.
        with contextlib.suppress(OSError):
            self._call("inotify_rm_watch", self._descriptor, watch)

    def read(self) -> list[Event]:
        """Return the events since the last call, without waiting; a burst is returned in parts."""
        events: list[Event] = []
        for _ in range(_READS_AT_ONCE):
            try:
                block = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                break
            events.extend(self._decode(block))
        return events

    def close(self) -> None:
        """Close the instance and all watches; closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        self._path_of.clear()
        self._watch_of.clear()
        if descriptor >= 0:
            os.close(descriptor)

    def _decode(self, block: bytes) -> Iterator[Event]:
        for watch, change, name in parse_events(block):
            if Change.OVERFLOWED in change:
                yield Event(None, change)
                continue
            path = self._path_of.get(watch)
            if path is None:  # removed by us, with events still in the queue
                continue
            if Change.IGNORED in change:
                self._path_of.pop(watch)
                self._watch_of.pop(path, None)
                continue
            yield Event(path, change, name)

    def _call(self, function: str, *arguments: int | bytes) -> int:
        result: int = getattr(self._library, function)(*arguments)
        if result >= 0:
            return result
        number = ctypes.get_errno()
        # EMFILE: instances of this user; ENFILE: of the machine; ENOSPC: watches; ENOSYS: a kernel without it.
        if number in {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOSYS, errno.ENOMEM}:
            raise InotifyUnavailable(
                f"{function}: {os.strerror(number)}; raise fs.inotify.max_user_watches or"
                " fs.inotify.max_user_instances; until then cgroups are polled"
            )
        raise OSError(number, os.strerror(number), function)


def parse_events(block: bytes) -> Iterator[tuple[int, Change, str]]:
    """Parse events into watch, change and name; skip a truncated end."""
    offset = 0
    while offset + _HEADER.size <= len(block):
        watch, mask, _cookie, length = _HEADER.unpack_from(block, offset)
        offset += _HEADER.size
        if offset + length > len(block):
            return
        name = os.fsdecode(block[offset : offset + length].rstrip(b"\0"))
        offset += length
        yield watch, Change(mask), name


# This file of a v2 cgroup is modified when the last process of the cgroup has ended.
EVENTS_FILE = "cgroup.events"
_REMOVED = Change.DELETED | Change.MOVED_FROM
# About a kilobyte of kernel memory each; two for each job, a few more for each step of v1.
WATCH_LIMIT = 65_536
PROCESS_LIMIT = 512


@dataclass(slots=True, kw_only=True)
class WakeUp:
    """What happened during one wait."""

    events: list[Event] = field(default_factory=list)
    ended_pids: list[int] = field(default_factory=list)


class ChangeWatcher:
    """Watch folders and processes; for one thread, except ``wake``."""

    def __init__(
        self,
        open_inotify: Callable[[], Inotify] = Inotify,
        *,
        watch_limit: int = WATCH_LIMIT,
        process_limit: int = PROCESS_LIMIT,
    ) -> None:
        """Open the descriptors; without inotify, fall back to polling."""
        self.is_polling = False
        self._watch_limit = watch_limit
        self._process_limit = process_limit
        self._pid_of: dict[int, int] = {}
        self._descriptor_of: dict[int, int] = {}
        self._has_pidfd = hasattr(os, "pidfd_open")
        self._inotify: Inotify | None = None
        self._has_lost_events = False
        self._epoll = select.epoll()
        self._wake_up = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_up, select.EPOLLIN)
        try:
            self._inotify = open_inotify()
        except InotifyUnavailable as error:
            self._poll_instead(str(error))
        else:
            self._epoll.register(self._inotify, select.EPOLLIN)

    def wait(self, seconds: float | None) -> WakeUp:
        """Wait until something happens, at most this long; None means without limit."""
        happened = WakeUp()
        for descriptor, _ in self._epoll.poll(seconds if seconds is None else max(0.0, seconds)):
            if descriptor == self._wake_up:
                self._clear_wake_up()
            elif (pid := self._pid_of.get(descriptor)) is not None:
                happened.ended_pids.append(pid)
                self.unwatch_process(pid)
            elif self._inotify is not None:
                happened.events += self._inotify.read()
        self._has_lost_events |= any(event.has_lost_others for event in happened.events)
        self._forget_removed(happened.events)
        return happened

    def has_any(self, seconds: float) -> bool:
        """Wait as ``wait`` does, but only return whether anything happened, which ``wait`` then returns."""
        return bool(self._epoll.poll(seconds))

    def rest(self, seconds: float) -> None:
        """Sleep whatever happens; only ``wake`` ends it."""
        poll = select.poll()
        poll.register(self._wake_up, select.POLLIN)
        if poll.poll(max(0.0, seconds) * 1000):
            self._clear_wake_up()

    def wake(self) -> None:
        """End the wait of the other thread; may be called from any thread."""
        os.eventfd_write(self._wake_up, 1)

    def watch(self, paths: Collection[Path], programs: Collection[Path] = (), roots: Collection[Path] = ()) -> bool:
        """Watch these folders and files and no others; return whether any is new, so that another scan is due.

        Of programs it is watched that they are executed. Roots are those of the folders whose own removal may not be
        reported: what is there now is watched.
        """
        if self._inotify is None:
            return False
        wanted, watched = {*paths, *programs}, self._inotify.paths
        for path in watched - wanted:
            self._inotify.remove(path)
        has_new = False
        # The removal of a watched folder may be among the lost events, and that of a program on a network file system
        # is not reported; watching one twice is harmless.
        unsure = wanted if self._has_lost_events else {*(wanted - watched), *programs, *roots}
        self._has_lost_events = False
        for path in unsure:
            if path not in watched and len(watched) >= self._watch_limit:
                self._poll_instead(f"more than {self._watch_limit} folders to watch")
                break
            changes = FILE_CHANGES if path.name == EVENTS_FILE else FOLDER_CHANGES
            try:
                has_new |= self._inotify.add(path, PROGRAM_CHANGES if path in programs else changes)
            except InotifyUnavailable as error:
                self._poll_instead(str(error))
                break
        else:
            self.is_polling = False
        return has_new

    def is_watched(self, path: Path) -> bool:
        """Return whether a folder or file is watched."""
        return self._inotify is not None and path in self._inotify.paths

    def watch_processes(self, pids: Collection[int]) -> list[int]:
        """Watch the end of these processes, and return those that are watched: one may be gone already."""
        for pid in pids:
            if self._has_pidfd and pid not in self._descriptor_of and len(self._descriptor_of) < self._process_limit:
                self._watch_process(pid)
        return [pid for pid in pids if pid in self._descriptor_of]

    def unwatch_process(self, pid: int) -> None:
        """Stop watching a process."""
        if (descriptor := self._descriptor_of.pop(pid, None)) is not None:
            del self._pid_of[descriptor]
            self._epoll.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Close all descriptors; closing twice is harmless."""
        if self._epoll.closed:
            return
        for pid in list(self._descriptor_of):
            self.unwatch_process(pid)
        if self._inotify is not None:
            self._inotify.close()
        self._epoll.close()
        os.close(self._wake_up)

    def _forget_removed(self, events: Iterable[Event]) -> None:
        """Stop watching folders that were removed, so that the next ones of the same name are watched.

        The kernel does so by itself, except on cgroup file systems: there the watch of the removed folder stays.
        """
        for event in events:
            if event.path is not None and Change.IS_FOLDER in event.change and event.change & _REMOVED:
                folder = event.path / event.name
                for path in (folder, folder / EVENTS_FILE):
                    if self._inotify is not None:
                        self._inotify.remove(path)

    def _clear_wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_up)

    def _watch_process(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError as error:
            # Kernels before 5.3 lack the call; any other error concerns this process only: usually it is gone.
            self._has_pidfd = error.errno != errno.ENOSYS
            return
        self._pid_of[descriptor] = pid
        self._descriptor_of[pid] = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def _poll_instead(self, reason: str) -> None:
        if not self.is_polling:
            logger.warning("inotify is unavailable; polling cgroups instead", extra=fields(reason=reason))
        self.is_polling = True
