# SPDX-License-Identifier: Apache-2.0
"""Check that time without movement is counted by kind, and that what is not measured is absent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.gpu.records import Absence, Gpus, JobGpuCounters
from slurmscope.node.job_use import WHOLE_JOB, CgroupUse, CpuUse, IoUse, JobKey, JobUse, NodeJobs, ProcessUse
from slurmscope.node.network import NodeNetwork
from slurmscope.node.progress import ProgressReader, collect

KEY = JobKey(7)
SPIN = {"busy": 1.0, "sm_active": 0.12, "integer": 0.01, "dram_active": 0.0001, "fp32": 0.0, "pcie_received": 1e5}
"""What a GPU does in a second while it waits for another one, as measured on an H200, with 16 blocks instead of one."""
TRAIN = {"busy": 0.98, "sm_active": 0.89, "integer": 0.2, "dram_active": 0.33, "fp32": 0.1, "pcie_received": 41e6}


class Node:
    """A node whose sources a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.jobs: tuple[JobUse, ...] = (JobUse(key=KEY),)
        self.gpus = Gpus()
        self.network: NodeNetwork | None = None
        self.collectives: dict[JobKey, float] = {}
        self.reader = ProgressReader(
            lambda: NodeJobs(jobs=self.jobs),
            lambda: self.gpus,
            lambda: self.network,
            lambda: self.collectives,
            clock=lambda: self.now,
        )

    def use(self, cpu_seconds: float, io_bytes: int) -> None:
        """Set what the job used so far."""
        groups = {WHOLE_JOB: CgroupUse(cpu=CpuUse(total_seconds=cpu_seconds))}
        self.jobs = (JobUse(key=KEY, groups=groups, processes=ProcessUse(io=IoUse(read_chars=io_bytes))),)

    def work(self, rates: dict[str, float], seconds: float, absence: Absence = Absence.NONE) -> None:
        """Let the GPU of the job do so much a second."""
        old = self.gpus.job_counters[KEY, "GPU-1"].totals if self.gpus.job_counters else dict.fromkeys(rates, 0.0)
        totals = {name: old[name] + rate * seconds for name, rate in rates.items()}
        self.gpus = Gpus(job_counters={(KEY, "GPU-1"): JobGpuCounters(totals=totals, absence=absence)})

    def read(self, seconds: float = 0.0) -> dict[str, float]:
        """Return the times of the job so much later."""
        self.now += seconds
        return self.reader.read()[KEY]


@pytest.fixture
def node() -> Node:
    return Node()


def test_time_counts_from_the_last_movement_of_each_kind(node: Node) -> None:
    node.use(10.0, 5000)
    assert {"cpu": 0.0, "io": 0.0} == node.read()
    node.use(25.0, 5200)  # a core and a half; ten bytes a second
    assert {"cpu": 0.0, "io": 20.0} == node.read(20)
    node.use(25.1, 70_000)  # a two-hundredth of a core; more than a kilobyte a second
    assert {"cpu": 20.0, "io": 0.0} == node.read(20)
    node.use(25.1, 70_000)
    assert {"cpu": 80.0, "io": 60.0} == node.read(60)


def test_small_movements_do_not_add_up_over_a_long_time(node: Node) -> None:
    for step in range(100):
        node.use(step * 0.1, step * 900)
        times = node.read(15)

    assert {"cpu": 99 * 15, "io": 99 * 15} == times


def test_kind_that_is_not_measured_for_a_while_has_not_moved(node: Node) -> None:
    node.use(10.0, 5000)
    node.read()
    assert {"cpu": 20.0, "io": 20.0} == node.read(20)
    # Reading the processes takes too long this time.
    measured = node.jobs
    node.jobs = (replace(measured[0], are_processes_read=False),)
    assert {"cpu": 40.0} == node.read(20)
    node.jobs = measured
    assert {"cpu": 60.0, "io": 60.0} == node.read(20)
    node.use(10.0, 5000 + 30_000)  # 1.5 kB a second since then
    assert {"cpu": 80.0, "io": 0.0} == node.read(20)


def test_readings_in_short_succession_count_as_one(node: Node) -> None:
    for step in range(8):
        node.use(10.0 + step * 0.02, 0)  # a fiftieth of a core
        times = node.read(1)

    assert 0 <= times["cpu"] <= 5


def test_spinning_gpu_does_not_move_and_a_working_one_does(node: Node) -> None:
    node.work(TRAIN, 0)
    node.read()
    node.work(TRAIN, 60)
    assert 0.0 == node.read(60)["gpu"]
    for _ in range(10):
        node.work(SPIN, 60)
        times = node.read(60)
    assert 600.0 == times["gpu"]
    node.work(TRAIN, 60)
    assert 0.0 == node.read(60)["gpu"]


def test_busy_time_counts_where_nothing_else_is_known(node: Node) -> None:
    for rate in (1.0, 1.0, 0.001):
        node.work({"busy": rate}, 60)
        times = node.read(60)

    assert 60.0 == times["gpu"]


def test_gpu_that_is_not_measured_is_absent(node: Node) -> None:
    node.work(TRAIN, 60, Absence.MPS)

    assert {} == node.read()


def test_network_counts_while_the_job_is_alone(node: Node) -> None:
    def transfer(ethernet: int, rdma: int) -> None:
        node.network = NodeNetwork(jobs={KEY: {"ethernet": (ethernet, 0), "infiniband": (0, rdma)}})

    transfer(10_000_000, 0)
    node.read()
    transfer(10_500_000, 9_000)  # a page of metrics, a subnet manager
    assert {"network": 60.0} == node.read(60)
    transfer(10_500_000, 900_000)
    assert {"network": 0.0} == node.read(60)
    node.jobs = (*node.jobs, JobUse(key=JobKey(8)))
    assert {} == node.read(60)
    node.jobs = node.jobs[:1]
    assert {"network": 0.0} == node.read(60)  # what happened meanwhile is not known


def test_any_collective_operation_is_movement(node: Node) -> None:
    for count in (5, 6, 6):
        node.collectives = {KEY: count}
        times = node.read(60)

    assert {"collectives": 60.0} == times


def test_counter_that_starts_again_is_movement(node: Node) -> None:
    node.use(500.0, 0)
    node.read()
    node.use(3.0, 0)

    assert 0.0 == node.read(60)["cpu"]


def test_io_is_absent_while_the_processes_keep_their_values(node: Node) -> None:
    node.use(1.0, 100)
    node.read()
    [job] = node.jobs
    node.jobs = (replace(job, are_processes_read=False),)

    assert {"cpu": 60.0} == node.read(60)


def test_ended_job_has_no_progress(node: Node) -> None:
    node.jobs = (JobUse(key=KEY, has_ended=True),)

    assert {} == node.reader.read()


def test_times_are_exported_by_job_node_and_kind() -> None:
    [family] = collect(NoOptions(), progress={JobKey(7, "n2"): {"cpu": 3.0}}, node_jobs=NodeJobs(host_name="n1"))

    assert "jobs_progress_seconds" == family.metric.name
    assert {("7", "n2", "cpu"): 3.0} == dict(family.samples)
