# SPDX-License-Identifier: Apache-2.0
"""Check who gets a slot when all are taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from slurmscope.http.server.page_slots import PATIENCE_SECONDS, STALLED_SECONDS, Page, PageSlots
from slurmscope.http.server.wire import ClientTooSlow
from tests.processes import until


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
    end = time.monotonic() + 2 * STALLED_SECONDS
    while time.monotonic() < end:
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


def test_client_is_waited_for_no_longer_than_it_waits() -> None:
    slots = PageSlots(1)
    assert slots.take() is not None
    began = time.monotonic()
    assert slots.take(patience_seconds=0.1) is None
    assert time.monotonic() - began < PATIENCE_SECONDS


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


def test_next_slot_is_for_the_address_that_had_one_longest_ago() -> None:
    slots, served = PageSlots(2), list[str]()
    for group in ("prometheus", "a", "b", "c"):
        page = slots.take(group)
        assert page is not None
        page.close()

    def scrape(group: str) -> None:
        page = slots.take(group)
        served.append(group)
        assert page is not None
        page.close()

    held = [slots.take(group) for group in ("x", "y")]
    waiting = [threading.Thread(target=scrape, args=(group,)) for group in ("a", "new", "b", "c", "prometheus")]
    for number, thread in enumerate(waiting, 1):
        thread.start()
        until(lambda number=number: len(slots._turns.waiting) == number)  # type: ignore[misc]
    assert held[0] is not None
    held[0].close()
    for thread in waiting:
        thread.join(30)

    assert ["prometheus", "a", "b", "c", "new"] == served


def test_page_that_ends_wakes_a_request_of_the_same_address() -> None:
    slots, woken, is_waiting = PageSlots(4), list[bool](), threading.Event()
    page, turns = slots.take("a"), slots._turns
    with turns.lock:
        places = [turns.join(group) for group in ("b", "a")]
        for place in places:
            turns.skip(place, is_skipped=True)

    def wait() -> None:
        with turns.lock:
            is_waiting.set()
            woken.append(places[1].changed.wait(30))

    thread = threading.Thread(target=wait)
    thread.start()
    assert is_waiting.wait(30)
    assert page is not None
    page.close()
    thread.join(60)

    assert [True] == woken


def test_those_who_wait_behind_others_are_not_woken_for_each_page() -> None:
    looks, addresses = list[float](), 50

    def clock() -> float:
        looks.append(time.monotonic())
        return looks[-1]

    slots = PageSlots(2, clock)
    held = [slots.take(group) for group in ("x", "y")]

    def scrape(group: str) -> None:
        while (page := slots.take(group)) is None:
            pass  # this machine is slow
        assert b"a" == page.start([b"a", b"b"])
        assert [b"b"] == list(page)
        page.close()

    waiting = [threading.Thread(target=scrape, args=(str(number),)) for number in range(addresses)]
    for thread in waiting:
        thread.start()
    until(lambda: len(slots._turns.waiting) == addresses)
    looks.clear()
    assert held[0] is not None
    held[0].close()
    for thread in waiting:
        thread.join(60)

    assert not any(thread.is_alive() for thread in waiting)
    # If each page woke all that wait, it would be thousands.
    assert len(looks) < 8 * addresses


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
