# SPDX-License-Identifier: Apache-2.0
"""The whole agent reads simulated machines: GPUs appear on the page, and a driver that fails affects GPUs only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.gpu_node import make_cgroups, with_driver
from tests.fakes.kernel_gpus import GIB, KernelGpus
from tests.fakes.nvml.library import FakeNvml, build_library
from tests.processes import Exporter, serving, until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
FILES = {
    "cgroup.procs": "",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": "usage_usec 3393402\nuser_usec 1350391\nsystem_usec 2043011\n",
    "memory.current": "77312000\n",
}
JOBS = 2


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Give the process of each of two jobs."""
    with ExitStack() as stack:
        sleepers = [stack.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(JOBS)]
        for sleeper in sleepers:
            stack.callback(sleeper.kill)
        yield [sleeper.pid for sleeper in sleepers]


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    """Give the driver that the agent finds beside the library."""
    return FakeNvml(library=build_library(tmp_path), folder=tmp_path)


@pytest.fixture
def agent(driver: FakeNvml, pids: list[int], tmp_path: Path) -> Iterator[Exporter]:
    """Give an agent on a board with eight GPUs; job 1 holds GPU 1, job 2 GPU 2."""
    play(driver, "eight", pids)
    root = make_cgroups(tmp_path / "cgroup", pids, FILES)
    flags = ("--path.cgroup", str(root), "--node.name", "n1")
    with serving("node", *flags, prefix=with_driver(tmp_path)) as exporter:
        yield exporter


def play(driver: FakeNvml, machine: str, pids: list[int]) -> None:
    driver.play(machine)
    driver.take_back("process")
    driver.say(*(f"process {gpu} {pid} {GIB}" for gpu, pid in enumerate(pids, 1)))


def pair(job: int) -> tuple[str, ...]:
    return (str(job), "n1", str(job), "")


@needs_root
def test_page_has_the_gpus_of_each_job_and_survives_each_fault(
    agent: Exporter, driver: FakeNvml, pids: list[int], tmp_path: Path
) -> None:
    first = agent.samples()
    assert {pair(1): GIB, pair(2): GIB} == first["jobs_gpu_held_memory_bytes"]
    assert [n / 10 for n in range(8)] == pytest.approx(
        [first["gpu_utilization_ratio"][str(n), ""] for n in range(8)], abs=0.001
    )
    assert {(str(n), "", "gpm"): 1 for n in range(8)} == first["gpu_counters_source_info"]

    play(driver, "lost", pids)
    until(lambda: 1 == agent.values("gpu_lost").get(("1", "GPU-1")))
    lost = agent.samples()
    assert {("1", "n1", "1", "", "79"): 1} == lost["jobs_gpu_faults_total"]
    assert {("0",): 1, ("1",): 0, ("2",): 1, ("3",): 1} == lost["gpu_readable"]

    play(driver, "eight", pids)
    driver.say("hang nvmlDeviceGetPowerUsage@0")
    until(lambda: 1 == agent.values("gpu_source_unavailable").get(("nvml", "timeout")))
    hung = agent.samples()
    assert {("1", "n1"), ("2", "n1")} == {labels[:2] for labels in hung["jobs_cpu_seconds_total"]}
    assert {} == hung["jobs_gpu_busy_seconds_total"]

    driver.take_back("hang")
    until(lambda: {pair(1), pair(2)} == set(agent.values("jobs_gpu_busy_seconds_total")))

    # Job 2 ends: what its GPU did for it is served on with its other final values.
    before = agent.values("jobs_gpu_busy_seconds_total")[pair(2)]
    driver.take_back(f"process 2 {pids[1]}")
    shutil.rmtree(tmp_path / "cgroup/system.slice/slurmstepd.scope/job_2")
    until(lambda: {"true"} == {labels[-1] for labels in agent.values("jobs_info") if labels[0] == "2"})
    assert before <= agent.values("jobs_gpu_busy_seconds_total")[pair(2)]


def test_gpus_of_amd_are_on_the_page(tmp_path: Path, pids: list[int]) -> None:
    files = KernelGpus(tmp_path)
    files.add_amd(0, gpu_busy_percent=60, mem_info_vram_total=64 * GIB, hwmon_power1_average=431_000_000)
    files.add_kfd_process(pids[0], gpu0=20 * GIB)
    root = make_cgroups(tmp_path / "cgroup", pids, FILES)
    (tmp_path / "proc").symlink_to("/proc")
    flags = ("--path.rootfs", str(tmp_path), "--path.cgroup", "/cgroup", "--node.name", "n1")
    with serving("node", *flags) as agent:
        agent.samples()
        until(lambda: agent.values("jobs_gpu_busy_seconds_total").get(("1", "n1", "0", ""), 0) > 0)
        found = agent.samples()

    assert root.is_dir()
    assert {("1", "n1", "0", ""): 20 * GIB} == found["jobs_gpu_held_memory_bytes"]
    assert {("0", ""): 0.6} == found["gpu_utilization_ratio"]
    assert found["jobs_energy_joules_total"]["1", "n1", "gpu", "gpus"] > 0
