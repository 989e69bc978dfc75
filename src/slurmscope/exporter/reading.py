# SPDX-License-Identifier: Apache-2.0
"""Share each reading among all scrapes and collectors, and keep the last good value.

A source is read on demand, by one thread at a time, and at most once per interval: failed and empty readings are
throttled like good ones. A caller waits until its own deadline and then gets the last good value while the slow read
continues.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slurmscope.core.clock import Clock
from slurmscope.core.errors import SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.exporter.collector import SLOW_SECONDS, Reading

logger = logging.getLogger(__name__)


SLOWEST_BACK_OFF_SECONDS = 300.0
LONGEST_WAIT_SECONDS = 120.0
IN_USE_SECONDS = 300.0
"""How long after a request a reading is in use; later its age says nothing about its source."""
STILL_BEING_READ = "still being read"
"""The error of a snapshot whose caller could not wait for the read in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The last good value of a source and the outcome of the latest attempt to read it.

    ``version`` changes with every good value. ``error`` is None if the latest attempt succeeded.
    """

    value: object = None
    version: int = 0
    taken_at: float = 0.0
    error: str | None = None

    @property
    def has_value(self) -> bool:
        """Return whether the source was ever read successfully."""
        return self.version > 0


class PushedText(NamedTuple):
    header: bytes
    samples: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedPage:
    """The metrics that others pushed: compressed, and by name those families that the exporter has as well."""

    blocks: tuple[bytes, ...] = ()
    beside: Mapping[str, PushedText] = field(default_factory=dict)


class SharedReading:
    """Read one source for all callers, at most once per interval."""

    def __init__(  # noqa: PLR0913 - all but the first two are keyword-only
        self,
        name: str,
        read: Callable[[], object],
        *,
        interval_seconds: float,
        keep_seconds: float = 300.0,
        retry_seconds: float | None = None,
        advice: str = "",
        patience_seconds: float = math.inf,
        clock: Clock | None = None,
    ) -> None:
        """Take the function that reads; ``keep_seconds`` is how long a value is served while reading fails.

        A failed read is repeated after ``retry_seconds``, by default after the interval. ``advice`` is what to do then,
        where that for the reason of the failure does not help. No caller waits longer than ``patience_seconds``.
        """
        self.name = name
        self.advice = advice
        self.patience_seconds = patience_seconds
        self.interval_seconds = interval_seconds
        self.keep_seconds = keep_seconds
        self.retry_seconds = interval_seconds if retry_seconds is None else retry_seconds
        self.attempts = 0
        self.errors: Counter[str] = Counter()
        self.last_reason = ""
        self.duration_seconds: float | None = None
        self._read = read
        self._clock = clock or Clock()
        self._changed = threading.Condition()
        self._is_reading = False
        self._next_start = self._requested_at = self._clock.monotonic()
        self._snapshot = Snapshot()

    @property
    def is_in_use(self) -> bool:
        return self._clock.monotonic() - self._requested_at <= IN_USE_SECONDS

    def request(self) -> None:
        """Start a read in the background if one is due and none is running."""
        with self._changed:
            self._requested_at = self._clock.monotonic()
            if self._is_reading or self._clock.monotonic() < self._next_start:
                return
            self._is_reading = True
            self.attempts += 1
        try:
            threading.Thread(target=self._refresh, name=f"read-{self.name}", daemon=True).start()
        except RuntimeError:  # the system is out of threads: retry at the next interval
            self._finish(self._clock.monotonic(), None, "no thread could be started", "failed")

    def wait(self, until: float) -> Snapshot:
        """Wait for a running read, until the given monotonic time, and return the current snapshot.

        A value older than ``keep_seconds`` is withheld as outdated.
        """
        with self._changed:
            until = min(until, self._clock.monotonic() + self.patience_seconds)
            while self._is_reading:
                remaining = until - self._clock.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(min(remaining, LONGEST_WAIT_SECONDS))
            snapshot = self._snapshot
            is_late = self._is_reading
        age = self.age_seconds(snapshot)
        if age is not None and age > max(self.keep_seconds, self.interval_seconds):
            return Snapshot(error=snapshot.error or "the last good reading is too old")
        if is_late and snapshot.error is None:
            return replace(snapshot, error=STILL_BEING_READ)
        return snapshot

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def last_error(self) -> str | None:
        """Return the error of the latest finished read; None if it succeeded, or if there was none."""
        return self._snapshot.error

    def age_seconds(self, snapshot: Snapshot | None = None) -> float | None:
        """Return the age of a snapshot's value, by default the last good one; None without a value."""
        snapshot = snapshot or self._snapshot
        return max(0.0, self._clock.monotonic() - snapshot.taken_at) if snapshot.has_value else None

    def _refresh(self) -> None:
        started = self._clock.monotonic()
        try:
            value = self._read()
        except SlurmscopeError as error:
            reason = error.reason if isinstance(error, SourceError) else "failed"
            # The reason is part of the key: another one is logged although the last was logged this hour.
            key = f"{self.name} {reason}"
            logger.error("reading failed", extra=fields(key, reading=self.name, reason=reason, error=str(error)))
            self._finish(started, None, str(error), reason)
        except Exception as error:  # a bug in a reader affects its own reading only
            logger.exception("reading failed", extra=fields(self.name, reading=self.name))
            self._finish(started, None, repr(error), "bug")
        else:
            if self.last_error is not None:
                logger.info("reading works again", extra=fields(self.name, reading=self.name))
            self._finish(started, value, None, "")

    def _finish(self, started: float, value: object, error: str | None, reason: str) -> None:
        """Publish the outcome and choose the earliest time of the next read.

        After a read that takes longer than its interval, the next one waits as long as it took, so that an overloaded
        controller is never queried without a pause.
        """
        ended = self._clock.monotonic()
        with self._changed:
            if error is None:
                self._snapshot = Snapshot(value=value, version=self._snapshot.version + 1, taken_at=ended)
            else:
                self._snapshot = replace(self._snapshot, error=error)
                self.errors[reason] += 1
            self.last_reason = reason
            self.duration_seconds = ended - started
            pause_seconds = self.interval_seconds if error is None else self.retry_seconds
            self._next_start = started + pause_seconds
            if self.duration_seconds > pause_seconds > 0:
                self._next_start = ended + min(self.duration_seconds, SLOWEST_BACK_OFF_SECONDS)
                logger.warning(
                    "reading is slow, polling less often",
                    extra=fields(self.name, reading=self.name, seconds=round(self.duration_seconds, 1)),
                )
            self._is_reading = False
            self._changed.notify_all()


KEEP_SECONDS = 300.0
KEEP_INTERVALS = 3


def open_reading(
    declared: Reading,
    sources: object,
    *,
    shortest_seconds: float,
    slow_seconds: float = SLOW_SECONDS,
    patience_seconds: float = math.inf,
) -> SharedReading:
    """Make the reading of a declared one; it is read at most once in ``shortest_seconds``."""
    interval_seconds = max(shortest_seconds, declared.every_seconds * slow_seconds / SLOW_SECONDS)
    keep_seconds, retry_seconds = declared.keep_seconds, declared.retry_seconds
    return SharedReading(
        declared.name,
        declared.bind(sources),
        interval_seconds=interval_seconds,
        keep_seconds=max(KEEP_SECONDS, KEEP_INTERVALS * interval_seconds) if keep_seconds is None else keep_seconds,
        retry_seconds=None if retry_seconds is None else max(shortest_seconds, retry_seconds),
        advice=declared.advice,
        patience_seconds=patience_seconds,
    )
