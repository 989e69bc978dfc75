# SPDX-License-Identifier: Apache-2.0
"""GPUs of AMD and Intel are counted from the kernel's files, with hand-worked numbers."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest

from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.drm import DrmReader
from slurmscope.node.gpu.drm_clients import MOST_PROCESSES
from slurmscope.node.gpu.records import Gpu, GpuProcess, Vendor
from slurmscope.node.job_use import JobKey
from tests.fakes.kernel_gpus import GIB, KernelGpus
from tests.processes import until

JOB = JobKey(job_id=1)


def hold(job: JobKey, gpu: Gpu) -> GpuHold:
    return GpuHold(job=job, gpu=gpu, sources=frozenset({Source.DEVICES}), is_held=True, is_disputed=False, is_idle=None)


class Node:
    """Be a node with a clock that stands still unless it is moved."""

    def __init__(self, root: Path) -> None:
        self.now = 1000.0
        self.files = KernelGpus(root)
        self.pids: set[int] = set()
        self.others: dict[Hashable, set[int]] = {}
        self.step = 0.0
        self.compute_seconds = 0
        self.reader = DrmReader(
            sysfs=self.files.sysfs,
            procfs=self.files.procfs,
            pids=lambda: {1001: self.pids, **self.others},
            clock=self.clock,
        )

    def clock(self) -> float:
        self.now += self.step
        return self.now

    def read(self, after: float = 0.0) -> tuple[Gpu, ...]:
        self.now += after
        found = self.reader.read()
        assert found
        return found.devices

    def busy(self, after: float = 0.0) -> tuple[float, float, str]:
        """Return busy seconds, seconds counted, and their source, of the first GPU."""
        counters = self.read(after)[0].counters
        assert counters
        return counters.totals.get("busy", -1.0), counters.seconds, counters.source


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.reader.close()


def test_all_values_of_amdgpu_arrive(node: Node) -> None:
    node.files.add_amd(
        0,
        gpu_busy_percent=60,
        mem_busy_percent=30,
        mem_info_vram_total=64 * GIB,
        mem_info_vram_used=20 * GIB,
        product_name="AMD INSTINCT MI250X",
        pcie_replay_count=3,
        **{"ras/umc_err_count": "ue: 1\nce: 17"},
        hwmon_power1_average=431_000_000,
        hwmon_temp1_input=55_000,
    )
    node.files.add_kfd_process(10, gpu0=19 * GIB)
    node.read()

    (gpu,) = node.read(10)

    assert (0, "GPU-00000000000abcd0", Vendor.AMD, 128) == (gpu.index, gpu.uuid, gpu.vendor, gpu.minor)
    assert ("AMD INSTINCT MI250X", "0000:c1:00.0") == (gpu.model, gpu.bus_id)
    assert (64 * GIB, 20 * GIB, 44 * GIB) == (gpu.memory_size_bytes, gpu.memory_used_bytes, gpu.memory_free_bytes)
    assert (0.6, 0.3) == (gpu.utilization_ratio, gpu.memory_utilization_ratio)
    assert (431.0, 4310.0, 55.0) == (gpu.power_watts, gpu.energy_joules, gpu.temperature_celsius)
    assert {"pcie_replays": 3, "ecc_uncorrected": 1, "ecc_corrected": 17} == gpu.health
    assert (GpuProcess(pid=10, memory_bytes=19 * GIB),) == gpu.processes


def test_gauge_is_added_up_over_time(node: Node) -> None:
    pdev = node.files.add_amd(0, gpu_busy_percent=100)
    node.read()
    first = node.busy(10)
    node.files.set(pdev, gpu_busy_percent=20)
    second = node.busy(15)
    node.files.set(pdev, gpu_busy_percent="")  # the firmware does not answer
    third = node.busy(10)

    assert [(10, 10, "gauge"), (13, 25, "gauge"), (13, 25, "gauge")] == [first, second, third]


def test_gauge_says_nothing_of_the_hour_before_it(node: Node) -> None:
    node.files.add_amd(0, gpu_busy_percent=100, hwmon_power1_average=400_000_000)
    node.read()
    (gpu,) = node.read(3600)  # a driver that hung

    assert gpu.counters
    assert (15, 15, 6000) == (gpu.counters.totals["busy"], gpu.counters.seconds, gpu.energy_joules)


def test_gpu_that_was_lost_gives_its_next_job_nothing_of_before(node: Node) -> None:
    pdev = node.files.add_amd(0, gpu_busy_percent=100)
    add_up = JobCounters()

    def of_job() -> float:
        devices = node.read(10)
        holds = [hold(JOB, gpu) for gpu in devices]
        found = add_up.add(devices, holds, running=[JOB])
        return found[JOB, devices[0].uuid].totals["busy"]

    for _ in range(10):
        add_up.add(node.read(10), [])
    found = node.files.sysfs / "class/drm/renderD128"
    found.rename(node.files.sysfs / pdev)
    add_up.add(node.read(10), [])
    (node.files.sysfs / pdev).rename(found)

    # It is back for an unknown time at the first reading, and for ten seconds at the second.
    assert [0, 10] == [of_job(), of_job()]


def test_processes_lose_nothing_when_a_gauge_begins_anew(node: Node) -> None:
    pdev = node.files.add_amd(0, gpu_busy_percent=100)
    node.pids.add(10)

    def busy_of_process() -> float:
        node.compute_seconds += 10
        lines = {"engine-compute": f"{node.compute_seconds * 10**9} ns", "memory-vram": "1 MiB"}
        node.files.add_client(10, pdev, lines)
        (gpu,) = node.read(10)
        assert gpu.counters
        return gpu.counters.by_pid[10]

    before = [busy_of_process() for _ in range(3)]
    node.reader._gauges._totals.clear()  # as its thread does if the GPU is gone for a moment
    after = [busy_of_process() for _ in range(2)]

    assert [0, 10, 20, 20, 30] == [*before, *after]


def test_gauges_are_read_between_readings(tmp_path: Path) -> None:
    files = KernelGpus(tmp_path)
    pdev = files.add_amd(0, gpu_busy_percent=100)
    reader = DrmReader(sysfs=files.sysfs, procfs=files.procfs, pids=dict)
    reader.read()
    counted = reader._gauges._totals[pdev]
    before = counted.seconds

    until(lambda: counted.seconds > before)

    assert counted.seconds == pytest.approx(counted.by_name["busy"])
    reader.close()


def test_driver_that_hangs_keeps_the_numbers_of_before(tmp_path: Path) -> None:
    files = KernelGpus(tmp_path)
    pdev = files.add_amd(0, gpu_busy_percent=50)
    reader = DrmReader(sysfs=files.sysfs, procfs=files.procfs, pids=dict)
    reader.read()
    gauge = files.sysfs / "devices/pci0000:c0" / pdev / "gpu_busy_percent"
    gauge.unlink()
    os.mkfifo(gauge)  # opening it waits, as a read of a hanging driver does
    until(reader._gauges._counting.locked)

    assert reader._gauges.read()[pdev].by_name["busy"] >= 0  # returns although the thread waits

    reader.close()
    with gauge.open("wb"):
        gauge.unlink()


def test_engine_times_of_clients_are_counted(node: Node) -> None:
    pdev = node.files.add(0, "i915")
    node.pids = {10, 11}
    node.files.add_client(10, pdev, {"engine-compute": "5000000000 ns"}, client=1)
    node.read()
    # 6 s of client 1, and 2 s of a client that is new; 1 s of copies at the same time.
    node.files.add_client(10, pdev, {"engine-compute": "11000000000 ns", "engine-copy": "1000000000 ns"}, client=1)
    node.files.add_client(11, pdev, {"engine-compute": "2000000000 ns"}, client=2)

    (gpu,) = node.read(10)

    assert gpu.counters
    assert ("engines", 10.0, {"busy": 8.0}) == (gpu.counters.source, gpu.counters.seconds, gpu.counters.totals)
    assert {10: 6.0, 11: 2.0} == gpu.counters.by_pid
    assert 0.8 == gpu.utilization_ratio


def test_several_engines_of_a_kind_are_one_gpu(node: Node) -> None:
    pdev = node.files.add(0, "i915")
    node.pids = {10}
    node.files.add_client(10, pdev, {"engine-video": "0 ns", "engine-capacity-video": 2})
    node.read()
    node.files.add_client(10, pdev, {"engine-video": "8000000000 ns", "engine-capacity-video": 2})
    assert (4.0, 10.0, "engines") == node.busy(10)


def test_cycles_of_xe_are_a_share_of_time(node: Node) -> None:
    pdev = node.files.add(0, "xe")
    node.pids = {10}
    node.files.add_client(10, pdev, {"cycles-ccs": 100, "total-cycles-ccs": 10_000})
    node.read()
    node.files.add_client(10, pdev, {"cycles-ccs": 700, "total-cycles-ccs": 11_000})
    assert (6.0, 10.0, "engines") == node.busy(10)


def test_counter_that_falls_is_waited_for(node: Node) -> None:
    pdev = node.files.add(0, "i915")
    node.pids = {10}
    found = []
    for seconds in (50, 40, 52, 57):  # the kernel: "stay with that larger previous value"
        node.files.add_client(10, pdev, {"engine-render": f"{seconds}000000000 ns"})
        found.append(node.busy(10)[0])
    assert [0, 0, 2, 7] == found


def test_client_that_was_not_read_for_a_while_goes_on(node: Node) -> None:
    pdev = node.files.add(0, "i915")
    node.pids = {10}
    node.files.add_client(10, pdev, {"engine-render": "100000000000 ns"})
    node.read()
    (node.files.procfs / "10").rename(node.files.procfs / "hidden")
    node.read(10)
    (node.files.procfs / "hidden").rename(node.files.procfs / "10")
    node.files.add_client(10, pdev, {"engine-render": "103000000000 ns"})
    assert (3.0, 20.0, "engines") == node.busy(10)


def test_client_cannot_be_busy_for_longer_than_the_interval(node: Node) -> None:
    pdev = node.files.add(0, "i915")
    node.pids = {10}
    node.files.add_client(10, pdev, {"engine-render": "0 ns"})
    node.read()
    node.files.add_client(10, pdev, {"engine-render": "999000000000 ns"})
    assert (10.0, 10.0, "engines") == node.busy(10)


def test_values_of_xe_arrive(node: Node) -> None:
    pdev = node.files.add(
        0,
        "xe",
        device="0x0bd5",
        **{"tile0/physical_vram_size_bytes": 64 * GIB, "tile1/physical_vram_size_bytes": 64 * GIB},
        hwmon_energy1_input=91_000_000,
    )
    node.pids = {10}
    node.files.add_client(10, pdev, {"resident-vram0": "1048576 KiB"})

    (gpu,) = node.read()

    assert (128 * GIB, 91.0, Vendor.INTEL) == (gpu.memory_size_bytes, gpu.energy_joules, gpu.vendor)
    assert ("pci-0000:c1:00.0", "Intel 0bd5") == (gpu.uuid, gpu.model)
    assert (GpuProcess(pid=10, memory_bytes=GIB),) == gpu.processes
    assert (None, None, None) == (gpu.memory_used_bytes, gpu.power_watts, gpu.temperature_celsius)


def test_process_that_opened_a_gpu_without_using_it_is_not_on_it(node: Node) -> None:
    first, second = node.files.add_amd(0), node.files.add_amd(1)
    node.pids = {10}
    node.files.add_client(10, first, {"memory-vram": "5 MiB"}, number=5, client=1)
    node.files.add_client(10, second, {"memory-vram": "0", "engine-gfx": "0 ns"}, number=6, client=2)
    assert [1, 0] == [len(gpu.processes or ()) for gpu in node.read()]


def test_gpus_are_ordered_by_address_and_others_left_out(node: Node) -> None:
    node.files.add_amd(1)
    node.files.add_amd(0)
    node.files.add(2, "ast")
    assert [(0, "0000:c1:00.0"), (1, "0000:c2:00.0")] == [(gpu.index, gpu.bus_id) for gpu in node.read()]


def test_number_of_gpus_may_change(node: Node) -> None:
    node.files.add_amd(0, gpu_busy_percent=50)
    node.read()
    node.files.add_amd(1, gpu_busy_percent=70)
    assert 2 == len(node.read(10))
    (node.files.sysfs / "class/drm/renderD128/device").unlink()

    (left,) = node.read(10)

    # The second one was first seen 10 s ago. It keeps its number.
    assert ("0000:c2:00.0", 1, 0.7) == (left.bus_id, left.index, left.utilization_ratio)


def test_last_gpu_that_is_lost_leaves_none_and_no_missing_driver(node: Node) -> None:
    node.files.add_amd(0)
    node.read()
    (node.files.sysfs / "class/drm/renderD128/device").unlink()
    assert () == node.read()


def test_partitions_of_a_gpu_are_one(node: Node) -> None:
    pdev = node.files.add_amd(0)
    partition = node.files.sysfs / "class/drm/renderD140"
    partition.mkdir()
    (partition / "device").symlink_to(node.files.sysfs / "devices/pci0000:c0" / pdev)
    assert [(0, 128)] == [(gpu.index, gpu.minor) for gpu in node.read()]


def test_node_without_gpus_of_the_kernel_has_none(node: Node) -> None:
    assert node.reader.read() is None
    node.files.add(0, "ast")
    assert node.reader.read() is None


def test_thousands_of_other_processes_hide_no_process_of_a_gpu(node: Node) -> None:
    pdev = node.files.add_amd(0)
    node.files.add_client(90_000, pdev, {"engine-gfx": "1000000000 ns"}, client=7)
    node.pids = {90_000, *range(10_000, 10_000 + MOST_PROCESSES + 500)}
    found = [[process.pid for gpu in node.read(15.0) for process in gpu.processes or ()] for _ in range(4)]

    assert [[], [90_000], [90_000], [90_000]] == found


def test_hundreds_of_slow_processes_with_a_gpu_hide_none_of_another_user(node: Node) -> None:
    pdev = node.files.add_amd(0)
    node.files.add_client(90_000, pdev, {"engine-gfx": "1000000000 ns"}, client=7)
    node.others = {1002: {90_000}}
    for number in range(200):
        node.files.add_client(10_000 + number, pdev, {"engine-gfx": "1000000000 ns"}, client=100 + number)
        node.pids.add(10_000 + number)
    node.step = 0.01

    found = [{process.pid for gpu in node.read(15.0) for process in gpu.processes or ()} for _ in range(5)]

    assert all(90_000 in pids for pids in found)
    assert all(50 < len(pids) <= 101 for pids in found), "as many as there is time for"
