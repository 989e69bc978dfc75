# SPDX-License-Identifier: Apache-2.0
"""Errors that the driver reports arrive once each, with the health of each GPU."""

from __future__ import annotations

import time

import pytest

from tests.fakes.nvml.library import FakeNvml
from tests.unit.node.gpu.conftest import Start


def test_errors_arrive_once(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(2)
    reader = start()
    assert () == reader.read().xids
    before = time.time()
    driver.say("xid 1 31", "xid 0 79", "xid 1 31")

    found = reader.read().xids

    uuids = [f"GPU-0000000{gpu}-0000-4000-8000-000000000000" for gpu in (1, 0, 1)]
    assert list(zip(uuids, (31, 79, 31), strict=True)) == [(one.uuid, one.xid) for one in found]
    assert all(before - 1 <= one.at_seconds <= time.time() + 1 for one in found)
    assert () == reader.read().xids


def test_error_of_an_instance_names_it(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.cut(0, 2)
    driver.say("xid 0 43 8")
    assert [(43, 8)] == [(one.xid, one.gpu_instance) for one in start().read().xids]


def test_driver_without_events_has_no_errors(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("code nvmlEventSetCreate 3", "xid 0 31")
    sample = start().read()
    assert ((), None) == (sample.xids, sample.devices[0].problem)


def test_error_of_a_gpu_that_is_lost_arrives(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(2)
    reader = start()
    reader.read()
    driver.say("code nvmlDeviceGetHandleByIndex@1 15", "code nvmlDeviceGetUUID@1 15", "xid 1 79")

    sample = reader.read()

    assert [79] == [one.xid for one in sample.xids]
    assert [None, "lost"] == [gpu.problem and gpu.problem.value for gpu in sample.devices]


def test_health_arrives_and_what_is_not_reported_is_absent(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("field 0 4 2", "field 0 230 1", "field 0 94 5", "field 0 45 7")
    expected = {"ecc_uncorrected": 2.0, "recovery_action": 1.0, "pcie_replays": 5.0, "nvlink_crc_data": 7.0}
    assert expected == start().read().devices[0].health


def test_worst_link_gives_the_error_ratio(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(2)
    # nvml.h: the mantissa from bit 8, the power of ten below. So links 0 and 3 have 2e-12 and 7e-9.
    driver.say(
        f"field 0 222 {2 << 8 | 12}", f"field 0 3222 {7 << 8 | 9}", "field 0 220 255", f"field 1 17220 {15 << 8}"
    )
    of_first, of_second = (device.health for device in start().read().devices)
    assert {"link_ratio_symbol": pytest.approx(7e-9), "link_ratio_effective": 0.0} == of_first
    assert {} == of_second  # 15 errors per bit


# Two bits each, 1 for yes and 2 for no: bandwidth is degraded, routes recover, routes are broken.
@pytest.mark.parametrize(
    ("state", "mask", "expected"),
    [
        (3, 0b10_10_10, {"fabric_state": 3.0, "fabric_degraded": 0.0}),
        (3, 0b10_10_01, {"fabric_state": 3.0, "fabric_degraded": 1.0}),
        (3, 0b01_10_00, {"fabric_state": 3.0, "fabric_degraded": 1.0}),
        (2, 0b00_01_00, {"fabric_state": 2.0}),
        (0, 0b10_10_10, {}),
    ],
)
def test_fabric_has_a_state_and_may_be_degraded(
    state: int, mask: int, expected: dict[str, float], driver: FakeNvml, start: Start
) -> None:
    driver.add_gpus(1)
    driver.say(f"set nvmlDeviceGetGpuFabricInfoV {state} {mask}")
    assert expected == start().read().devices[0].health
