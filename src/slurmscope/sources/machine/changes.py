# SPDX-License-Identifier: Apache-2.0
"""Wait until watched folders change, watched processes end, or ``wake`` is called.

One thread waits here without using CPU. Where the kernel has no inotify watches, or too few, ``is_polling`` is set and
the caller has to poll.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.log import fields
from slurmscope.sources.machine.inotify import (
    FILE_CHANGES,
    FOLDER_CHANGES,
    PROGRAM_CHANGES,
    Event,
    Inotify,
    InotifyUnavailable,
)

logger = logging.getLogger(__name__)

# This file of a v2 cgroup is modified when the last process of the cgroup has ended.
EVENTS_FILE = "cgroup.events"
# About a kilobyte of kernel memory each; two for each job, a few more for each step of v1.
WATCH_LIMIT = 65_536
PROCESS_LIMIT = 512


@dataclass(slots=True, kw_only=True)
class WakeUp:
    """Hold what happened during one wait."""

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

    def watch(self, paths: Collection[Path], programs: Collection[Path] = ()) -> bool:
        """Watch these folders and files and no others; return whether any is new, so that another scan is due.

        Of programs it is watched that they are executed.
        """
        if self._inotify is None:
            return False
        wanted, watched = {*paths, *programs}, self._inotify.paths
        for path in watched - wanted:
            self._inotify.remove(path)
        has_new = False
        # The removal of a watched folder may be among the lost events, and that of a program on a network file system
        # is not reported; watching one twice is harmless.
        unsure = wanted if self._has_lost_events else (wanted - watched) | set(programs)
        self._has_lost_events = False
        for path in unsure:
            if len(watched) >= self._watch_limit:
                self._poll_instead(f"more than {self._watch_limit} folders to watch")
                break
            is_new = path not in watched
            changes = FILE_CHANGES if path.name == EVENTS_FILE else FOLDER_CHANGES
            try:
                added = self._inotify.add(path, PROGRAM_CHANGES if path in programs else changes)
                has_new |= added and is_new
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
