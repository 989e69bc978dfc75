# SPDX-License-Identifier: Apache-2.0
"""A group that waits a hundred times delays no other by more than one turn."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slurmscope.http.server.page_slots import MANY_GROUPS, TurnLock
from tests.leftovers import nothing_left
from tests.processes import until


def order_of(lock: TurnLock, groups: Sequence[str]) -> list[str]:
    """Return the order in which waiting groups get a lock that is held; they come in the given one."""
    served: list[str] = []

    def work(group: str) -> None:
        assert lock.acquire(group, 60)
        served.append(group)
        lock.release()

    assert lock.acquire("first", 0)
    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: len(lock._turns.waiting) == number)  # type: ignore[misc]
    lock.release()
    for thread in threads:
        thread.join(60)
    return served


def test_groups_take_turns_and_within_a_group_the_first_is_first() -> None:
    lock = TurnLock()
    with nothing_left():
        assert ["hostile", "prometheus", *["hostile"] * 19] == order_of(lock, [*["hostile"] * 20, "prometheus"])
        # Now it is the one that had it longest ago; one that is new is not before those that had it.
        assert ["prometheus", "hostile", "other"] == order_of(lock, ["hostile", "prometheus", "other"])
        assert ["prometheus", "hostile", "new", "newer"] == order_of(lock, ["new", "newer", "prometheus", "hostile"])


def test_waiting_ends_in_time_and_leaves_nothing() -> None:
    lock = TurnLock()
    assert lock.acquire("a", 0)
    assert not lock.acquire("b", 0.01)
    lock.release()
    assert lock.acquire("b", 0)
    lock.release()


def test_groups_are_not_remembered_for_ever() -> None:
    lock = TurnLock()
    for number in range(3 * MANY_GROUPS):
        assert lock.acquire(str(number), 0)
        lock.release()
    assert len(lock._turns) == MANY_GROUPS
