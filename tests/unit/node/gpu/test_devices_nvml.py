# SPDX-License-Identifier: Apache-2.0
"""What the driver tells of its devices arrives as it is: through the real binding, a real library and a real child."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.node.gpu.records import Gpu, GpuProcess, GpuReason
from tests.fakes.nvml.library import GIBIBYTE, FakeNvml
from tests.unit.node.gpu.conftest import Start


def test_all_fields_of_four_gpus_arrive(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(4, minors=(3, 2, 1, 0))
    driver.say("process 2 4711 1048576")

    devices = start().read().devices

    assert [0, 1, 2, 3] == [gpu.index for gpu in devices]
    assert Gpu(
        index=2,
        uuid="GPU-00000002-0000-4000-8000-000000000000",
        model="NVIDIA Fake 2",
        minor=1,
        bus_id="00000000:02:00.0",
        utilization_ratio=0.12,
        memory_utilization_ratio=0.22,
        memory_size_bytes=80 * GIBIBYTE,
        memory_used_bytes=3 * GIBIBYTE,
        memory_free_bytes=76 * GIBIBYTE,
        power_watts=70.502,
        energy_joules=9_000_000.502,
        temperature_celsius=42.0,
        processes=(GpuProcess(pid=4711, memory_bytes=1048576),),
    ) == replace(devices[2], counters=None)


def test_field_that_a_device_does_not_support_is_absent(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say(
        "code nvmlDeviceGetPowerUsage@0 3",
        "code nvmlDeviceGetUtilizationRates@0 3",
        "code nvmlDeviceGetTotalEnergyConsumption@0 999",
        "code nvmlDeviceGetTemperatureV@0 25",
        "code nvmlDeviceGetTemperature@0 3",
        "code nvmlDeviceGetMinorNumber@0 4",
        "code nvmlDeviceGetComputeRunningProcesses@0 3",
        "code nvmlDeviceGetGraphicsRunningProcesses@0 3",
        "code nvmlDeviceGetMPSComputeRunningProcesses@0 3",
    )

    (gpu,) = start().read().devices

    assert gpu.problem is None
    assert gpu.power_watts is None
    assert gpu.utilization_ratio is None
    assert gpu.memory_utilization_ratio is None
    assert gpu.energy_joules is None
    assert gpu.temperature_celsius is None
    assert gpu.minor is None
    assert gpu.processes is None
    assert GIBIBYTE == gpu.memory_used_bytes


def test_driver_with_older_calls_only_is_read_through_those(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say(
        "code nvmlDeviceGetMemoryInfo_v2@0 13",
        "code nvmlDeviceGetTemperatureV@0 13",
        "set nvmlDeviceGetTemperature@0 55",
    )

    (gpu,) = start().read().devices

    assert 2 * GIBIBYTE == gpu.memory_used_bytes
    assert 55.0 == gpu.temperature_celsius


def test_number_that_stands_for_no_value_is_absent(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say(f"set nvmlDeviceGetMemoryInfo_v2@0 {80 * GIBIBYTE} 0 {2**64 - 1} {2**64 - 1}", "process 0 5")

    (gpu,) = start().read().devices

    assert 80 * GIBIBYTE == gpu.memory_size_bytes
    assert gpu.memory_used_bytes is None
    assert gpu.memory_free_bytes is None
    assert (GpuProcess(pid=5, memory_bytes=None),) == gpu.processes


def test_process_with_several_contexts_counts_once(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("process 0 5 1000", "graphics 0 5 3000", "mps 0 6 10", "graphics 0 7")

    (gpu,) = start().read().devices

    expected = [(5, 3000), (6, 10), (7, None)]
    assert expected == [(process.pid, process.memory_bytes) for process in gpu.processes or ()]


def test_mig_instances_are_devices_of_their_own(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(2)
    driver.cut(1, 2)
    driver.say("process 201 4711 99")

    whole, parent, first, second = start().read().devices

    assert (False, True, False, False) == tuple(gpu.has_instances for gpu in (whole, parent, first, second))
    assert parent.processes is None
    assert parent.utilization_ratio is None
    assert (parent.uuid, 1, 1, "8/0") == (second.parent_uuid, second.index, second.minor, second.mig)
    assert ("7/0", ()) == (first.mig, first.processes)
    assert (GpuProcess(pid=4711, memory_bytes=99),) == second.processes
    assert 10 * GIBIBYTE == second.memory_size_bytes
    assert second.power_watts is None


def test_changed_mig_layout_is_seen_at_the_next_reading(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    reader = start()
    before = [gpu.mig for gpu in reader.read().devices]

    driver.cut(0, 3)
    cut = [gpu.mig for gpu in reader.read().devices]
    driver.take_back("mig")
    after = [gpu.mig for gpu in reader.read().devices]

    assert [""] == before
    assert ["", "7/0", "8/0", "9/0"] == cut
    assert [""] == after


def test_lost_gpu_is_reported_and_the_others_are_read(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(3)
    driver.say("code nvmlDeviceGetPowerUsage@1 15")

    first, lost, last = start().read().devices

    assert Gpu(index=1, problem=GpuReason.LOST) == lost
    assert (0.1, 0.12) == (first.utilization_ratio, last.utilization_ratio)


def test_gpu_without_a_handle_is_reported_and_never_queried(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(2)
    driver.say("code nvmlDeviceGetHandleByIndex@0 4")

    refused, other = start().read().devices

    assert Gpu(index=0, problem=GpuReason.NO_PERMISSION) == refused
    assert other.problem is None
    assert not [call for call in driver.calls() if call.endswith("@0") and "HandleByIndex" not in call]


def test_energy_is_read_rarely_and_reported_always(driver: FakeNvml, start: Start) -> None:
    now = [1000.0]
    driver.add_gpus(1)
    reader = start(clock=lambda: now[0], energy_seconds=30.0)
    told = []
    for seconds, millijoules in ((0, 1000), (10, 2000), (29, 3000), (30, 4000), (31, 5000)):
        now[0] = 1000.0 + seconds
        driver.say(f"set nvmlDeviceGetTotalEnergyConsumption@0 {millijoules}")
        told.append(reader.read().devices[0].energy_joules)

    assert [1.0, 1.0, 1.0, 4.0, 4.0] == told
    assert 2 == driver.calls()["nvmlDeviceGetTotalEnergyConsumption@0"]


def test_constants_are_requested_once(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    reader = start()

    for _ in range(3):
        reader.read()

    assert 1 == driver.calls()["nvmlDeviceGetName@0"]
    assert 3 == driver.calls()["nvmlDeviceGetPowerUsage@0"]


def test_node_without_gpus_has_none(start: Start) -> None:
    assert () == start().read().devices


def test_board_whose_text_is_none_leaves_the_others_alone(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(3)
    driver.say("set nvmlDeviceGetUUID@0 GPU-\xff", "set nvmlDeviceGetName@1 \xff\xfe")

    nameless, odd, fine = start().read().devices

    assert (GpuReason.FAILED, None, None) == (nameless.problem, odd.problem, fine.problem)
    assert ("", "NVIDIA Fake 2") == (odd.model, fine.model)
