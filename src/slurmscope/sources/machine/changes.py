# SPDX-License-Identifier: Apache-2.0
"""Sleep until watched folders change, watched processes end, or somebody calls.

One thread sleeps here at no cost. Where the kernel gives no watches, or too few, ``is_polling`` says so, and the
caller has to look by himself.
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
from slurmscope.sources.machine.inotify import FILE_CHANGES, FOLDER_CHANGES, Event, Inotify, InotifyUnavailable

logger = logging.getLogger(__name__)

# A file of this name tells by a change that the last process of its cgroup (version 2) has ended.
EVENTS_FILE = "cgroup.events"
WATCH_LIMIT = 8192
PROCESS_LIMIT = 512


@dataclass(slots=True, kw_only=True)
class WakeUp:
    """Tell what happened during one sleep."""

    events: list[Event] = field(default_factory=list)
    ended_pids: list[int] = field(default_factory=list)


class ChangeWatcher:
    """Hold watches on folders and processes; for one thread, except ``wake``."""

    def __init__(
        self,
        open_inotify: Callable[[], Inotify] = Inotify,
        *,
        watch_limit: int = WATCH_LIMIT,
        process_limit: int = PROCESS_LIMIT,
    ) -> None:
        """Open what is needed; without inotify it works on, polling."""
        self.is_polling = False
        self._watch_limit = watch_limit
        self._process_limit = process_limit
        self._pid_of: dict[int, int] = {}
        self._descriptor_of: dict[int, int] = {}
        self._has_pidfd = hasattr(os, "pidfd_open")
        self._inotify: Inotify | None = None
        self._has_lost_events = False
        self._epoll = select.epoll()
        self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._call, select.EPOLLIN)
        try:
            self._inotify = open_inotify()
        except InotifyUnavailable as error:
            self._poll_instead(str(error))
        else:
            self._epoll.register(self._inotify, select.EPOLLIN)

    def wait(self, seconds: float | None) -> WakeUp:
        """Sleep until something happens, at most this long; None means for as long as it takes."""
        heard = WakeUp()
        for descriptor, _ in self._epoll.poll(seconds if seconds is None else max(0.0, seconds)):
            if descriptor == self._call:
                self._take_call()
            elif (pid := self._pid_of.get(descriptor)) is not None:
                heard.ended_pids.append(pid)
                self.forget_process(pid)
            elif self._inotify is not None:
                heard.events += self._inotify.read()
        self._has_lost_events |= any(event.has_lost_others for event in heard.events)
        return heard

    def rest(self, seconds: float) -> None:
        """Sleep whatever happens; only a call ends it."""
        poll = select.poll()
        poll.register(self._call, select.POLLIN)
        if poll.poll(max(0.0, seconds) * 1000):
            self._take_call()

    def wake(self) -> None:
        """End the sleep of the other thread; may be called from any."""
        os.eventfd_write(self._call, 1)

    def watch(self, paths: Collection[Path]) -> bool:
        """Watch these folders and files and no others; tell whether any is new, so that another look is due."""
        if self._inotify is None:
            return False
        wanted, watched = set(paths), self._inotify.paths
        for path in watched - wanted:
            self._inotify.remove(path)
        has_new = False
        # That a watched folder is gone may be among what was lost; watching one twice is fine.
        unsure = wanted if self._has_lost_events else wanted - watched
        self._has_lost_events = False
        for path in unsure:
            if len(self._inotify.paths) >= self._watch_limit:
                self._poll_instead(f"there are more than {self._watch_limit} folders to watch")
                break
            changes = FILE_CHANGES if path.name == EVENTS_FILE else FOLDER_CHANGES
            try:
                has_new |= self._inotify.add(path, changes) and path not in watched
            except InotifyUnavailable as error:
                self._poll_instead(str(error))
                break
        else:
            self.is_polling = False
        return has_new

    def watch_processes(self, pids: Collection[int]) -> list[int]:
        """Tell the end of these processes, and return those that are watched: one may be gone already."""
        for pid in pids:
            if self._has_pidfd and pid not in self._descriptor_of and len(self._descriptor_of) < self._process_limit:
                self._watch_process(pid)
        return [pid for pid in pids if pid in self._descriptor_of]

    def forget_process(self, pid: int) -> None:
        """Stop watching a process."""
        if (descriptor := self._descriptor_of.pop(pid, None)) is not None:
            del self._pid_of[descriptor]
            self._epoll.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Give all descriptors back; closing twice is fine."""
        if self._epoll.closed:
            return
        for pid in list(self._descriptor_of):
            self.forget_process(pid)
        if self._inotify is not None:
            self._inotify.close()
        self._epoll.close()
        os.close(self._call)

    def _take_call(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._call)

    def _watch_process(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError as error:
            # Kernels before 5.3 do not know the call; all else concerns this process only: mostly, it is gone.
            self._has_pidfd = error.errno != errno.ENOSYS
            return
        self._pid_of[descriptor] = pid
        self._descriptor_of[pid] = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def _poll_instead(self, reason: str) -> None:
        if not self.is_polling:
            logger.warning("changes of cgroups are polled for", extra=fields(reason=reason))
        self.is_polling = True
