# SPDX-License-Identifier: Apache-2.0
"""Check who gets a slot when all are taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from slurmscope.http.server.page_slots import STALLED_SECONDS, Page, PageSlots
from slurmscope.http.server.wire import ClientTooSlow


def started(slots: PageSlots) -> Page:
    page = slots.take()
    assert page is not None
    assert b"a" == page.start([b"a", b"b", b"c"])
    return page


def test_page_that_waited_longest_is_dropped() -> None:
    slots = PageSlots(2)
    first, second = started(slots), started(slots)
    assert b"b" == next(first)
    third = started(slots)
    assert b"c" == next(first)
    assert [b"b", b"c"] == list(third)
    with pytest.raises(ClientTooSlow):
        next(second)


def test_page_that_is_being_read_is_not_dropped() -> None:
    slots = PageSlots(1)
    page, others = started(slots), list[Page | None]()
    thread = threading.Thread(target=lambda: others.append(slots.take()))
    page.blocks = (b"x" for _ in iter(int, 1))
    thread.start()
    until = time.monotonic() + 2 * STALLED_SECONDS
    while time.monotonic() < until:
        assert b"x" == next(page)
        time.sleep(STALLED_SECONDS / 50)
    page.close()
    thread.join(30)
    assert others != [None]
    assert 1 == len(others)


def test_dropped_page_is_closed_once_and_at_once() -> None:
    closed = []

    def blocks() -> Iterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(threading.get_ident())

    slots = PageSlots(1)
    page = slots.take()
    assert page is not None
    page.start(blocks())
    assert slots.take() is not None
    assert [threading.get_ident()] == closed
    page.close()
    page.close()
    assert 1 == len(closed)


def test_slot_is_refused_while_every_page_is_being_made() -> None:
    slots = PageSlots(1)
    page = slots.take()
    assert page is not None
    assert slots.take() is None
    page.close()
    assert slots.take() is not None


def test_one_address_leaves_slots_for_others() -> None:
    slots = PageSlots(4)
    first, second, third = (slots.take("a") for _ in range(3))

    assert None not in {first, second, third}
    assert slots.take("a") is None
    assert slots.take("b") is not None


def test_address_without_pages_waits_for_those_of_the_busiest_address() -> None:
    slots, taken = PageSlots(4), list[Page | None]()
    pages = [slots.take(group) for group in ("a", "a", "a", "b")]
    thread = threading.Thread(target=lambda: taken.append(slots.take("c")))
    thread.start()
    assert slots.take("a") is None
    assert pages[0] is not None
    pages[0].close()
    thread.join(30)

    assert [True] == [page is not None for page in taken]


def test_pages_of_the_busiest_address_are_dropped_first() -> None:
    slots = PageSlots(4)
    single = slots.take("b")
    assert single is not None
    assert b"a" == single.start([b"a", b"b"])  # it waits longest, but its address has only this one
    greedy = [slots.take("a") for _ in range(3)]
    for page in greedy:
        assert page is not None
        page.start([b"a", b"b"])
    time.sleep(STALLED_SECONDS)

    assert slots.take("c") is not None
    assert b"b" == next(single)
