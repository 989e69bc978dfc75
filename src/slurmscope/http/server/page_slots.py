# SPDX-License-Identifier: Apache-2.0
"""Limit how many pages are made and sent at the same time, without letting slow clients block others.

A client that does not read holds up its own page only: when all slots are taken, the page that has waited longest for
its client is dropped in favour of the new request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator

from slurmscope.http.server.wire import ClientTooSlow

STALLED_SECONDS = 0.25
"""A page that has waited this long for its client may be dropped; other clients take milliseconds for a block."""
PATIENCE_SECONDS = 1.0
"""How long a request waits for pages that are being sent."""


class PageSlots:
    """The pages that are being made or sent, up to ``limit``; 0 means no limit. Safe from any thread."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._pages: set[Page] = set()
        self._changed = threading.Condition()

    def take(self) -> Page | None:
        """Return an empty page; None if too many pages are being made."""
        page, stalled = Page(self), None
        with self._changed:
            until = self._clock() + PATIENCE_SECONDS
            while self._limit and len(self._pages) >= self._limit:
                oldest = min(self._pages, key=_waiting_since)
                stalled_at = _waiting_since(oldest) + STALLED_SECONDS
                now = self._clock()
                if stalled_at <= now:
                    self._pages.remove(oldest)
                    stalled = oldest.detach()
                    break
                if stalled_at > until:
                    return None
                self._changed.wait(stalled_at - now)
            self._pages.add(page)
        _close(stalled)
        return page

    def resume(self, page: Page) -> Iterator[bytes]:
        """Mark a page as being made; raise ClientTooSlow if it was dropped."""
        with self._changed:
            if page not in self._pages:
                raise ClientTooSlow("the client read too slowly, and others needed its slot")
            page.waiting_since = None
            return page.blocks

    def pause(self, page: Page) -> None:
        with self._changed:
            page.waiting_since = self._clock()
            self._changed.notify_all()

    def release(self, page: Page) -> None:
        """Give the slot of a page back; twice is fine."""
        with self._changed:
            self._pages.discard(page)
            blocks = page.detach()
            self._changed.notify_all()
        _close(blocks)


class Page:
    """Iterate over the blocks of one page; ``waiting_since`` is None while a block is being made."""

    def __init__(self, slots: PageSlots) -> None:
        self.waiting_since: float | None = None
        self.blocks: Iterator[bytes] = iter(())
        self._slots = slots

    def start(self, blocks: Iterable[bytes]) -> bytes:
        """Set the blocks, and make and return the first one."""
        self.blocks = iter(blocks)
        return next(self, b"")

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        blocks = self._slots.resume(self)
        try:
            return next(blocks)
        finally:
            self._slots.pause(self)

    def detach(self) -> Iterator[bytes]:
        """Return the blocks and forget them, so that only one thread closes them."""
        blocks, self.blocks = self.blocks, iter(())
        return blocks

    def close(self) -> None:
        self._slots.release(self)


def _waiting_since(page: Page) -> float:
    return float("inf") if page.waiting_since is None else page.waiting_since


def _close(blocks: Iterator[bytes] | None) -> None:
    if isinstance(blocks, Generator):
        blocks.close()
