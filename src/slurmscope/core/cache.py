# SPDX-License-Identifier: Apache-2.0
"""Keep values that are slow to read, for a time, and read each of them once for all threads."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class WaitTooLong(Exception):
    """Another thread takes too long to read the value."""


@dataclass(slots=True)
class _Entry(Generic[V]):
    """One reading: under way until its future is done, then kept until it expires."""

    future: Future[V] = field(default_factory=Future)
    expires_at: float = float("inf")
    old: Future[V] | None = None


class Cache(Generic[V]):
    """Values by key; thread-safe. Beyond ``max_keys``, expired values are dropped, then those used longest ago.

    The first thread that requests a key reads its value; those that come meanwhile wait for it, at most
    ``wait_seconds``, and get the same value or failure. A failure is raised again for ``retry_seconds``.
    With ``serves_old``, callers get the value read before instead, where there is one: while another thread reads the
    next one, and for ``retry_seconds`` after a failure.
    """

    def __init__(
        self,
        keep_seconds: float | Callable[[V], float],
        *,
        retry_seconds: float = 0.0,
        serves_old: bool = False,
        max_keys: int = 256,
        wait_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set how long values are kept, or what returns it for a value."""
        self._keep_seconds = keep_seconds
        self._retry_seconds = retry_seconds
        self._serves_old = serves_old
        self._max_keys = max_keys
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry[V]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a value or failure is kept, or being read."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and self._clock() < entry.expires_at

    def get(self, key: Hashable, read: Callable[[], V]) -> V:
        """Return the value of a key, read now unless it is kept; raise what ``read`` raises.

        Raises WaitTooLong if another thread takes too long to read it.
        """
        entry, is_new = self._find(key)
        if is_new:
            self._fill(entry, read)
        elif not entry.future.done():
            if (old := entry.old) is not None:
                return old.result()
            if not wait([entry.future], self._wait_seconds).done:
                raise WaitTooLong
        failure = entry.future.exception()
        if failure is not None:
            raise failure.with_traceback(None)  # it would grow with each caller
        return entry.future.result()

    def _find(self, key: Hashable) -> tuple[_Entry[V], bool]:
        with self._lock:
            found = self._entries.get(key)
            is_new = found is None or self._clock() >= found.expires_at
            if found is None or is_new:
                found = self._entries[key] = _Entry(old=self._old_of(found))
            self._entries.move_to_end(key)
            self._drop()
            return found, is_new

    def _old_of(self, entry: _Entry[V] | None) -> Future[V] | None:
        return entry.future if self._serves_old and entry is not None and entry.future.exception() is None else None

    def _drop(self) -> None:
        if len(self._entries) <= self._max_keys:
            return
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.expires_at <= now]:
            del self._entries[key]
        while len(self._entries) > self._max_keys:
            self._entries.popitem(last=False)

    def _fill(self, entry: _Entry[V], read: Callable[[], V]) -> None:
        try:
            value = read()
            seconds = self._keep_seconds(value) if callable(self._keep_seconds) else self._keep_seconds
        except BaseException as error:
            entry.expires_at = self._clock() + self._retry_seconds
            if entry.old is None or not isinstance(error, Exception):
                entry.future.set_exception(error)
                raise
            entry.future.set_result(entry.old.result())
        else:
            entry.expires_at = self._clock() + seconds
            entry.future.set_result(value)
        entry.old = None
