# SPDX-License-Identifier: Apache-2.0
"""Keep for a moment what takes a while to make: many people look at the same page.

One value is made at a time under each key, in the background: whoever asks meanwhile gets the old one. Only the first
one waits, and who comes when the old one is too old. That there is none is kept like any value: otherwise the time
of an answer would tell what is not there, and asking for it again and again would cost the most.
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

from slurmscope.errors import SlurmscopeError
from slurmscope.log import fields

logger = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_SECONDS = 15.0
STALE_SECONDS = 45.0
"""How old a value may be that is given while the next one is made."""
KEPT_VALUES = 256
MADE_AT_ONCE = 4
"""Values made in the background; who asks for one more waits for it."""


@dataclass(slots=True)
class _Kept(Generic[T]):
    making: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    made_at: float = -math.inf
    begun_at: float = -math.inf


class LiveCache(Generic[T]):
    """Give values by their keys, from any thread."""

    def __init__(self, make: Callable[[str], T | None], clock: Callable[[], float] = time.monotonic) -> None:
        """Take what makes a value; it returns None where there is none, and may raise."""
        self._make = make
        self._clock = clock
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(MADE_AT_ONCE)

    def __len__(self) -> int:
        """Count what is kept."""
        return len(self._kept)

    def get(self, key: str) -> T | None:
        """Return a value that is fresh, or nearly so while somebody makes a new one."""
        kept = self._place(key)
        age = self._age(kept)
        if age >= STALE_SECONDS:
            with kept.making:
                # Somebody else may have made it while we waited.
                if self._age(kept) >= FRESH_SECONDS:
                    kept.value, kept.made_at = self._make(key), self._clock()
        elif age >= FRESH_SECONDS:
            self._begin_to_renew(key, kept)
        return kept.value

    def begin(self, key: str) -> bool:
        """Tell whether who has something else to show may do so for now, while a value is made in the background.

        Only once in a while: what failed a moment ago is better asked for by :meth:`get`, which tells why.
        """
        kept = self._place(key)
        if kept.value is not None and self._age(kept) < STALE_SECONDS:
            return False
        was_tried_lately = self._clock() - kept.begun_at < STALE_SECONDS
        return (not was_tried_lately and self._begin_to_renew(key, kept)) or kept.making.locked()

    def _begin_to_renew(self, key: str, kept: _Kept[T]) -> bool:
        """Begin, unless somebody else has, or too many others are made."""
        if not self._room.acquire(blocking=False):
            return False
        if not kept.making.acquire(blocking=False):
            self._room.release()
            return False
        kept.begun_at = self._clock()
        threading.Thread(target=self._renew, args=(key, kept), name="renew", daemon=True).start()
        return True

    def _renew(self, key: str, kept: _Kept[T]) -> None:
        """Make a new value while others are given the old one; what fails is for the next who asks."""
        try:
            kept.value, kept.made_at = self._make(key), self._clock()
        except SlurmscopeError as error:
            logger.info("not renewed", extra=fields(error=str(error)))
        finally:
            kept.making.release()
            self._room.release()

    def _age(self, kept: _Kept[T]) -> float:
        return self._clock() - kept.made_at

    def _place(self, key: str) -> _Kept[T]:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            # Whatever there is and is not goes by the same rule, for the same reason as above.
            while len(self._kept) > KEPT_VALUES:
                self._kept.popitem(last=False)
            return kept
