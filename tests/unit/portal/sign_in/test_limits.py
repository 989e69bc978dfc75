# SPDX-License-Identifier: Apache-2.0
"""Failures are counted by address, for a while, in a table that cannot grow (W5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.portal.sign_in.limits import SignInLimits
from tests.fakes.sign_in import FakeClock


def test_address_waits_until_the_oldest_of_five_failures_is_a_quarter_of_an_hour_ago() -> None:
    clock = FakeClock(0.0)
    limits = SignInLimits(clock=clock)
    waits = []
    for _ in range(6):
        waits.append(limits.wait_seconds("a"))
        limits.fail("a")
        clock.seconds += 100

    # The last five failures were at 100, 200, 300, 400 and 500; now is 600.
    assert [0, 0, 0, 0, 0, 400] == waits
    assert 400 == limits.wait_seconds("a")
    assert 0 == limits.wait_seconds("b")
    clock.seconds = 999.5
    assert 1 == limits.wait_seconds("a")
    clock.seconds = 1000.0
    assert 0 == limits.wait_seconds("a")


def test_old_addresses_are_forgotten() -> None:
    clock = FakeClock(0.0)
    limits = SignInLimits(clock=clock)
    limits.fail("a")
    clock.seconds = 10.0
    limits.fail("b")
    clock.seconds = 905.0
    limits.fail("c")

    assert 2 == len(limits)
    clock.seconds = 5000.0
    limits.fail("d")
    assert 1 == len(limits)


def test_full_table_forgets_who_failed_longest_ago() -> None:
    limits = SignInLimits(clock=FakeClock(), failure_limit=1, table_limit=2)
    for peer in ("a", "b", "a", "c"):
        limits.fail(peer)

    assert 2 == len(limits)
    assert (True, False, True) == tuple(limits.wait_seconds(peer) > 0 for peer in "abc")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400))))
def test_limits_agree_with_a_list_of_all_failures(events: list[tuple[str, int]]) -> None:
    clock, log = FakeClock(0.0), list[tuple[str, float]]()
    limits = SignInLimits(clock=clock)
    for peer, pause in events:
        clock.seconds += pause
        recent = [at for who, at in log if who == peer and at > clock.seconds - 900]
        assert (len(recent) >= 5) == (limits.wait_seconds(peer) > 0)
        limits.fail(peer)
        log.append((peer, clock.seconds))
