# SPDX-License-Identifier: Apache-2.0
"""Check which lists of mounts are read: the host's, our own, and that of a job in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.node import mounts
from slurmscope.node.mounts import MAX_PROCESSES, read_mounts

HOST, OTHER = "mnt:[1]", "mnt:[2]"


def add_process(root: Path, pid: str, name: str | None, namespace: str | None = HOST) -> None:
    (root / pid / "ns").mkdir(parents=True)
    if name is not None:
        (root / pid / "mountstats").write_text(f"device {name} mounted on /m with fstype nfs4 statvers=1.1\n")
    if namespace is not None:
        (root / pid / "ns" / "mnt").symlink_to(namespace)


def names(root: Path, *pids: int) -> list[str]:
    return [mount.filesystem.name for mount in read_mounts(root, pids)]


def test_mounts_of_the_host_are_read(tmp_path: Path) -> None:
    add_process(tmp_path, "1", "host:/")
    add_process(tmp_path, "self", "own:/")

    assert ["host:/"] == names(tmp_path)


def test_own_mounts_are_read_without_those_of_the_host(tmp_path: Path) -> None:
    add_process(tmp_path, "self", "own:/")

    assert ["own:/"] == names(tmp_path)


def test_no_list_means_no_mounts(tmp_path: Path) -> None:
    assert [] == names(tmp_path)


def test_list_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "self" / "mountstats").mkdir(parents=True)

    with pytest.raises(SourceError, match="mountstats"):
        read_mounts(tmp_path)


def test_mounts_of_one_process_in_another_namespace_are_added(tmp_path: Path) -> None:
    add_process(tmp_path, "1", "host:/")
    add_process(tmp_path, "20", "same:/")
    add_process(tmp_path, "21", "denied:/", namespace=None)
    add_process(tmp_path, "22", None, namespace=OTHER)
    add_process(tmp_path, "23", "job:/", namespace=OTHER)
    add_process(tmp_path, "24", "further:/", namespace=OTHER)

    assert ["host:/", "job:/"] == names(tmp_path, 24, 23, 22, 21, 20, 19)


def test_few_processes_are_compared(tmp_path: Path) -> None:
    add_process(tmp_path, "1", "host:/")
    add_process(tmp_path, "99", "job:/", namespace=OTHER)

    assert ["host:/"] == names(tmp_path, *range(10, 10 + MAX_PROCESSES), 99)


def test_mount_that_is_cut_off_at_the_limit_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_process(tmp_path, "1", "a:/")
    with (tmp_path / "1" / "mountstats").open("a") as file:
        file.write("device b:/ mounted on /b with fstype nfs4 statvers=1.1\n\tage:\t12345\n")
    monkeypatch.setattr(mounts, "MAX_BYTES", 100)

    assert ["a:/"] == names(tmp_path)
