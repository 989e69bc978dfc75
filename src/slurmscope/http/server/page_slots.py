# SPDX-License-Identifier: Apache-2.0
"""Limit how many pages are made and sent at the same time, without letting slow or greedy clients block others.

A client that does not read holds up its own page only: when all slots are taken, the page that has waited longest for
its client is dropped in favour of the new request. Slots are shared by address: one never gets more than three of four,
and while several addresses have taken all, those with the most pages make room, and of those that wait the one is next
that was served longest ago.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Protocol, TypeVar

from slurmscope.http.server.wire import ClientTooSlow

STALLED_SECONDS = 0.25
"""A page that has waited this long for its client may be dropped; other clients take milliseconds for a block."""
PATIENCE_SECONDS = 3.0
"""How long a request waits for pages that are being made or sent, unless it says for how long its client does."""
MANY_GROUPS = 1000


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
    most = max(counts.values())
    return [holder for holder in holders if counts[holder.group] == most]


class Place:
    """A request that waits: of which group, and since when."""

    def __init__(self, number: int, group: str, lock: threading.Lock) -> None:
        self.number = number
        self.group = group
        self.changed = threading.Condition(lock)


class Turns:
    """Decide who is next of those that wait: a group that was served longest ago, or has waited for so long.

    A plain lock goes to any waiting thread: a client with thirty requests would get it thirty times before another.
    Only the next one is woken: if a hundred were, they would use the time in which their pages could be made.
    Every method needs the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: set[Place] = set()
        self._skipped: set[Place] = set()
        self._numbers = itertools.count(1)
        self._last: OrderedDict[str, int] = OrderedDict()
        self._next: Place | None = None

    def __len__(self) -> int:
        """Count the groups that are remembered."""
        return len(self._last)

    def join(self, group: str) -> Place:
        """Begin to wait."""
        place = Place(next(self._numbers), group, self.lock)
        self.skip(place, is_skipped=False)
        return place

    def skip(self, place: Place, *, is_skipped: bool) -> None:
        """Let others pass a request, or not any more."""
        if is_skipped != (place in self.waiting):
            return
        self._next = None
        if is_skipped:
            self.waiting.remove(place)
            self._skipped.add(place)
            self.wake()
        else:
            self._skipped.discard(place)
            self.waiting.add(place)

    def leave(self, place: Place, *, is_served: bool) -> None:
        """Wait no longer."""
        if is_served:
            self._last[place.group] = next(self._numbers)
            self._last.move_to_end(place.group)
            if len(self._last) > MANY_GROUPS:
                self._last.popitem(last=False)
        self.waiting.discard(place)
        self._skipped.discard(place)
        self._next = None
        self.wake()

    def is_next(self, place: Place) -> bool:
        return place is self._find_next()

    def wake(self) -> None:
        """Let the next one see whether it can be served now."""
        if (place := self._find_next()) is not None:
            place.changed.notify()

    def wake_skipped(self, group: str) -> None:
        """Let one that others pass, of this group if there is one, see whether it can be served; if no other waits."""
        if not self.waiting and self._skipped:
            min(self._skipped, key=lambda place: (place.group != group, place.number)).changed.notify()

    def _find_next(self) -> Place | None:
        if self._next is None:
            # Ever new groups, which were never served, must not be before those that were.
            ranked = (((self._last.get(place.group, place.number), place.number), place) for place in self.waiting)
            self._next = min(ranked, default=(None, None))[1]
        return self._next


class PageSlots:
    """The pages that are being made or sent, up to ``limit``; 0 means no limit. Safe from any thread."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._pages: set[Page] = set()
        self._turns = Turns()

    def take(self, group: str = "", patience_seconds: float = PATIENCE_SECONDS) -> Page | None:
        """Return an empty page for a client of a group; None if too many pages are being made for so long."""
        page, stalled = Page(self, group), None
        with self._turns.lock:
            place, is_served = self._turns.join(group), False
            try:
                is_served, stalled = self._wait_for_room(place, self._clock() + patience_seconds)
            finally:
                self._turns.leave(place, is_served=is_served)
            if not is_served:
                return None
            self._pages.add(page)
        _close(stalled)
        return page

    def _wait_for_room(self, place: Place, until: float) -> tuple[bool, Iterator[bytes] | None]:
        """Return whether there is room for a page, and the blocks of the one that had to go for it."""
        while True:
            rivals = find_rivals(self._pages, place.group, self._limit)
            is_greedy = any(rival.group == place.group for rival in rivals)
            self._turns.skip(place, is_skipped=is_greedy)
            # A greedy one waits for its own pages, and no other one waits for it.
            is_next = is_greedy or self._turns.is_next(place)
            if not rivals and is_next:
                return True, None
            oldest, now = min(rivals, key=_waiting_since, default=None), self._clock()
            stalled_at = _waiting_since(oldest) + STALLED_SECONDS if oldest else float("inf")
            if oldest and is_next and stalled_at <= now:
                self._pages.remove(oldest)
                return True, oldest.detach()
            # Only a client that has fewer pages than others waits for pages that are being made.
            if now >= until or (is_greedy and stalled_at > until):
                return False, None
            # The next one is woken when a page ends, and not with each block that is made of one.
            place.changed.wait((min(stalled_at, now + STALLED_SECONDS, until) if is_next else until) - now)

    def resume(self, page: Page) -> Iterator[bytes]:
        """Mark a page as being made; raise ClientTooSlow if it was dropped."""
        with self._turns.lock:
            if page not in self._pages:
                raise ClientTooSlow("the client read too slowly, and others needed its slot")
            page.waiting_since = None
            return page.blocks

    def pause(self, page: Page) -> None:
        with self._turns.lock:
            page.waiting_since = self._clock()

    def release(self, page: Page) -> None:
        """Give the slot of a page back; twice is fine."""
        with self._turns.lock:
            self._pages.discard(page)
            blocks = page.detach()
            self._turns.wake()
            self._turns.wake_skipped(page.group)
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


class TurnLock:
    """Be held by one thread at a time; groups of those that wait take turns."""

    def __init__(self) -> None:
        self._is_held = False
        self._turns = Turns()

    def acquire(self, group: str, timeout_seconds: float) -> bool:
        """Return True when it is held by this thread, False if it was not its turn in time."""
        with self._turns.lock:
            place, is_served = self._turns.join(group), False
            try:
                is_served = place.changed.wait_for(
                    lambda: not self._is_held and self._turns.is_next(place), timeout_seconds
                )
                self._is_held = self._is_held or is_served
            finally:
                self._turns.leave(place, is_served=is_served)
            return is_served

    def release(self) -> None:
        """Give it to the next one."""
        with self._turns.lock:
            self._is_held = False
            self._turns.wake()
