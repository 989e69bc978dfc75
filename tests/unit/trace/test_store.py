# SPDX-License-Identifier: Apache-2.0
"""Check that samples expire by the sender's rate and that their number is bounded."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from slurmscope.trace.callers import Refusal
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, TraceSample
from slurmscope.trace.settings import TraceLimits
from slurmscope.trace.store import HOUR_SECONDS, TraceStore
from tests.fakes.trace_endpoint import Time


def process(job_id: int = 1, pid: int = 1, *, uid: int = 1000, host: str = "n1", **values: Any) -> TracedProcess:
    sample = TraceSample(job_id=job_id, pid=pid)._replace(**values)
    return TracedProcess(RunningJobOwner(job_id, uid, "ada"), host, "token", sample)


def always(_: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("interval", "lifetime"),
    [(10.0, 30.0), (60.0, 180.0), (0.1, 5.0), (3600.0, 900.0), (None, 36.0)],
    ids=["three intervals", "slow sender", "at least 5 s", "at most 15 min", "the rate of the settings"],
)
def test_sample_expires_after_three_intervals_of_its_sender(interval: float | None, lifetime: float) -> None:
    clock = Time()
    store = TraceStore(TraceLimits(rate=12.0), clock)
    store.put([process()._replace(sample=TraceSample(job_id=1, interval_seconds=interval))])

    clock.now += lifetime - 0.01
    assert 1 == len(store.snapshot(always))
    clock.now += 0.02
    assert () == store.snapshot(always)
    assert 0 == len(store)


def test_sender_that_goes_on_stays() -> None:
    clock = Time()
    store = TraceStore(TraceLimits(), clock)
    for _ in range(20):
        store.put([process(interval_seconds=10.0)])
        clock.now += 10
    assert 1 == len(store.snapshot(always))


def test_late_delivery_of_an_older_sample_changes_nothing() -> None:
    store = TraceStore(TraceLimits(), Time())
    store.put([process(time_seconds=20.0, memory_bytes=2.0)])
    store.put([process(time_seconds=10.0, memory_bytes=1.0)])
    assert [2.0] == [found.sample.memory_bytes for found in store.snapshot(always)]


def test_samples_of_an_ended_job_are_removed() -> None:
    store = TraceStore(TraceLimits(), Time())
    store.put([process(1), process(2)])
    assert [2] == [found.owner.job_id for found in store.snapshot(lambda job_id: job_id == 2)]
    assert 1 == len(store)


@pytest.mark.parametrize(
    "limits", [TraceLimits(processes=10), TraceLimits(processes_per_user=10), TraceLimits(processes_per_job=10)]
)
def test_excess_is_refused_as_a_whole_until_there_is_room(limits: TraceLimits) -> None:
    clock = Time()
    store = TraceStore(limits, clock)
    store.put([process(pid=pid) for pid in range(8)])

    with pytest.raises(Refusal) as refused:
        store.put([process(pid=pid) for pid in range(7, 11)])
    assert (429, "too_many") == (refused.value.status, refused.value.code)
    assert 8 == len(store)

    store.put([process(pid=pid) for pid in range(6, 10)])
    assert 10 == len(store)
    clock.now += HOUR_SECONDS
    store.put([process(pid=pid) for pid in range(100, 110)])
    assert set(range(100, 110)) == {found.sample.pid for found in store.snapshot(always)}


@pytest.mark.parametrize(
    "change",
    [
        lambda number: {"pid": number},
        lambda number: {"pid": 1 + number % 50, "command": f"c{number}"},
        lambda number: {"pid": 1 + number % 50, "rank": number},
        lambda number: {"pid": 1 + number % 50, "step": str(number)},
    ],
    ids=["processes", "commands", "ranks", "steps"],
)
def test_job_makes_no_more_new_series_in_an_hour_than_it_may_have_processes(
    change: Callable[[int], dict[str, Any]],
) -> None:
    """A hundred posts a second, each with new labels, over 40 s and several jobs of one user; others go on."""
    clock = Time()
    store = TraceStore(TraceLimits(processes_per_job=100, processes_per_user=250), clock)
    series: dict[int, set[tuple[object, ...]]] = {job_id: set() for job_id in (1, 2, 3)}
    for number in range(4000):
        for job_id in series:
            with contextlib.suppress(Refusal):
                store.put([process(job_id, interval_seconds=0.1, **change(number))])
        if number % 100 == 0:
            for found in store.snapshot(always):
                series[found.owner.job_id].add(found[1:2] + found.sample[:2] + found.sample[9:12])
        clock.now += 0.01
    # 40 s of an hour allow one more of each job, and three of the user.
    assert all(len(seen) <= 101 for seen in series.values())
    assert sum(map(len, series.values())) <= 253
    store.put([process(4, 1, uid=1001)])
    clock.now += HOUR_SECONDS
    store.put([process(1, pid, command="later") for pid in range(100)])


def test_process_that_goes_on_is_not_new() -> None:
    clock = Time()
    store = TraceStore(TraceLimits(processes_per_job=2), clock)
    for number in range(1000):
        store.put([process(pid=1, rank=0, memory_bytes=float(number)), process(pid=2, rank=1)])
        clock.now += 5


def test_limit_of_one_user_leaves_room_for_others() -> None:
    store = TraceStore(TraceLimits(processes_per_user=2), Time())
    store.put([process(1, 1), process(2, 1)])
    with pytest.raises(Refusal):
        store.put([process(3, 1)])
    store.put([process(4, 1, uid=1001)])


def test_reasons_are_a_bounded_set() -> None:
    store = TraceStore(TraceLimits(), Time())
    for number in range(100):
        store.count_refusal(f"invented-{number}")
    store.count_refusal("owner")
    assert {"malformed": 100, "owner": 1} == store.refused


def test_memory_of_a_flood_is_bounded() -> None:
    """Compare what is held after one and after ten times as many samples as there is room for."""
    store = TraceStore(TraceLimits(processes=1000, processes_per_job=1000, processes_per_user=1000), Time())

    def flood(first: int) -> int:
        for pid in range(first, first + 1000):
            try:
                store.put([process(pid=pid, memory_bytes=float(pid))])
            except Refusal:
                continue
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        full = flood(0)
        for round_ in range(1, 10):
            last = flood(1000 * round_)
    finally:
        tracemalloc.stop()
    assert last < 2 * full
    assert 1000 == len(store)
