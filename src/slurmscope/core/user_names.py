# SPDX-License-Identifier: Apache-2.0
"""Resolve user IDs to names without blocking on the name service.

Names come from files, LDAP or SSSD, which may hang for minutes. A background thread resolves them; a caller gets the
name if it is cached, and else the number, and the name at a later call. Where a page is made only once there is no
later call: for that, callers may wait a little, in total and not each.
"""

from __future__ import annotations

import pwd
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PASSWD_FIELDS = 7


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    until_seconds: float


def look_up(uid: int) -> str | None:
    """Query the machine's name service; None for a user without a name."""
    try:
        return pwd.getpwuid(uid).pw_name or None
    except (KeyError, ValueError, OSError, OverflowError):
        return None


def look_up_below(root: Path) -> Callable[[int], str | None]:
    """Return a lookup for a machine whose root is mounted at ``root``, as in a container.

    Its own ``etc/passwd`` comes first: the users of a container are not those of the machine. Users that it does not
    list, such as those of LDAP, are looked up in the name service of this process.
    """
    if root == Path("/"):
        return look_up
    passwd = root / "etc" / "passwd"
    return lambda uid: _find_in_passwd(passwd, uid) or look_up(uid)


def _find_in_passwd(passwd: Path, uid: int) -> str | None:
    try:
        with passwd.open(encoding="utf-8", errors="replace") as lines:
            entries = (line.split(":") for line in lines)
            return next((entry[0] for entry in entries if len(entry) == PASSWD_FIELDS and entry[2] == str(uid)), None)
    except OSError:
        return None


class NameCache:
    """Cache user names; safe to use from any thread.

    A name that is older than ``lifetime_seconds`` is still returned while it is resolved again: an old name is better
    than a number. ``queue_limit`` bounds the lookups that wait for a slow service; others are queued later.
    ``patience_seconds`` is how long all callers together wait for unknown names, since the cache was created.
    """

    def __init__(  # noqa: PLR0913 - limits, all by keyword
        self,
        look_up: Callable[[int], str | None] = look_up,
        *,
        clock: Callable[[], float] = time.monotonic,
        lifetime_seconds: float = 600.0,
        nameless_lifetime_seconds: float = 60.0,
        patience_seconds: float = 0.0,
        size_limit: int = 10_000,
        queue_limit: int = 256,
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._lifetime_seconds = lifetime_seconds
        self._nameless_lifetime_seconds = nameless_lifetime_seconds
        self._patience_seconds = patience_seconds
        self._size_limit = size_limit
        self._known: dict[int, _Known] = {}
        self._queued: set[int] = set()
        self._queue: queue.Queue[int | None] = queue.Queue(queue_limit)
        self._lock = threading.Condition()
        self._worker: threading.Thread | None = None
        self._is_closed = False

    def name(self, uid: int) -> str:
        """Return the name of a user, or the user ID as text where there is none or it is not known yet."""
        known = self._known.get(uid)
        if known is None or known.until_seconds <= self._clock():
            self._enqueue(uid, known)
        if known is None and self._patience_seconds > 0:
            known = self._wait_for(uid)
        return known.name if known is not None else str(uid)

    def close(self) -> None:
        """Stop resolving names; a lookup that hangs is not waited for."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
            worker = self._worker
        if worker is not None:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
            worker.join(timeout=1.0)

    def _wait_for(self, uid: int) -> _Known | None:
        started = time.monotonic()
        with self._lock:
            self._lock.wait_for(lambda: uid in self._known or self._is_closed, self._patience_seconds)
            self._patience_seconds -= time.monotonic() - started
            return self._known.get(uid)

    def _enqueue(self, uid: int, known: _Known | None) -> None:
        with self._lock:
            # The name may have been resolved since the caller checked.
            if self._is_closed or self._known.get(uid) is not known:
                return
            if uid not in self._queued:
                try:
                    self._queue.put_nowait(uid)
                except queue.Full:
                    return
                self._queued.add(uid)
            if self._worker is None:
                self._start()

    def _start(self) -> None:
        # A daemon, because a hanging lookup must not keep the program from ending.
        worker = threading.Thread(target=self._work, name="user-names", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # no more threads: the next caller tries again
            return
        self._worker = worker

    def _work(self) -> None:
        while (uid := self._queue.get()) is not None and not self._is_closed:
            self._store(uid, self._look_up(uid))

    def _store(self, uid: int, name: str | None) -> None:
        lifetime_seconds = self._nameless_lifetime_seconds if name is None else self._lifetime_seconds
        with self._lock:
            self._queued.discard(uid)
            # Removed first, so that the oldest entry is always the first.
            old = self._known.pop(uid, None)
            # A service that is down answers as if the user did not exist: keep a known name.
            name = name or (old.name if old else str(uid))
            self._known[uid] = _Known(name, self._clock() + lifetime_seconds)
            while len(self._known) > self._size_limit:
                del self._known[next(iter(self._known))]
            self._lock.notify_all()
