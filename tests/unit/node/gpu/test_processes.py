# SPDX-License-Identifier: Apache-2.0
"""Processes on a GPU are given to the job in whose cgroup they are, and to no other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.cgroup.names import ProcessPlace, parse_place
from slurmscope.node.gpu.reader import place_processes
from slurmscope.node.gpu.records import Gpu, GpuProcess
from slurmscope.node.job_use import JobKey

TICKS = os.sysconf("SC_CLK_TCK")


def make_process(root: Path, pid: int, *, started_at: float, cgroup: str) -> None:
    """Write the two files of a process; all other fields of stat are zero."""
    folder = root / str(pid)
    folder.mkdir()
    fields = ["S", *["0"] * 18, str(round(started_at * TICKS)), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (a (very) odd name) {' '.join(fields)}\n", encoding="ascii")
    (folder / "cgroup").write_text(cgroup, encoding="ascii")


def gpu_with(*pids: int) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", processes=tuple(GpuProcess(pid=pid, memory_bytes=pid) for pid in pids))


def places(gpu: Gpu) -> dict[int, ProcessPlace | None]:
    return {process.pid: process.place for process in gpu.processes or ()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", ProcessPlace(job_id=12)),
        ("0::/system.slice/n1_slurmstepd.scope/job_12/step_0/user/task_0\n", ProcessPlace(job_id=12, node_name="n1")),
        ("0::/big.slice/pod/slurmstepd.scope/job_7/step_extern/slurm\n", ProcessPlace(job_id=7)),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n", ProcessPlace(sluid="sEKNKTV3WPV500")),
        ("9:memory:/slurm/uid_1000/job_3/step_batch/task_0\n0::/\n", ProcessPlace(job_id=3)),
        ("12:cpu:/\n9:memory:/slurm_lab0n1/uid_0/job_3/step_batch\n", ProcessPlace(job_id=3, node_name="lab0n1")),
        ("0::/system.slice/display-manager.service\n", ProcessPlace()),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_5/step_0\n", ProcessPlace()),
        ("0::/system.slice/docker-1.scope/job_5/step_0\n", ProcessPlace()),
        ("0::/uid_1/job_5\n", ProcessPlace()),
        ("0::/system.slice/slurmstepd.scope/system\n", ProcessPlace()),
        ("0::/slurm/uid_1000\n", ProcessPlace()),
        ("garbage", ProcessPlace()),
        ("", ProcessPlace()),
    ],
)
def test_cgroup_reports_the_job(text: str, expected: ProcessPlace) -> None:
    assert expected == parse_place(text.encode())


@pytest.mark.parametrize("separator", ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_user_names_no_cgroup_that_passes_for_that_of_a_job(separator: str) -> None:
    # As "0::" there, and system.slice, slurmstepd.scope and job_5 below.
    folder = f"/user.slice/user-1000.slice/user@1000.service/x{separator}0::/system.slice/slurmstepd.scope/job_5"

    assert ProcessPlace() == parse_place(f"0::{folder}\n".encode())


@given(st.binary(max_size=200))
def test_any_cgroup_file_has_a_place(text: bytes) -> None:
    assert isinstance(parse_place(text).is_in_job, bool)


def test_process_knows_its_user_and_job(tmp_path: Path) -> None:
    make_process(tmp_path, 10, started_at=50.0, cgroup="0::/system.slice/slurmstepd.scope/job_12/step_0\n")

    gpu = place_processes(gpu_with(10), 100.0, tmp_path)

    expected = GpuProcess(pid=10, memory_bytes=10, uid=tmp_path.stat().st_uid, place=ProcessPlace(job_id=12))
    assert (expected,) == gpu.processes


def test_process_that_started_after_the_list_was_made_is_another_one(tmp_path: Path) -> None:
    make_process(tmp_path, 10, started_at=100.0, cgroup="0::/system.slice/slurmstepd.scope/job_12/step_0\n")
    make_process(tmp_path, 11, started_at=99.9, cgroup="0::/system.slice/slurmstepd.scope/job_12/step_0\n")

    found = places(place_processes(gpu_with(10, 11), 100.0, tmp_path))

    assert {10: None, 11: ProcessPlace(job_id=12)} == found


def test_vanished_process_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    assert {11: None, 12: None} == places(place_processes(gpu_with(11, 12), 100.0, tmp_path))


def test_process_in_no_job_cgroup_is_queried_about(tmp_path: Path) -> None:
    make_process(tmp_path, 10, started_at=1.0, cgroup="0::/system.slice/slurmd.service\n")
    make_process(tmp_path, 11, started_at=1.0, cgroup="0::/system.slice/sshd.service\n")
    owners = {10: JobKey(job_id=8, node_name="n1")}

    found = places(place_processes(gpu_with(10, 11), 100.0, tmp_path, owners.get))

    assert {10: ProcessPlace(job_id=8, node_name="n1"), 11: ProcessPlace()} == found


def test_gpu_without_processes_stays_as_it_is(tmp_path: Path) -> None:
    unknown = Gpu(index=0, uuid="GPU-0")
    assert unknown is place_processes(unknown, 1.0, tmp_path)


def test_real_process_is_found_outside_of_jobs() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        time.sleep(0.05)  # started in an earlier tick of the clock than we look
        gpu = place_processes(gpu_with(child.pid), time.clock_gettime(time.CLOCK_BOOTTIME), Path("/proc"))
        child.communicate(b"\n", timeout=60)

    assert gpu.processes is not None
    assert (os.geteuid(), ProcessPlace()) == (gpu.processes[0].uid, gpu.processes[0].place)
