# SPDX-License-Identifier: Apache-2.0
"""Check the token buckets of posts against hand-worked numbers."""

from __future__ import annotations

import pytest

from slurmscope.trace.callers import RateBuckets
from tests.fakes.trace_endpoint import Time


def test_bucket_holds_two_seconds_and_fills_at_its_rate() -> None:
    clock = Time()
    buckets = RateBuckets(5, clock=clock)
    assert [0.0] * 10 == [buckets.take("a") for _ in range(10)]
    assert pytest.approx(0.2) == buckets.take("a")
    assert 0.0 == buckets.take("b")
    clock.now += 0.2
    assert 0.0 == buckets.take("a")
    assert buckets.take("a") > 0


def test_refused_post_costs_no_token() -> None:
    clock = Time()
    buckets = RateBuckets(1, clock=clock)
    for _ in range(100):
        buckets.take("a")
    clock.now += 1.0
    assert 0.0 == buckets.take("a")


def test_slow_rate_is_not_forgotten_before_the_bucket_is_full() -> None:
    clock = Time()
    buckets = RateBuckets(0.1, clock=clock)
    assert 0.0 == buckets.take("a")
    clock.now += 9.0
    buckets.take("b")
    assert pytest.approx(1.0) == buckets.take("a")


def test_zero_means_no_limit() -> None:
    buckets = RateBuckets(0)
    assert {0.0} == {buckets.take("a") for _ in range(1000)}


def test_number_of_buckets_is_bounded() -> None:
    buckets = RateBuckets(1, clock=Time(), limit=10)
    for key in range(1000):
        buckets.take(key)
    assert 10 == len(buckets._buckets)
