# SPDX-License-Identifier: Apache-2.0
"""Check that every way to mount cgroups is detected, below any root."""

from pathlib import Path

import pytest

from slurmscope.node.cgroup.tree import LayoutKind, detect_layout
from tests.unit.node.cgroup.conftest import Machine

V1 = "cgroup /sys/fs/cgroup/{folder} cgroup rw,relatime,{options} 0 0\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty machine."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def mount(root: Path, folder: str, options: str) -> None:
    (root / "cgroup" / folder).mkdir()
    (root / "cgroup" / folder / "cgroup.procs").touch()
    with (root / "proc" / "self" / "mounts").open("a") as table:
        table.write(V1.format(folder=folder, options=options))


def test_captured_v2_is_v2(v2: Machine) -> None:
    layout = detect_layout(v2.cgroups, v2.procfs)
    assert LayoutKind.V2 == layout.kind
    assert v2.cgroups == layout.unified
    assert {} == layout.hierarchies


def test_captured_v1_is_v1(v1: Machine) -> None:
    layout = detect_layout(v1.cgroups, v1.procfs)
    assert LayoutKind.V1 == layout.kind
    names = ("cpuacct", "cpuset", "devices", "freezer", "memory")
    assert {name: v1.cgroups / name for name in names} == layout.hierarchies


def test_v1_beside_a_bare_v2_is_hybrid(v1: Machine) -> None:
    v1.write("unified/cgroup.controllers", "hugetlb\n")
    layout = detect_layout(v1.cgroups, v1.procfs)
    assert LayoutKind.HYBRID == layout.kind
    assert v1.cgroups / "memory" == layout.hierarchies["memory"]


def test_v2_with_the_controllers_is_preferred_to_v1_without_them(root: Path) -> None:
    mount(root, "net_cls", "net_cls")
    (root / "cgroup" / "unified").mkdir()
    (root / "cgroup" / "unified" / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    layout = detect_layout(root / "cgroup", root / "proc")
    assert LayoutKind.V2 == layout.kind
    assert root / "cgroup" / "unified" == layout.unified


def test_controllers_mounted_together_share_a_folder(root: Path) -> None:
    mount(root, "cpu,cpuacct", "cpu,cpuacct")
    mount(root, "memory", "memory")
    (root / "cgroup" / "cpuacct").symlink_to("cpu,cpuacct")
    layout = detect_layout(root / "cgroup", root / "proc")
    together = root / "cgroup" / "cpu,cpuacct"
    assert {"cpu": together, "cpuacct": together, "memory": root / "cgroup" / "memory"} == layout.hierarchies


def test_folder_names_are_enough_without_a_table_of_mounts(root: Path) -> None:
    mount(root, "cpu,cpuacct", "cpu,cpuacct")
    mount(root, "freezer", "freezer")
    (root / "proc" / "self" / "mounts").unlink()
    (root / "cgroup" / "memory").mkdir()  # not mounted: there is nothing in it
    layout = detect_layout(root / "cgroup", root / "proc")
    together = root / "cgroup" / "cpu,cpuacct"
    assert {"cpu": together, "cpuacct": together, "freezer": root / "cgroup" / "freezer"} == layout.hierarchies


def test_mount_of_another_name_is_known_by_its_options(root: Path) -> None:
    mount(root, "accounting", "cpuacct,release_agent=/x")
    layout = detect_layout(root / "cgroup", root / "proc")
    assert {"cpuacct": root / "cgroup" / "accounting"} == layout.hierarchies


def test_mounts_elsewhere_are_not_ours(root: Path) -> None:
    (root / "proc" / "self" / "mounts").write_text("cgroup /elsewhere/memory cgroup rw,memory 0 0\nbroken line\n")
    assert LayoutKind.UNSUPPORTED == detect_layout(root / "cgroup", root / "proc").kind


def test_bare_v2_without_v1_is_unsupported(root: Path) -> None:
    (root / "cgroup" / "unified").mkdir()
    (root / "cgroup" / "unified" / "cgroup.controllers").write_text("\n")
    assert LayoutKind.UNSUPPORTED == detect_layout(root / "cgroup", root / "proc").kind


def test_machine_without_cgroups_is_unsupported(tmp_path: Path) -> None:
    assert LayoutKind.UNSUPPORTED == detect_layout(tmp_path / "nowhere", tmp_path / "nothing").kind
