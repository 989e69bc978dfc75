# SPDX-License-Identifier: Apache-2.0
"""Keep requests that were not accepted yet, limited by size and age."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from slurmscope.log import fields
from slurmscope.outputs.remote_write.encoding import WriteRequest

logger = logging.getLogger(__name__)

_SETTINGS = {"age": "--output.remote-write-max-age", "size": "--output.remote-write-buffer"}


class BufferedRequest(NamedTuple):
    """Hold a request and the monotonic time at which it was made."""

    request: WriteRequest
    made_at: float


class RequestBuffer:
    """Queue requests in order; thread-safe."""

    def __init__(self, *, max_bytes: int, max_age_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Set the bounds; beyond them the oldest requests are dropped."""
        self.dropped: Counter[str] = Counter()
        """Dropped samples by reason: size or age."""
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._queue: deque[BufferedRequest] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def bytes(self) -> int:
        """Return the size of the queued requests."""
        return self._bytes

    @property
    def samples(self) -> int:
        """Return the number of queued samples."""
        with self._changed:
            return sum(entry.request.samples for entry in self._queue)

    def add(self, request: WriteRequest) -> None:
        """Append a new request."""
        with self._changed:
            self._queue.append(BufferedRequest(request, self._clock()))
            self._bytes += len(request.body)
            self._drop_excess()
            self._changed.notify()

    def take(self) -> BufferedRequest | None:
        """Remove and return the oldest request, and wait for one; None when there is none and will be none."""
        with self._changed:
            while True:
                self._drop_excess()
                if self._queue:
                    entry = self._queue.popleft()
                    self._bytes -= len(entry.request.body)
                    return entry
                if self._is_closed:
                    return None
                self._changed.wait()

    def give_back(self, entry: BufferedRequest) -> None:
        """Put a request back that was not accepted; it is the oldest again."""
        with self._changed:
            self._queue.appendleft(entry)
            self._bytes += len(entry.request.body)
            self._drop_excess()

    def close(self) -> None:
        """Let ``take`` end when the queue is empty."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _drop_excess(self) -> None:
        oldest = self._clock() - self._max_age_seconds
        while self._queue and (self._is_too_large() or self._queue[0].made_at < oldest):
            entry = self._queue.popleft()
            reason = "age" if entry.made_at < oldest else "size"
            self._bytes -= len(entry.request.body)
            self.dropped[reason] += entry.request.samples
            described = fields(reason, setting=_SETTINGS[reason], samples=entry.request.samples)
            logger.warning("samples that were not sent yet are dropped", extra=described)

    def _is_too_large(self) -> bool:
        """Return whether the oldest request must go; one that is alone may be larger than the buffer."""
        return self._bytes > self._max_bytes and len(self._queue) > 1
