# SPDX-License-Identifier: Apache-2.0
"""Values are read once for all threads, kept for a time, and served while they cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.cache import Cache, WaitTooLong
from slurmscope.core.errors import SourceError
from tests.fakes.trace_endpoint import Time
from tests.processes import until

GENEROUS_SECONDS = 30.0


@dataclass(slots=True)
class Source:
    """Return a new number for each reading, or fail; wait for the gate first."""

    readings: int = 0
    error: BaseException | None = None
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def read(self) -> int:
        self.readings += 1
        number = self.readings
        assert self.gate.wait(GENEROUS_SECONDS)
        if self.error is not None:
            raise self.error
        return number


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def source() -> Source:
    return Source()


def test_value_is_kept_for_its_time(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, clock=clock)
    seen = []
    for _ in range(4):
        seen.append(cache.get("a", source.read))
        clock.now += 30.0

    assert [1, 1, 2, 2] == seen


def test_time_may_depend_on_the_value(clock: Time, source: Source) -> None:
    cache = Cache[int](lambda number: 10.0 if number == 1 else float("inf"), clock=clock)
    seen = []
    for _ in range(3):
        seen.append(cache.get("a", source.read))
        clock.now += 10.0

    assert [1, 2, 2] == seen


def test_keys_have_values_of_their_own(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, clock=clock)

    assert [1, 2, 1] == [cache.get(key, source.read) for key in ("a", "b", "a")]
    assert (True, False) == ("b" in cache, "c" in cache)
    clock.now += 60.0
    assert "b" not in cache


@pytest.mark.parametrize(("retry_seconds", "readings"), [(0.0, 3), (10.0, 1)])
def test_failure_is_raised_again_until_the_retry(
    clock: Time, source: Source, retry_seconds: float, readings: int
) -> None:
    cache = Cache[int](60.0, retry_seconds=retry_seconds, clock=clock)
    source.error = SourceError("down")
    for _ in range(3):
        with pytest.raises(SourceError, match="down"):
            cache.get("a", source.read)
    assert readings == source.readings
    source.error = None
    clock.now += 10.0

    assert readings + 1 == cache.get("a", source.read)


def test_first_caller_gets_the_whole_traceback_and_it_does_not_grow(source: Source) -> None:
    cache = Cache[int](60.0, retry_seconds=10.0)
    source.error = SourceError("down")
    depths = []
    for _ in range(3):
        with pytest.raises(SourceError) as caught:
            cache.get("a", source.read)
        depths.append([entry.name for entry in caught.traceback])

    assert "read" == depths[0][-1]
    assert "read" not in depths[1]
    assert depths[1] == depths[2]


def test_old_value_is_served_while_reading_fails(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, retry_seconds=10.0, serves_old=True, clock=clock)
    cache.get("a", source.read)
    source.error = SourceError("down")
    seen = []
    for _ in range(5):
        clock.now += 60.0
        seen += [cache.get("a", source.read), cache.get("a", source.read)]
    assert ([1] * 10, 6) == (seen, source.readings)
    source.error = None
    clock.now += 10.0

    assert 7 == cache.get("a", source.read)


def test_failure_without_an_old_value_is_raised(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, retry_seconds=10.0, serves_old=True, clock=clock)
    source.error = SourceError("down")
    for _ in range(2):
        with pytest.raises(SourceError):
            cache.get("a", source.read)
        clock.now += 10.0
    source.error = None

    assert 3 == cache.get("a", source.read)


def test_interruption_is_never_hidden_by_an_old_value(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, serves_old=True, clock=clock)
    cache.get("a", source.read)
    clock.now += 60.0
    source.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cache.get("a", source.read)


@pytest.mark.parametrize("error", [None, SourceError("down")])
def test_threads_share_one_reading_and_its_failure(source: Source, error: SourceError | None) -> None:
    cache = Cache[int](60.0)
    source.gate.clear()
    source.error = error
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(cache.get, "a", source.read) for _ in range(8)]
        until(lambda: source.readings == 1)
        # Another key does not wait for it.
        assert 5 == cache.get("b", lambda: 5)
        source.gate.set()
        results = [future.exception(GENEROUS_SECONDS) or future.result() for future in futures]

    assert [error or 1] * 8 == results
    assert 1 == source.readings


def test_others_get_the_old_value_while_one_thread_reads(clock: Time, source: Source) -> None:
    cache = Cache[int](60.0, serves_old=True, clock=clock)
    cache.get("a", source.read)
    clock.now += 60.0
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(cache.get, "a", source.read)
        until(lambda: source.readings == 2)
        assert [1, 1] == [cache.get("a", source.read) for _ in range(2)]
        source.gate.set()
        assert 2 == reader.result(GENEROUS_SECONDS)

    assert 2 == cache.get("a", source.read)


def test_wait_for_another_thread_is_limited(source: Source) -> None:
    cache = Cache[int](60.0, wait_seconds=0.01)
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(cache.get, "a", source.read)
        until(lambda: source.readings == 1)
        with pytest.raises(WaitTooLong):
            cache.get("a", source.read)
        source.gate.set()
        # The thread that reads is not limited.
        assert 1 == reader.result(GENEROUS_SECONDS)


def test_expired_values_are_dropped_before_those_used_longest_ago(clock: Time) -> None:
    cache = Cache[float](lambda seconds: seconds, max_keys=2, clock=clock)
    cache.get("slow", lambda: 60.0)
    for number in range(10):
        cache.get(number, lambda: 0.0)
    assert "slow" in cache
    cache.get("second", lambda: 60.0)
    cache.get("slow", lambda: 60.0)
    cache.get("third", lambda: 60.0)

    assert (True, False, True, 2) == ("slow" in cache, "second" in cache, "third" in cache, len(cache))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40))), st.integers(1, 4))
def test_no_value_is_older_than_its_time_and_no_more_keys_are_kept(
    events: list[tuple[Hashable, int]], max_keys: int
) -> None:
    clock = Time()
    cache = Cache[tuple[Hashable, float]](60.0, max_keys=max_keys, clock=clock)
    read_at: dict[Hashable, float] = {}
    for key, pause in events:
        clock.now += pause

        def read(key: Hashable = key) -> tuple[Hashable, float]:
            # Without eviction it is read only because it has expired.
            assert max_keys < 4 or clock.now - read_at.get(key, -60.0) >= 60.0
            read_at[key] = clock.now
            return key, clock.now

        found, made_at = cache.get(key, read)
        assert found == key
        assert 0 <= clock.now - made_at < 60
        assert len(cache) <= max_keys
