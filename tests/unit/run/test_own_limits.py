# SPDX-License-Identifier: Apache-2.0
"""The cores and the memory that a process may use are the least of all limits that apply to it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from slurmscope.run.context import OwnLimits, find_controllers

MIB = 1 << 20
V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1_MOUNTS = (
    "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def make_root(folder: Path, *, mounts: str, groups: str, **files: str) -> Path:
    written = {
        "proc/self/mountinfo": mounts,
        "proc/self/cgroup": groups,
        "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 5 kB\n",
        **{name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()},
    }
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def put(root: Path, folder: str, **files: str) -> None:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / folder / name.replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_least_limit_of_the_v2_tree_applies(tmp_path: Path) -> None:
    root = make_root(tmp_path, mounts=V2_MOUNT, groups="0::/slurm/job_7/step_0\n")
    put(root, "slurm", memory_dot_max=f"{900 * MIB}\n", cpu_dot_max="800000 100000\n")
    put(root, "slurm/job_7", memory_dot_max=f"{512 * MIB}\n", cpu_dot_max="150000 100000\n")
    put(
        root, "slurm/job_7/step_0", memory_dot_max="max\n", cpu_dot_max="max 100000\n", memory_dot_events="oom_kill 3\n"
    )

    limits = OwnLimits(root)
    allowance = limits.read()

    assert (1.5, 512 * MIB, "cgroup") == (allowance.cores, allowance.memory_bytes, allowance.memory_origin)
    assert 3 == limits.oom_kills()


def test_least_limit_of_the_v1_trees_applies(tmp_path: Path) -> None:
    groups = "5:memory:/slurm/job_7\n4:cpuacct,cpu:/slurm/job_7\n1:name=systemd:/\n"
    root = make_root(tmp_path, mounts=V1_MOUNTS, groups=groups)
    put(root, "memory/slurm/job_7", memory_dot_limit_in_bytes=f"{1 << 63}\n", memory_dot_oom_control="oom_kill 2\n")
    put(root, "memory/slurm", memory_dot_limit_in_bytes=f"{256 * MIB}\n")
    put(root, "cpu,cpuacct/slurm/job_7", cpu_dot_cfs_quota_us="-1\n", cpu_dot_cfs_period_us="100000\n")
    put(root, "cpu,cpuacct/slurm", cpu_dot_cfs_quota_us="400000\n", cpu_dot_cfs_period_us="100000\n")

    limits = OwnLimits(root)
    allowance = limits.read()

    assert (4.0, 256 * MIB, "cgroup") == (allowance.cores, allowance.memory_bytes, allowance.memory_origin)
    assert 2 == limits.oom_kills()


def test_without_limits_there_are_the_affinity_and_the_machine(tmp_path: Path) -> None:
    root = make_root(tmp_path, mounts=V2_MOUNT, groups="0::/\n")

    allowance = OwnLimits(root).read()

    assert (16.0, 1024 * MIB, "machine") == (allowance.cores, allowance.memory_bytes, allowance.memory_origin)
    assert OwnLimits(root).oom_kills() is None


def test_ulimit_counts_where_it_is_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (100 * MIB, 200 * MIB))
    root = make_root(tmp_path, mounts="", groups="")

    allowance = OwnLimits(root).read()

    assert (100 * MIB, "ulimit") == (allowance.memory_bytes, allowance.memory_origin)


def test_nothing_readable_sets_no_limit(tmp_path: Path) -> None:
    allowance = OwnLimits(tmp_path).read()

    assert (16.0, None, "") == (allowance.cores, allowance.memory_bytes, allowance.memory_origin)
    assert OwnLimits(tmp_path).oom_kills() is None


def test_part_of_the_tree_that_a_container_sees_is_found() -> None:
    mounts = "30 24 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

    inside = find_controllers(mounts, "0::/docker/abc/task\n")
    outside = find_controllers(mounts, "0::/other\n")
    escaping = find_controllers(mounts, "0::/docker/abc/../../etc\n")

    assert Path("/sys/fs/cgroup/task") == inside["memory"].folder
    assert Path("/sys/fs/cgroup") == outside["cpu"].folder
    assert {} == escaping


def test_controllers_that_are_still_v1_come_before_v2() -> None:
    mounts = V2_MOUNT.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ") + V1_MOUNTS
    groups = "5:memory:/m\n4:cpu,cpuacct:/c\n0::/u\n"

    for order in (mounts, "".join(reversed(mounts.splitlines(keepends=True)))):
        found = find_controllers(order, groups)
        assert {"cpu": False, "memory": False} == {name: one.is_v2 for name, one in found.items()}


@pytest.mark.parametrize("text", ["", "junk", "a - b", "1 2 3 4 5 6 - cgroup2", "1 2 3 / /x - ext4 a b"])
def test_other_mounts_are_skipped(text: str) -> None:
    assert {} == find_controllers(text, "0::/x\n")


def test_real_kernel_gives_what_nproc_and_free_show() -> None:
    allowance = OwnLimits().read()

    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < allowance.cores <= 16
    assert allowance.memory_bytes is not None
    assert 0 < allowance.memory_bytes <= memory_bytes
