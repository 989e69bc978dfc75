# SPDX-License-Identifier: Apache-2.0
"""Simulated machines, each in a file, are read by the real child: what goes wrong affects only its own numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.nvml import NvmlReader, NvmlUnavailable
from slurmscope.node.gpu.records import Absence, Gpu, GpuProcess, GpuReason
from slurmscope.node.job_use import JobKey
from tests.fakes.nvml.library import GIBIBYTE, MACHINES, FakeNvml
from tests.processes import until
from tests.unit.node.gpu.conftest import Start
from tests.unit.node.gpu.test_job_counters import held

PAUSE_SECONDS = 0.3
"""Longer than the shortest time that is counted."""


def ratios(devices: Sequence[Gpu]) -> list[float | None]:
    return [None if gpu.utilization_ratio is None else round(gpu.utilization_ratio, 3) for gpu in devices]


def read_again(reader: NvmlReader) -> tuple[Gpu, ...]:
    time.sleep(PAUSE_SECONDS)
    return reader.read().devices


def total(gpu: Gpu, name: str) -> float:
    assert gpu.counters
    return gpu.counters.totals[name]


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_machine_is_read(file: Path, driver: FakeNvml, start: Start) -> None:
    driver.play(file.stem)
    devices = start(timeout_seconds=60.0).read().devices
    assert driver.gpus == sum(not gpu.parent_uuid for gpu in devices)


def test_eight_gpus_are_told_apart(driver: FakeNvml, start: Start) -> None:
    driver.play("eight")

    devices = start().read().devices

    assert [n / 10 for n in range(8)] == ratios(devices)
    assert [(GpuProcess(pid=1000 + n, memory_bytes=20 * GIBIBYTE),) for n in range(8)] == [g.processes for g in devices]
    for n, gpu in enumerate(devices):
        assert gpu.counters
        received = gpu.counters.totals["nvlink_received"] / gpu.counters.seconds
        assert n * 100 * 2**20 == pytest.approx(received, rel=1e-3)


def test_gpus_that_are_taken_away_and_come_back_keep_their_numbers(driver: FakeNvml, start: Start) -> None:
    driver.play("eight")
    reader = start()
    before = reader.read().devices
    driver.play("four")
    fewer = read_again(reader)
    driver.play("eight")
    reader.read()
    after = read_again(reader)

    assert [8, 4, 8] == [len(devices) for devices in (before, fewer, after)]
    assert [n / 10 for n in range(8)] == ratios(after)
    assert total(after[3], "busy") > total(fewer[3], "busy") > total(before[3], "busy")
    # What GPU 7 did while it was away is not known, and counts for nobody.
    assert after[7].counters
    assert after[3].counters
    assert after[7].counters.seconds < after[3].counters.seconds


def test_lost_gpu_has_an_xid_and_leaves_the_others_alone(driver: FakeNvml, start: Start) -> None:
    driver.play("eight")
    reader = start()
    reader.read()
    driver.play("lost")

    sample = reader.read()

    assert [None, GpuReason.LOST, None, None] == [gpu.problem for gpu in sample.devices]
    assert [("GPU-1", 79)] == [(event.uuid, event.xid) for event in sample.xids]
    read_again(reader)
    assert 0.5 == ratios(read_again(reader))[3]


def test_driver_without_hardware_counters_has_the_mean_of_its_buffer(driver: FakeNvml, start: Start) -> None:
    driver.play("ampere")
    devices = start().read().devices
    assert ["samples", "samples"] == [gpu.counters.source for gpu in devices if gpu.counters]
    assert [0.6, 0.6] == ratios(devices)
    assert [{"busy", "memory_busy"}] * 2 == [set(gpu.counters.totals) for gpu in devices if gpu.counters]


def test_errors_of_links_arrive_where_there_are_any(driver: FakeNvml, start: Start) -> None:
    driver.play("nvlink")
    first, second = start().read().devices
    kinds = ("crc_flit", "crc_data", "replay", "recovery", "ecc")
    assert {f"nvlink_{kind}": 11 + n for n, kind in enumerate(kinds)} == first.health
    assert {} == second.health
    assert "nvlink_received" not in second.counters.totals  # type: ignore[union-attr]


def test_each_instance_has_its_own_memory_processes_and_counters(driver: FakeNvml, start: Start) -> None:
    driver.play("mig")

    parent, three, one, shared, other, whole = start().read().devices

    assert (True, None, None) == (parent.has_instances, parent.counters, parent.processes)
    assert [None, 0.8, 0.3, None, None, 0.1] == ratios((parent, three, one, shared, other, whole))
    assert ["1/0", "9/0", "5/0", "5/1"] == [gpu.mig for gpu in (three, one, shared, other)]
    assert [71, 18, 35, 35] == [(g.memory_size_bytes or 0) // GIBIBYTE for g in (three, one, shared, other)]
    assert [2100, 2101, 2102, 2103] == [g.processes[0].pid for g in (three, one, shared, other) if g.processes]
    assert three.counters
    assert 0.4 == pytest.approx(three.counters.totals["tensor_active"] / three.counters.seconds, rel=1e-4)


def test_instances_made_during_a_job_end_the_counters_of_the_whole_gpu(driver: FakeNvml, start: Start) -> None:
    job, counters = JobKey(job_id=7), JobCounters()

    def busy(devices: Sequence[Gpu], *uuids: str) -> dict[str, tuple[float, Absence]]:
        placed = [gpu for gpu in devices if gpu.uuid in uuids]
        found = counters.add(devices, [held(job, gpu) for gpu in placed])
        return {uuid: (of_job.totals.get("busy", -1.0), of_job.absence) for (_, uuid), of_job in found.items()}

    driver.play("whole")
    reader = start()
    whole = busy(reader.read().devices, "GPU-0")
    driver.play("mig")
    cut = busy(read_again(reader), "MIG-100", "MIG-102")
    driver.play("whole")
    busy(reader.read().devices, "GPU-0")
    again_devices = read_again(reader)
    again = busy(again_devices, "GPU-0")

    assert whole["GPU-0"][0] > 0
    assert (Absence.NONE, Absence.DRIVER) == (cut["MIG-100"][1], cut["MIG-102"][1])
    # The time in which it was cut is not the whole GPU's.
    assert again_devices[0].counters
    assert again_devices[0].counters.seconds == pytest.approx(again["GPU-0"][0] / 0.5, rel=0.01)


def test_counters_that_jump_back_count_nothing(driver: FakeNvml, start: Start) -> None:
    job, counters = JobKey(job_id=7), JobCounters()
    driver.play("one")
    reader = start(energy_seconds=0.0)

    def totals(devices: Sequence[Gpu]) -> dict[str, float]:
        (of_job,) = counters.add(devices, [held(job, devices[0])]).values()
        return dict(of_job.totals)

    before = totals(reader.read().devices)
    driver.play("back")
    (device,) = read_again(reader)
    after = totals([device])

    assert (1.0, 5e-9, {"pcie_replays": 1.0}) == (
        device.energy_joules,
        device.throttled_seconds["power_cap"],
        device.health,
    )
    assert (before["energy"], before["throttled_power_cap"]) == (after["energy"], after["throttled_power_cap"])
    # -40 % is nothing, 10^30 % is all of the time, and what is no number has no share.
    assert before["busy"] == pytest.approx(after["busy"])
    assert device.counters
    assert 0 < after["sm_active"] <= device.counters.seconds
    assert ("tensor_active" in after, 0.0) == (False, after["pcie_transmitted"])


def test_late_answer_is_waited_for_up_to_the_timeout(driver: FakeNvml, start: Start) -> None:
    driver.play("late")
    patient, hasty = start(timeout_seconds=60.0), start(start_timeout_seconds=0.5)

    with pytest.raises(NvmlUnavailable) as raised:
        hasty.read()

    assert GpuReason.TIMEOUT is raised.value.why
    assert [0.5] == ratios(patient.read().devices)


def test_samples_with_equal_time_stamps_count_once(driver: FakeNvml, start: Start) -> None:
    driver.play("ampere")
    reader = start()
    driver.say("stamp 0 5000", "samples 0 100 100")
    first, _ = read_again(reader)
    second, other = read_again(reader)

    # The buffer of GPU 0 stands still: nothing is known of the time since.
    assert first.counters == second.counters
    assert 0.6 == round(other.utilization_ratio or 0, 3)


def test_samples_from_the_future_do_not_stop_the_counters(driver: FakeNvml, start: Start) -> None:
    driver.play("ampere")
    far = 10**6 * int(time.time() + 86_400)
    driver.say(f"stamp 0 {far}", "samples 0 100")
    reader = start()
    reader.read()
    driver.take_back("stamp")
    driver.say("samples 0 20 20")

    until(lambda: 0.2 == read_again(reader)[0].utilization_ratio)


def test_shares_of_processes_from_the_future_do_not_stop_the_split(driver: FakeNvml, start: Start) -> None:
    driver.play("one")
    driver.say("process 0 1001 1", "share 0 1000 60", "share 0 1001 30", "stamp 0 99999999999999999")
    reader = start()
    reader.read()
    driver.take_back("stamp")
    before = read_again(reader)[0].counters
    assert before

    def parts() -> list[float]:
        counters = read_again(reader)[0].counters
        assert counters
        return [counters.by_pid[pid] - before.by_pid[pid] for pid in (1000, 1001)]

    until(lambda: all(part > 0 for part in parts()))
    first, second = parts()
    assert 2 == pytest.approx(first / second, rel=0.01)


def test_server_of_mps_is_no_client(driver: FakeNvml, start: Start) -> None:
    driver.play("one")
    driver.say("mps 0 1001 4096", "process 0 1002 8192", "process 0 1001 4096")
    (device,) = start().read().devices
    clients = {process.pid: (process.memory_bytes, process.is_mps_client) for process in device.processes or ()}
    assert {1000: (20 * GIBIBYTE, False), 1001: (4096, True), 1002: (8192, False)} == clients
