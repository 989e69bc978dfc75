# SPDX-License-Identifier: Apache-2.0
"""The child process counts what GPUs do, from the best source that each has."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from slurmscope.node.gpu.nvml import NvmlReader
from slurmscope.node.gpu.nvml_counters import COUNT_SECONDS, REACH_SECONDS, DeviceCounters
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


class Fake:
    """Be pynvml and a device without hardware counters: a gauge of 50 %, and a buffer of it."""

    def __init__(self) -> None:
        self.stamps: tuple[int, ...] = ()

    def __call__(self, name: str, *arguments: object) -> object:
        if name == "nvmlDeviceGetUtilizationRates":
            return SimpleNamespace(gpu=50, memory=10)
        if name == "nvmlDeviceGetSamples":
            return 0, [SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=80)) for at in self.stamps]
        del arguments
        return None


@pytest.mark.parametrize(("stamps", "share"), [((), 0.5), ((5, 6), 0.8)])
def test_what_a_gauge_cannot_know_is_not_counted(stamps: tuple[int, ...], share: float) -> None:
    nvml = Fake()
    nvml.stamps = stamps[:1]
    counters = DeviceCounters(None, nvml, "device", 100.0)
    nvml.stamps = stamps

    counters.count(104.0, [7])
    nvml.stamps = tuple(at + 10 for at in stamps)
    counters.count(3704.0, [7])  # nobody asked for an hour

    found = counters.describe()
    assert 4 + REACH_SECONDS == found["seconds"] == 19
    assert {"busy": share * 19, "memory_busy": 1.9} == pytest.approx(found["totals"])
    assert [[7, pytest.approx(share * 19)]] == found["processes"]


@pytest.mark.parametrize("period", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("scrape_seconds", [1.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("duty", [0.2, 0.6])
def test_gauge_sees_all_phases_of_a_load(duty: float, scrape_seconds: float, period: float) -> None:
    """A gauge of a moment, read by a child whose parent is scraped at a multiple of the load's period."""
    now = 0.0

    def call(name: str, *_: object) -> object:
        busy = 100 if now % period < duty * period else 0
        return SimpleNamespace(gpu=busy, memory=0) if name == "nvmlDeviceGetUtilizationRates" else None

    counters = DeviceCounters(None, call, "device", 0.0)
    moments = [(COUNT_SECONDS * number, True) for number in range(1, 137)]
    moments += [(scrape_seconds * number, False) for number in range(1, int(600 / scrape_seconds))]
    for now, is_due in sorted(moments):
        counters.count(now, [7], is_due=is_due)

    assert "gauge" == counters.source
    assert 136 * COUNT_SECONDS == pytest.approx(counters.describe()["seconds"])
    ((pid, busy),) = [*counters._by_pid.items()]
    assert 7 == pid
    assert duty == pytest.approx(busy / (136 * COUNT_SECONDS), abs=0.03)


def test_time_of_hardware_counters_that_were_lost_is_not_counted(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("gpm 0 1 100")
    reader = start()
    before = read(reader).counters
    driver.say("code nvmlGpmMetricsGet 3")
    time.sleep(LONG_ENOUGH_SECONDS)
    lost_at, lost = time.monotonic(), read(reader).counters
    driver.take_back("code")
    time.sleep(LONG_ENOUGH_SECONDS)
    after = read(reader).counters

    assert before
    assert before == lost
    assert after
    assert before.seconds < after.seconds <= before.seconds + time.monotonic() - lost_at
    assert 1 == pytest.approx(after.totals["busy"] / after.seconds)
