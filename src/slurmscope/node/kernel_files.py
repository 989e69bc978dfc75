# SPDX-License-Identifier: Apache-2.0
"""Read files of the kernel that may be missing, denied or broken, or hang.

A file of a process may hang for ever. While a process starts another program, the kernel closes files; those of a dead
file server, or of a file system that a user serves (FUSE), are never closed. A thread that then reads ``io``,
``environ`` or, from some kernels on, even ``stat`` of it waits as long, as ``ps`` does, and no signal ends that but one
that ends the agent. So does one that reads ``cmdline`` of a process that waits for a dead NFS server in mmap.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar, final

from slurmscope.core.errors import MalformedAnswer, SourceError
from slurmscope.core.log import fields
from slurmscope.node.procfs.stat import ProcessSample, is_reaped, parse_stat

logger = logging.getLogger(__name__)

T = TypeVar("T")
Outcome = tuple[object, BaseException | None, float]

PATIENCE_SECONDS = 3.0
"""How long the files of one process may take."""
MOST_OF_USER = 2
"""Hanging processes of a user; with more of them, no process of the user is read until one of these reads returns."""
MOST_HANGING = 32
"""Threads that hang; with more of them, no process is read at all."""

_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EINVAL, errno.ENOTDIR})
_DENIED = frozenset({errno.EACCES, errno.EPERM})
# Not the fault of a process: the agent or the machine lacks a resource, and the next read would fail too.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

MOST_NUMBER = (1 << 63) - 1
"""More is garbage, such as the highest number of 64 bits, which drivers write for a value that is not known."""
_NUMBER_BYTES = 64


class Hanging(Exception):
    """Files of a process hang: 0 if none is read because too many do. The thread that reads them may end later."""

    def __init__(self, pid: int, thread: threading.Thread | None) -> None:
        super().__init__(f"process {pid}")
        self.pid, self.thread = pid, thread


class _GivenUp(BaseException):
    """Ends a thread that hung and is not waited for any more."""


class _Worker:
    """A thread that does one thing after another."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="process-reader", daemon=True)
        try:
            self.thread.start()
        except RuntimeError as error:
            raise SourceError("cannot read processes: no thread could be started") from error

    def start(self, task: Callable[[], object]) -> None:
        self._tasks.put(task)

    def wait(self, seconds: float) -> Outcome | None:
        """Return how the task ended; None if it goes on."""
        try:
            return self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """End the thread after its task."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            began = time.thread_time()
            try:
                value, error = task(), None
            except BaseException as raised:  # noqa: BLE001 - passed on
                value, error = None, raised
            self._outcomes.put((value, error, time.thread_time() - began))
            del task, value, error


class _Hang(NamedTuple):
    pid: int
    user: int | None
    thread: threading.Thread


class HangGuard:
    """Give up threads that hang. For one thread, and for what it runs."""

    def __init__(self, procfs_root: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Start no thread; :meth:`close` ends it."""
        self._root = procfs_root
        self._patience_seconds = patience_seconds
        self._worker: _Worker | None = None
        self._at = (0, 0)
        self._owner: int | None = None
        self._hangs: list[_Hang] = []
        self.report: Callable[[int], object] = lambda _: None
        """Called with each process that begins to hang."""
        self.cpu_seconds = 0.0
        """What all threads used that were not given up."""

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def run(self, work: Callable[[], T], pid: int = 0, *, owner: int | None = None) -> T:
        """Return what the work returns; raise Hanging if it takes too long for one process.

        ``owner`` is the user of the job, if it is known: in a container, one user has processes of thousands of users.
        The work may go on after that, up to its next :meth:`at`, and must not change what is used in the meantime.
        """
        worker, current = self._worker, threading.current_thread()
        if worker is not None and worker.thread is current:
            return work()
        if any(hang.thread is current for hang in self._hangs):
            raise _GivenUp
        if len(self._current()) >= MOST_HANGING:
            raise Hanging(0, None)
        if worker is None:
            worker = self._worker = _Worker()
        self._at, self._owner = (pid, self._at[1] + 1), owner
        worker.start(work)
        try:
            value, error, cpu_seconds = self._wait(worker)
        finally:
            self._owner = None
        self.cpu_seconds += cpu_seconds
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def run_for(self, pid: int, work: Callable[[], T], otherwise: T) -> T:
        """Return what the work with one process returns, or the other value where it hangs."""
        try:
            return otherwise if self.skips(pid) else self.run(work, pid)
        except Hanging:
            return otherwise

    def at(self, pid: int) -> None:
        """Note whose files are read next; ends a thread that was given up."""
        worker = self._worker
        if worker is None or worker.thread is not threading.current_thread():
            raise _GivenUp
        self._at = (pid, self._at[1] + 1)

    def skips(self, pid: int) -> bool:
        """Return whether a process must not be read: it hangs, or too many of its user do."""
        hangs = self._current()
        return bool(hangs) and (any(pid == hang.pid for hang in hangs) or self.skips_user(self._find_owner(pid)))

    def skips_user(self, user: int | None) -> bool:
        """Return whether so many processes of a user hang that no more are read."""
        return user is not None and sum(user == hang.user for hang in self._current()) >= MOST_OF_USER

    def _wait(self, worker: _Worker) -> Outcome:
        while True:
            at = self._at
            outcome = worker.wait(self._patience_seconds)
            if outcome is not None:
                return outcome
            if self._at == at:
                raise self._give_up(worker)

    def _give_up(self, worker: _Worker) -> Hanging:
        self._worker = None
        worker.end()
        pid = self._at[0]
        self._hangs = [*self._current(), _Hang(pid, self._find_owner(pid), worker.thread)]
        self.report(pid)
        return Hanging(pid, worker.thread)

    def _current(self) -> list[_Hang]:
        if self._hangs:
            self._hangs = [hang for hang in self._hangs if hang.thread.is_alive()]
        return self._hangs

    def _find_owner(self, pid: int) -> int | None:
        if self._owner is not None:
            return self._owner
        try:
            return os.stat(self._root / str(pid)).st_uid  # noqa: PTH116 - never hangs, unlike files in it
        except OSError:
            return None


@final
class Missing:
    """Name why nothing was read: the process is gone, we have no permission, or the file is faulty.

    No enumeration, of which ``isinstance`` takes three times as long, and each member a call: both are needed several
    times for each process.
    """

    __slots__ = ("reason",)
    GONE: ClassVar[Missing]
    DENIED: ClassVar[Missing]
    FAULTY: ClassVar[Missing]

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Missing: {self.reason}>"


Missing.GONE, Missing.DENIED, Missing.FAULTY = Missing("gone"), Missing("denied"), Missing("faulty")


@dataclass(frozen=True, slots=True)
class Denials:
    """Distinguish gone, denied and faulty; count the latter two by kind of file, and log the first of each kind.

    A user can cause faults, such as a file under a path longer than readlink can return: each costs one value.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def classify(self, error: OSError, source: str) -> Missing:
        """Return the meaning of an error; raise SourceError if it concerns every process, as too many open files."""
        if error.errno in _GONE:
            return Missing.GONE
        if error.errno in _EXHAUSTED:
            raise SourceError(f"cannot read {source} of a process: {error.strerror}") from error
        if error.errno not in _DENIED:
            return self.add_fault(source, error.strerror or str(error))
        if source not in self.counts:
            logger.warning("no permission to read files of processes", extra=fields(source, file=source))
        self.counts[source] += 1
        return Missing.DENIED

    def add_fault(self, source: str, error: str) -> Missing:
        """Count a file that cannot be read or parsed."""
        if source not in self.faults:
            logger.warning("cannot read a file of a process", extra=fields(source, file=source, error=error))
        self.faults[source] += 1
        return Missing.FAULTY

    def parse_sample(self, text: bytes, uid: int, pid: int) -> ProcessSample | Missing:
        """Parse the ``stat`` line of this process; an empty one means that it is gone."""
        if not text:
            return Missing.GONE
        try:
            sample = parse_stat(text, uid)
        except MalformedAnswer as error:
            return Missing.GONE if is_reaped(text) else self.add_fault("stat", str(error))
        return sample if sample.pid == pid else self.add_fault("stat", "the line of another process")


def read_bytes(file: Path, limit_bytes: int) -> bytes:
    """Return what one read returns, up to a limit."""
    try:
        with file.open("rb", buffering=0) as opened:
            return opened.read(limit_bytes) or b""
    except OSError:
        return b""


def read_number(file: Path) -> int | None:
    """Read a file that holds one number; None if it does not, or cannot be read."""
    text = read_bytes(file, _NUMBER_BYTES).strip()
    is_number = text.isdigit() and len(text) <= len(str(MOST_NUMBER)) and int(text) <= MOST_NUMBER
    return int(text) if is_number else None
