# SPDX-License-Identifier: Apache-2.0
"""What the kernel lets a job open tells which GPUs it holds, where it tells anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.node.gpu.devices import GpuDevices, allowed_by_list, allowed_by_programs
from slurmscope.node.gpu.records import Gpu, GpuReason, Vendor
from slurmscope.node.job_use import JobKey
from tests.fakes.device_programs import ACCEPT, DENY, Rule, slurm_program

JOB = JobKey(job_id=7)
GPUS = tuple(Gpu(index=number, uuid=f"GPU-{number}", minor=number) for number in range(4))
DEVICES = {f"GPU-{number}": (195, number) for number in range(4)}
DEVICES_V1 = Path("/sys/fs/cgroup/devices")


def programs(*texts: bytes) -> Callable[[Path], list[bytes]]:
    return lambda _cgroup: list(texts)


def failing(number: int) -> Callable[[Path], list[bytes]]:
    def read(cgroup: Path) -> list[bytes]:
        raise OSError(number, os.strerror(number))

    return read


def read(tmp_path: Path, read_programs: Callable[[Path], list[bytes]]) -> tuple[object, GpuReason | None]:
    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: 0.0, read_programs=read_programs)
    return devices.read(GPUS, {JOB: tmp_path}), devices.problem


@pytest.mark.parametrize(
    ("rules", "default", "expected"),
    [
        # As Slurm writes them: every GPU of gres.conf is named, allowed or denied, and the rest is allowed.
        ([Rule(195, 0, DENY), Rule(195, 1, ACCEPT), Rule(195, 2, ACCEPT), Rule(195, 3, DENY)], ACCEPT, {1, 2}),
        ([Rule(195, number, DENY) for number in range(4)], ACCEPT, set()),
        ([Rule(195, number, ACCEPT) for number in range(4)], ACCEPT, {0, 1, 2, 3}),
        # GPU 3 is not in gres.conf: open to all, held by none.
        ([Rule(195, 0, DENY), Rule(195, 1, ACCEPT), Rule(195, 2, DENY)], ACCEPT, {1}),
        # As container runtimes write them: what is named is allowed.
        ([Rule(195, 2, ACCEPT), Rule(1, None, ACCEPT)], DENY, {2}),
        # Nothing is named: nothing is known.
        ([], ACCEPT, None),
        ([Rule(195, None, ACCEPT)], DENY, None),
    ],
)
def test_named_and_allowed_gpus_are_held(rules: list[Rule], default: int, expected: set[int] | None) -> None:
    found = allowed_by_programs([slurm_program(rules, default)], DEVICES)
    assert (None if expected is None else {f"GPU-{number}" for number in expected}) == found


def test_render_nodes_of_amd_and_intel_are_held(tmp_path: Path) -> None:
    gpus = [Gpu(index=n, uuid=f"GPU-{n}", minor=128 + n, vendor=Vendor.AMD) for n in range(2)]
    program = slurm_program([Rule(226, 128, DENY), Rule(226, 129, ACCEPT)])
    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: 0.0, read_programs=programs(program))
    assert {JOB: {"GPU-1"}} == devices.read(gpus, {JOB: tmp_path})


def test_all_programs_must_allow() -> None:
    outer, inner = slurm_program([Rule(195, 0, DENY)]), slurm_program([Rule(195, 0, ACCEPT), Rule(195, 1, ACCEPT)])
    assert frozenset({"GPU-1"}) == allowed_by_programs([outer, inner], DEVICES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a *:* rwm\n", None),
        ("c 1:3 rwm\nc 195:255 rwm\nc 195:2 rwm\nb 195:1 rwm\n", {"GPU-2"}),
        ("c 195:* rwm\n", None),
        ("c *:* rwm\n", set()),
        ("", set()),
    ],
)
def test_list_of_the_older_controller_is_read(text: str, expected: set[str] | None) -> None:
    assert expected == allowed_by_list(text, DEVICES)


def test_real_list_of_the_older_controller_is_read(devices_cgroup: Path) -> None:
    (devices_cgroup / "devices.deny").write_text("a", encoding="ascii")
    (devices_cgroup / "devices.allow").write_text("c 195:2 rw", encoding="ascii")
    devices = GpuDevices(procfs_root=Path("/proc"), clock=lambda: 0.0)

    assert {JOB: {"GPU-2"}} == devices.read(GPUS, {JOB: devices_cgroup})
    assert devices.problem is None


def test_denied_devices_of_the_older_controller_report_nothing(devices_cgroup: Path) -> None:
    (devices_cgroup / "devices.deny").write_text("c 195:2 rwm", encoding="ascii")
    devices = GpuDevices(procfs_root=Path("/proc"), clock=lambda: 0.0)

    assert {} == devices.read(GPUS, {JOB: devices_cgroup})
    assert devices.problem is None


@pytest.fixture
def devices_cgroup() -> Iterator[Path]:
    """Make a cgroup of the devices controller of version 1."""
    if os.geteuid() != 0 or not (DEVICES_V1 / "devices.list").exists():
        pytest.skip("needs root and the devices controller of cgroup v1")
    folder = DEVICES_V1 / f"slurmscope-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        folder.rmdir()


def test_program_of_a_job_reports_its_gpus(tmp_path: Path) -> None:
    program = slurm_program([Rule(195, 0, ACCEPT), Rule(195, 1, DENY)])
    assert ({JOB: {"GPU-0"}}, None) == read(tmp_path, programs(program))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EPERM, GpuReason.NO_PERMISSION),
        (errno.ENOSYS, GpuReason.FAILED),
        (errno.ENOENT, None),
        (errno.ENODEV, None),
        (errno.EBADF, None),
    ],
)
def test_error_of_the_kernel_is_a_reason(number: int, expected: GpuReason | None, tmp_path: Path) -> None:
    assert ({}, expected) == read(tmp_path, failing(number))


def test_program_that_is_not_understood_is_reported(tmp_path: Path) -> None:
    assert ({}, GpuReason.MALFORMED) == read(tmp_path, programs(b"\x85" * 8))


def test_who_may_not_ask_does_not_ask_again(tmp_path: Path) -> None:
    asked: list[Path] = []

    def refuse(cgroup: Path) -> list[bytes]:
        asked.append(cgroup)
        raise PermissionError(errno.EPERM, "no")

    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: 0.0, read_programs=refuse)
    for _ in range(3):
        devices.read(GPUS, {JOB: tmp_path})

    assert 1 == len(asked)
    assert GpuReason.NO_PERMISSION is devices.problem


def test_job_is_queried_about_once_a_minute(tmp_path: Path) -> None:
    now = [0.0]
    asked: list[Path] = []

    def note(cgroup: Path) -> list[bytes]:
        asked.append(cgroup)
        return [slurm_program([Rule(195, 0, ACCEPT)])]

    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: now[0], read_programs=note)
    for seconds in (0, 15, 59, 60, 61):
        now[0] = seconds
        assert {JOB: {"GPU-0"}} == devices.read(GPUS, {JOB: tmp_path})
    devices.read(GPUS, {})
    devices.read(GPUS, {JOB: tmp_path})

    assert 3 == len(asked)


def test_mig_instance_is_known_by_the_file_that_unlocks_it(tmp_path: Path) -> None:
    for number, minor in ((7, 66), (8, 75)):
        folder = tmp_path / "driver/nvidia/capabilities/gpu1/mig" / f"gi{number}/ci0"
        folder.mkdir(parents=True)
        (folder / "access").write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n", encoding="ascii")
    (tmp_path / "devices").write_text("Character devices:\n195 nvidia\n237 nvidia-caps\n", encoding="ascii")
    shared = {"index": 1, "minor": 1, "parent_uuid": "GPU-1", "compute_instance": 0}
    instances = [Gpu(uuid=f"MIG-{number}", gpu_instance=number, **shared) for number in (7, 8, 9)]  # type: ignore[arg-type]
    parent = Gpu(index=1, uuid="GPU-1", minor=1, has_instances=True)
    rules = [Rule(195, 1, ACCEPT), Rule(237, 66, DENY), Rule(237, 75, ACCEPT)]
    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: 0.0, read_programs=programs(slurm_program(rules)))

    assert {JOB: {"MIG-8"}} == devices.read([parent, *instances], {JOB: tmp_path})


def test_gpu_without_a_minor_number_is_not_judged(tmp_path: Path) -> None:
    devices = GpuDevices(procfs_root=tmp_path, clock=lambda: 0.0, read_programs=failing(errno.EPERM))
    assert {} == devices.read([Gpu(index=0, uuid="GPU-0")], {JOB: tmp_path})
    assert devices.problem is None
