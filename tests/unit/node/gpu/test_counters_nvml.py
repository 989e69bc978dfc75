# SPDX-License-Identifier: Apache-2.0
"""The child process counts what GPUs do, from the best source that each has."""

from __future__ import annotations

import time

import pytest

from slurmscope.node.gpu.nvml import NvmlReader
from slurmscope.node.gpu.records import Gpu
from tests.fakes.nvml.library import FakeNvml
from tests.unit.node.gpu.conftest import Start

LONG_ENOUGH_SECONDS = 0.3


def read(reader: NvmlReader) -> Gpu:
    return reader.read().devices[0]


def test_hardware_counters_count_by_kind_of_work(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 58.5", "gpm 0 2 49", "gpm 0 5 47.5", "gpm 0 7 47.5", "gpm 0 21 1.5")

    gpu = read(start())

    assert gpu.counters is not None
    seconds = gpu.counters.seconds
    assert ("gpm", True) == (gpu.counters.source, seconds >= 0.2)
    expected = {
        "busy": 0.585,
        "sm_active": 0.49,
        "tensor_active": 0.475,
        "hmma": 0.475,
        "pcie_received": 1.5 * (1 << 20),
    }
    totals = {name: total / seconds for name, total in gpu.counters.totals.items() if name != "memory_busy"}
    assert expected == pytest.approx(totals, rel=1e-4)
    assert 0.585 == pytest.approx(gpu.utilization_ratio, abs=1e-4)


def test_utilization_is_the_mean_since_the_reading_before(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 100")
    reader = start()
    first = read(reader)
    driver.say("gpm 0 1 20")
    time.sleep(LONG_ENOUGH_SECONDS)

    second = read(reader)

    assert 1.0 == first.utilization_ratio
    assert second.utilization_ratio is not None
    assert 0.2 <= second.utilization_ratio < 0.9  # the child may have counted once before the change
    assert first.counters is not None
    assert second.counters is not None
    assert first.counters.totals["busy"] < second.counters.totals["busy"]


def test_reading_at_once_repeats_the_mean_of_before(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 70")
    reader = start()
    assert [0.7, 0.7, 0.7] == [read(reader).utilization_ratio for _ in range(3)]


def test_child_counts_between_readings(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 100")
    reader = start()
    read(reader)
    counts = driver.calls()["nvmlGpmSampleGet@0"]

    deadline = time.monotonic() + 60
    while driver.calls()["nvmlGpmSampleGet@0"] == counts and time.monotonic() < deadline:
        time.sleep(0.1)

    assert driver.calls()["nvmlGpmSampleGet@0"] > counts


def test_older_gpu_counts_the_mean_of_its_samples(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("samples 0 0 60 90", "set nvmlDeviceGetUtilizationRates@0 0 25")

    gpu = read(start())

    assert gpu.counters is not None
    assert ("samples", 0.5, 0.25) == (gpu.counters.source, gpu.utilization_ratio, gpu.memory_utilization_ratio)


def test_gauge_is_the_last_resort_and_marked(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    gpu = read(start())
    assert gpu.counters is not None
    assert ("gauge", 0.1) == (gpu.counters.source, gpu.utilization_ratio)


def test_gpu_that_tells_nothing_has_no_utilization(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("code nvmlDeviceGetUtilizationRates@0 3")
    gpu = read(start())
    assert gpu.counters is not None
    assert ({}, None) == (gpu.counters.totals, gpu.utilization_ratio)


def test_hardware_counters_that_fail_later_are_not_zero(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 50")
    reader = start()
    before = read(reader)
    driver.say("code nvmlGpmSampleGet 3")
    time.sleep(LONG_ENOUGH_SECONDS)

    after = read(reader)

    assert (before.counters, 0.5) == (after.counters, after.utilization_ratio)


def test_busy_time_is_split_among_processes(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 90", "process 0 11 1", "process 0 12 1", "share 0 11 60", "share 0 12 30", "share 0 13 10")

    counters = read(start()).counters

    assert counters is not None
    # Process 13 is at work, but no longer listed.
    assert {11: 0.54, 12: 0.27} == pytest.approx(
        {pid: busy / counters.seconds for pid, busy in counters.by_pid.items()}, rel=1e-4
    )


def test_instances_have_their_own_counters(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.cut(0, 2)
    driver.say("gpm 0 1 99", "gpm 1007 1 40", "gpm 1008 1 10")

    whole, *instances = start().read().devices

    assert (None, [0.4, 0.1]) == (whole.counters, [gpu.utilization_ratio for gpu in instances])


def test_throttle_times_arrive(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("field 0 74 3000000000", "field 0 270 500000000")
    assert {"power_cap": 3.0, "hardware_thermal": 0.5} == read(start()).throttled_seconds
