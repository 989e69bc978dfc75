# SPDX-License-Identifier: Apache-2.0
"""Token buckets allow a burst and then their rate, for each key on its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.rate_limit import TokenBuckets
from tests.fakes.trace_endpoint import Time


def test_burst_is_allowed_at_once_and_then_the_rate() -> None:
    clock = Time()
    buckets = TokenBuckets(2.0, 3, clock=clock)
    assert [0.0, 0.0, 0.0, 0.5, 0.5] == [buckets.take() for _ in range(5)]
    clock.now += 0.5
    assert [0.0, 0.5] == [buckets.take() for _ in range(2)]
    clock.now += 3600
    assert [0.0, 0.0, 0.0, 0.5] == [buckets.take() for _ in range(4)]


def test_each_key_has_its_own_bucket() -> None:
    buckets = TokenBuckets(1.0, 1, clock=Time())
    assert [0.0, 1.0, 0.0] == [buckets.take(key) for key in ("a", "a", "b")]


def test_refusals_cost_no_token() -> None:
    clock = Time()
    buckets = TokenBuckets(1.0, 2, clock=clock)
    for _ in range(100):
        buckets.take("a")
    clock.now += 1.0
    assert 0.0 == buckets.take("a")


def test_rate_of_zero_means_no_limit() -> None:
    buckets = TokenBuckets(0.0, 1)
    assert {0.0} == {buckets.take("a") for _ in range(1000)}
    assert 0 == len(buckets)


def test_bucket_is_dropped_once_it_is_full() -> None:
    clock = Time()
    buckets = TokenBuckets(0.1, 2, clock=clock)
    buckets.take("a")
    clock.now += 9.0
    buckets.take("b")
    assert 2 == len(buckets)
    clock.now += 2.0
    buckets.take("b")
    assert 1 == len(buckets)


def test_what_is_spent_beyond_the_burst_is_owed_up_to_a_limit() -> None:
    clock = Time()
    buckets = TokenBuckets(2.0, 3, clock=clock)
    buckets.spend(8.0, "b", most_debt=1.0)
    buckets.spend(8.0, "a")
    assert [-5.0, -1.0, 3.0] == [buckets.left(key) for key in "abc"]
    clock.now += 3.0
    assert [1.0, 3.0] == [buckets.left(key) for key in "ab"]
    # The one that is full again is forgotten, but not the one that owed more.
    buckets.take("c")
    assert 2 == len(buckets)


def test_beyond_the_limit_the_key_used_longest_ago_is_dropped() -> None:
    buckets = TokenBuckets(1.0, 1, clock=Time(), max_keys=2)
    for key in ("a", "b", "a", "c"):
        buckets.take(key)
    assert 2 == len(buckets)
    assert [1.0, 1.0, 0.0] == [buckets.take(key) for key in ("a", "c", "b")]


@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8))))
def test_no_period_has_more_than_the_burst_and_its_rate(rate: int, burst: int, events: list[tuple[str, int]]) -> None:
    clock = Time()
    buckets = TokenBuckets(float(rate), burst, clock=clock)
    taken: dict[str, list[float]] = {"a": [], "b": []}
    for key, eighths in events:
        clock.now += eighths / 8
        wait_seconds = buckets.take(key)
        if wait_seconds == 0.0:
            taken[key].append(clock.now)
        else:
            # It was refused only because the bucket was empty.
            assert 0 < wait_seconds <= 1 / rate
            assert len(taken[key]) >= burst
    for times in taken.values():
        for first, start in enumerate(times):
            for count, end in enumerate(times[first:], 1):
                assert count <= burst + rate * (end - start) + 1e-6


def test_promised_token_is_there_after_the_wait() -> None:
    clock = Time()
    buckets = TokenBuckets(0.3, 1, clock=clock)
    buckets.take("a")
    clock.now += buckets.take("a") + 1e-9
    assert 0.0 == buckets.take("a")


@pytest.mark.parametrize("threads", [8])
def test_threads_share_one_burst(threads: int) -> None:
    buckets = TokenBuckets(1.0, 100, clock=Time())
    with ThreadPoolExecutor(threads) as pool:
        waits = list(pool.map(buckets.take, ["a"] * 1000))
    assert 100 == waits.count(0.0)
