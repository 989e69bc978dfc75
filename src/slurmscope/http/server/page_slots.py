# SPDX-License-Identifier: Apache-2.0
"""Limit how many pages are made and sent at the same time, without letting slow or greedy clients block others.

A client that does not read holds up its own page only: when all slots are taken, the page that has waited longest for
its client is dropped in favour of the new request. Slots are shared by address: one never gets more than three of four,
and while several addresses have taken all, those with the most pages make room.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Protocol, TypeVar

from slurmscope.http.server.wire import ClientTooSlow

STALLED_SECONDS = 0.25
"""A page that has waited this long for its client may be dropped; other clients take milliseconds for a block."""
PATIENCE_SECONDS = 1.0
"""How long a request waits for pages that are being sent."""


class Holder(Protocol):
    """Something of which there is a limited number, and the group of clients that it belongs to."""

    group: str


H = TypeVar("H", bound=Holder)


def find_rivals(holders: Collection[H], group: str, limit: int) -> list[H]:
    """Return those of which one has to go before a group gets another one; none while there is room.

    A limit of 0 means none.
    """
    counts = Counter(holder.group for holder in holders)
    if limit and counts[group] >= limit - limit // 4:
        return [holder for holder in holders if holder.group == group]
    if not limit or len(holders) < limit:
        return []
    return [holder for holder in holders if counts[holder.group] == max(counts.values())]


class PageSlots:
    """The pages that are being made or sent, up to ``limit``; 0 means no limit. Safe from any thread."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._pages: set[Page] = set()
        self._changed = threading.Condition()

    def take(self, group: str = "") -> Page | None:
        """Return an empty page for a client of a group; None if too many pages are being made."""
        page, stalled = Page(self, group), None
        with self._changed:
            until = self._clock() + PATIENCE_SECONDS
            while rivals := find_rivals(self._pages, group, self._limit):
                oldest = min(rivals, key=_waiting_since)
                stalled_at = _waiting_since(oldest) + STALLED_SECONDS
                now = self._clock()
                if stalled_at <= now:
                    self._pages.remove(oldest)
                    stalled = oldest.detach()
                    break
                # Only a client that has fewer pages than others waits for pages that are being made.
                if stalled_at > until and (now >= until or any(rival.group == group for rival in rivals)):
                    return None
                self._changed.wait(min(stalled_at, until) - now)
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

    def __init__(self, slots: PageSlots, group: str) -> None:
        self.group = group
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
