# SPDX-License-Identifier: Apache-2.0
"""Readings are shared, throttled, and outlive a failing source."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandRefused, CommandTimedOut
from slurmscope.core.log import RepeatFilter
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import reading_families
from tests.fakes.exporters import open_readings


class FakeTime:
    """A clock that is moved by hand; waiting on it lets real threads run."""

    def __init__(self) -> None:
        self.now = 1000.0

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now, wall=lambda: self.now)


class FakeSource:
    """A source whose results are set by tests."""

    def __init__(self) -> None:
        self.reads = 0
        self.value: object = "first"
        self.error: Exception | None = None

    def read(self) -> object:
        self.reads += 1
        if self.error:
            raise self.error
        return self.value


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


def make(
    source: FakeSource, fake_time: FakeTime, keep_seconds: float = 300.0, retry_seconds: float | None = None
) -> SharedReading:
    return SharedReading(
        "jobs",
        source.read,
        interval_seconds=10,
        clock=fake_time.clock,
        keep_seconds=keep_seconds,
        retry_seconds=retry_seconds,
    )


def get(reading: SharedReading) -> object:
    reading.request()
    return reading.wait(float("inf")).value


def test_source_is_read_once_per_interval(source: FakeSource, fake_time: FakeTime) -> None:
    reading = make(source, fake_time)

    for _ in range(5):
        assert "first" == get(reading)
    assert 1 == source.reads
    fake_time.now += 10
    source.value = "second"
    assert "second" == get(reading)
    assert 2 == source.reads


@pytest.mark.parametrize("value", [None, (), 0])
def test_empty_answers_are_throttled_too(source: FakeSource, fake_time: FakeTime, value: object) -> None:
    source.value = value
    reading = make(source, fake_time)

    for _ in range(5):
        get(reading)

    assert 1 == source.reads


def test_errors_are_throttled_and_counted_by_reason(source: FakeSource, fake_time: FakeTime) -> None:
    source.error = CommandTimedOut(["squeue"], "squeue was killed after 8 s")
    reading = make(source, fake_time)

    for _ in range(5):
        get(reading)

    assert 1 == source.reads
    assert {"timeout": 1} == reading.errors
    assert "squeue was killed after 8 s" == reading.wait(0).error


def test_each_reason_of_failures_is_logged_once_an_hour_and_their_end(
    source: FakeSource, fake_time: FakeTime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caplog.handler, "filters", [RepeatFilter().is_wanted])
    reading = make(source, fake_time)
    timeout, refused = CommandTimedOut(["squeue"], "too slow"), CommandRefused(["squeue"], "no permission")
    with caplog.at_level(logging.INFO):
        for source.error in (timeout, timeout, refused, timeout, None, None):
            get(reading)
            fake_time.now += 10

    logged = [record.__dict__["fields"].get("reason", record.message) for record in caplog.records]
    assert ["timeout", "refused", "reading works again"] == logged


def test_last_good_value_outlives_a_failure_and_then_is_withheld(source: FakeSource, fake_time: FakeTime) -> None:
    reading = make(source, fake_time, keep_seconds=60)
    get(reading)
    source.error = ValueError("a bug in the reader")
    fake_time.now += 30

    get(reading)
    snapshot = reading.wait(0)

    assert ("first", 1) == (snapshot.value, snapshot.version)
    assert snapshot.error is not None
    assert 30.0 == reading.age_seconds()
    fake_time.now += 31
    assert not reading.wait(0).has_value


def test_recovered_source_is_served_again(source: FakeSource, fake_time: FakeTime) -> None:
    reading = make(source, fake_time)
    source.error = CommandTimedOut(["squeue"], "slow")
    get(reading)
    source.error = None
    fake_time.now += 10

    assert "first" == get(reading)
    assert reading.wait(0).error is None


def test_a_clock_set_back_gives_no_negative_age(source: FakeSource, fake_time: FakeTime) -> None:
    reading = make(source, fake_time)
    get(reading)
    fake_time.now -= 3600

    assert 0.0 == reading.age_seconds()


def test_age_of_a_source_that_nobody_requests_any_more_is_no_fault_of_it(
    source: FakeSource, fake_time: FakeTime
) -> None:
    reading = make(source, fake_time)

    def ages() -> list[object]:
        found = {family.metric.name: dict(family.samples) for family in reading_families({"jobs": reading})}
        return list(found["slurmscope_reading_age_seconds"].values())

    get(reading)
    fake_time.now += 300
    assert [300] == ages()
    fake_time.now += 1
    assert [] == ages()
    # It is requested, and fails: that is its fault.
    source.error = ValueError("a bug in the reader")
    get(reading)
    assert [301] == ages()


def test_parallel_callers_share_one_read() -> None:
    gate = threading.Event()
    reads = []

    def slow() -> str:
        reads.append(1)
        gate.wait(30)
        return "shared"

    reading = SharedReading("jobs", slow, interval_seconds=3600)
    got: list[object] = []
    callers = [threading.Thread(target=lambda: got.append(get(reading))) for _ in range(50)]
    for caller in callers:
        caller.start()
    gate.set()
    for caller in callers:
        caller.join(30)

    assert ["shared"] * 50 == got
    assert 1 == len(reads)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_caller_gets_the_last_good_value_at_its_deadline_while_a_slow_read_goes_on() -> None:
    gate = threading.Event()
    values = iter(["first", "second"])
    reading: SharedReading

    def read() -> str:
        value = next(values)
        if value == "second":
            gate.wait(30)
        return value

    reading = SharedReading("jobs", read, interval_seconds=0.0)
    assert "first" == get(reading)
    reading.request()
    snapshot = reading.wait(time.monotonic() + 0.05)

    assert ("first", "still being read") == (snapshot.value, snapshot.error)
    gate.set()
    until(lambda: reading.wait(0).value == "second")


def test_slow_source_rests_as_long_as_it_worked(source: FakeSource, fake_time: FakeTime) -> None:
    def slow() -> object:
        fake_time.now += 40
        return source.read()

    reading = SharedReading("jobs", slow, interval_seconds=10, clock=fake_time.clock)
    get(reading)
    fake_time.now += 39
    get(reading)
    assert 1 == source.reads
    fake_time.now += 1
    get(reading)
    assert 2 == source.reads


def test_several_sources_are_read_in_parallel() -> None:
    barrier = threading.Barrier(2, timeout=30)
    readings = open_readings(*(SharedReading(name, barrier.wait, interval_seconds=10) for name in ("jobs", "nodes")))

    snapshots = readings.read(["nodes", "jobs", "jobs"], time.monotonic() + 60)

    assert {"jobs": None, "nodes": None} == {name: snapshot.error for name, snapshot in snapshots.items()}
