# SPDX-License-Identifier: Apache-2.0
"""Check that files are read completely, on few descriptors, and that failures are distinguished."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node.cgroup.kept_files import MOST_BYTES, PAGE, DescriptorBudget, Folder
from tests.unit.node.cgroup.conftest import count_descriptors, no_descriptors_left

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Return a folder whose files may all stay open."""
    folder = Folder(str(tmp_path), DescriptorBudget(10))
    yield folder
    folder.close()


def test_kept_file_is_read_again_from_its_beginning(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    file = folder.open_file("f")
    assert b"1\n" == file.read()
    (tmp_path / "f").write_text("22\n")
    assert b"22\n" == file.read()


@pytest.mark.parametrize("size", [PAGE - 1, PAGE, PAGE + 1, 5 * PAGE])
def test_file_longer_than_expected_is_read_whole(folder: Folder, tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    file = folder.open_file("f")
    assert [size] * 3 == [len(file.read()), len(file.read()), len(file.read_list())]


def test_overlong_file_is_rejected(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (MOST_BYTES + 1))
    assert b"" == folder.open_file("f").read()
    assert b"" == folder.open_file("f").read_list()
    assert {"f": "File too large"} == folder.unreadable


def test_missing_file_is_opened_again_only_after_retry(folder: Folder, tmp_path: Path) -> None:
    file = folder.open_file("f")
    assert b"" == file.read()
    (tmp_path / "f").write_text("1\n")
    assert b"" == file.read()
    folder.retry()
    assert b"1\n" == file.read()
    assert {} == folder.unreadable


def test_missing_file_is_no_missing_folder(folder: Folder) -> None:
    folder.open_file("f").read()
    assert not folder.is_gone


def test_file_that_becomes_readable_is_no_longer_reported(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    file = folder.open_file("f")
    file.read()
    assert {"f": "Is a directory"} == folder.unreadable
    (tmp_path / "f").rmdir()
    (tmp_path / "f").write_text("1\n")
    folder.retry()
    assert b"1\n" == file.read()
    assert {} == folder.unreadable


def test_budget_is_kept_and_given_back(tmp_path: Path) -> None:
    budget = DescriptorBudget(3)
    before = count_descriptors()
    folder = Folder(str(tmp_path), budget)
    files = []
    for index in range(6):
        (tmp_path / str(index)).write_text(f"{index}")
        files.append(folder.open_file(str(index)))
    assert [b"0", b"1", b"2", b"3", b"4", b"5"] == [file.read() for file in files]
    assert (3, 3) == (budget.taken, count_descriptors() - before)
    folder.release()
    assert (0, 0) == (budget.taken, count_descriptors() - before)
    assert b"5" == files[5].read()
    folder.close()
    assert b"" == files[5].read()
    assert (0, 0) == (budget.taken, count_descriptors() - before)


def test_steps_leave_half_of_the_budget_to_jobs() -> None:
    budget = DescriptorBudget(4)
    assert [True, True, False] == [budget.take(is_optional=True) for _ in range(3)]
    assert [True, True, False] == [budget.take(is_optional=False) for _ in range(3)]


def test_lack_of_descriptors_is_temporary(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    folder = Folder(str(tmp_path), DescriptorBudget(0))
    file = folder.open_file("f")
    with no_descriptors_left():
        short = file.read()
    assert b"" == short
    assert {"f": "Too many open files"} == folder.unreadable
    assert b"1\n" == file.read()
    assert {} == folder.unreadable


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_unreadable_file_is_reported() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "f").write_text("1\n")
        (Path(name) / "f").chmod(0o600)
        folder = Folder(name, DescriptorBudget(0))
        os.seteuid(NOBODY)
        try:
            data = folder.open_file("f").read()
        finally:
            os.seteuid(0)
    assert b"" == data
    assert {"f": "Permission denied"} == folder.unreadable
    assert not folder.is_gone
