# SPDX-License-Identifier: Apache-2.0
"""Cache how long jobs of each shape waited in the last weeks: pages must not sum up weeks each time.

One value is made at a time under each key, in the background, while callers get the old one. Only the first caller
waits, and those who come when the old value is too old. The absence of a value is cached like any value: otherwise the
response time would reveal which keys exist, and repeated requests for absent ones would cost the most. A failure is
cached for a shorter time: those who waited for it get it too, instead of trying again one after the other.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slurmscope.archive.interface import Archive
from slurmscope.core.cache import Cache
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.pending.smaller_request import WaitsByShape

logger = logging.getLogger(__name__)


T = TypeVar("T")

FRESH_SECONDS = 15.0
STALE_SECONDS = 45.0
"""Maximum age of a value that is returned while the next one is made."""
FAILED_SECONDS = 10.0
"""How long a failure is returned before the value is made again."""
KEPT_VALUES = 256
MADE_AT_ONCE = 4
"""Limit of values made in the background; callers wait for further ones."""


@dataclass(slots=True)
class _Kept(Generic[T]):
    making: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    made_at: float = -math.inf
    begun_at: float = -math.inf
    failure: SlurmscopeError | None = None
    failed_at: float = -math.inf


class LiveCache(Generic[T]):
    """Return values by key; thread-safe."""

    def __init__(self, make: Callable[[str], T | None], clock: Callable[[], float] = time.monotonic) -> None:
        """Take the function that makes a value; it returns None where there is none, and may raise."""
        self._make = make
        self._clock = clock
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MADE_AT_ONCE)

    def __len__(self) -> int:
        """Count the cached keys."""
        return len(self._kept)

    def get(self, key: str) -> T | None:
        """Return a fresh value, or a slightly stale one while a new one is made; raise a recent failure."""
        kept = self._place(key)
        age = self._age(kept)
        if age >= STALE_SECONDS:
            self._raise_failure(kept)
            with kept.making:
                # Another thread may have made it meanwhile, or failed.
                if self._age(kept) >= FRESH_SECONDS:
                    self._raise_failure(kept)
                    self._fill(key, kept)
        elif age >= FRESH_SECONDS:
            self._begin_to_renew(key, kept)
        return kept.value

    def is_ready(self, key: str) -> bool:
        """Return whether :meth:`get` returns or raises at once."""
        with self._lock:
            kept = self._kept.get(key)
        return kept is not None and (self._age(kept) < STALE_SECONDS or self._has_failed(kept))

    def begin(self, key: str) -> bool:
        """Return whether a caller that has something else to show may do so while a value is made in the background.

        Only once in a while: after a recent failure, :meth:`get` is the better call, as it raises the reason.
        """
        kept = self._place(key)
        if kept.value is not None and self._age(kept) < STALE_SECONDS:
            return False
        was_tried_lately = self._clock() - kept.begun_at < STALE_SECONDS
        return (not was_tried_lately and self._begin_to_renew(key, kept)) or kept.making.locked()

    def _begin_to_renew(self, key: str, kept: _Kept[T]) -> bool:
        """Start making a value, unless that is under way or too many others are."""
        if not self._slots.acquire(blocking=False):
            return False
        if not kept.making.acquire(blocking=False):
            self._slots.release()
            return False
        kept.begun_at = self._clock()
        threading.Thread(target=self._renew, args=(key, kept), name="renew", daemon=True).start()
        return True

    def _renew(self, key: str, kept: _Kept[T]) -> None:
        """Make a new value while callers get the old one; a failure is left to the next caller."""
        try:
            self._fill(key, kept)
        except SlurmscopeError as error:
            logger.info("cached value not renewed", extra=fields(error=str(error)))
        finally:
            kept.making.release()
            self._slots.release()

    def _fill(self, key: str, kept: _Kept[T]) -> None:
        try:
            kept.value, kept.made_at = self._make(key), self._clock()
            kept.failure = None
        except SlurmscopeError as error:
            kept.failure, kept.failed_at = error, self._clock()
            raise

    def _has_failed(self, kept: _Kept[T]) -> bool:
        return kept.failure is not None and self._clock() - kept.failed_at < FAILED_SECONDS

    def _raise_failure(self, kept: _Kept[T]) -> None:
        if kept.failure is not None and self._has_failed(kept):
            raise kept.failure.with_traceback(None)

    def _age(self, kept: _Kept[T]) -> float:
        return self._clock() - kept.made_at

    def _place(self, key: str) -> _Kept[T]:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            # Absent values are evicted like others, for the reason above.
            while len(self._kept) > KEPT_VALUES:
                self._kept.popitem(last=False)
            return kept


PERIOD_SECONDS = 28 * DAY_SECONDS
KEPT_SECONDS = 600.0
MAX_PARTITIONS = 256


class WaitingTimesCache:
    """Return waiting times by shape, read again after ten minutes; thread-safe."""

    def __init__(self, archive: Archive | None, clock: Clock | None = None) -> None:
        """Take the archive; without one, nothing is known."""
        self._archive = archive
        self._clock = clock or Clock()
        self._cache = Cache[WaitsByShape](KEPT_SECONDS, max_keys=MAX_PARTITIONS, clock=self._clock.monotonic)

    def find(self, cluster: str, partition: str) -> WaitsByShape:
        """Return the waiting times of one partition; none while the archive cannot be read."""
        return self._cache.get((cluster, partition), lambda: self._read(cluster, partition))

    def _read(self, cluster: str, partition: str) -> WaitsByShape:
        if self._archive is None:
            return {}
        since = int(self._clock.wall() - PERIOD_SECONDS)
        try:
            found = self._archive.waiting_times(since, cluster=cluster, partition=partition)
        except ArchiveError:
            return {}
        return {(waits.cores_class, waits.limit_class): waits for waits in found}
