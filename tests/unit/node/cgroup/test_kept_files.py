# SPDX-License-Identifier: Apache-2.0
"""Check that a batch reads the same content as single reads, and never another file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node.cgroup.kept_files import SIZE, Batch, DescriptorBudget, Folder, Memo

NAMES = ("a", "b", "c")


@pytest.fixture
def budget() -> DescriptorBudget:
    """Return a budget that keeps everything open."""
    return DescriptorBudget(10)


@pytest.fixture
def folder(tmp_path: Path, budget: DescriptorBudget) -> Iterator[Folder]:
    """Return a folder with three files that contain their names."""
    for name in NAMES:
        (tmp_path / name).write_text(name)
    folder = Folder(str(tmp_path), budget)
    yield folder
    folder.close()


def test_texts_come_in_the_order_of_the_files_and_are_new_each_time(
    folder: Folder, budget: DescriptorBudget, tmp_path: Path
) -> None:
    batch = Batch(budget, [folder.open_file("c"), None, folder.open_file("missing"), folder.open_file("a")])
    assert [[b"c", b"", b"", b"a"]] * 3 == [batch.read() for _ in range(3)]
    (tmp_path / "a").write_text("new")
    assert [b"c", b"", b"", b"new"] == batch.read()


def test_file_that_was_missing_is_read_after_a_reset(folder: Folder, budget: DescriptorBudget, tmp_path: Path) -> None:
    batch = Batch(budget, [folder.open_file("late")])
    assert [b""] == batch.read()
    (tmp_path / "late").write_text("here")
    folder.retry()
    batch.reset()
    assert [b"here"] == batch.read()


def test_reused_descriptor_number_is_not_read_for_the_old_file(
    folder: Folder, budget: DescriptorBudget, tmp_path: Path
) -> None:
    (tmp_path / "stranger").write_text("stranger")
    files = [folder.open_file(name) for name in NAMES]
    batch = Batch(budget, files)
    batch.read()
    number = files[1].descriptor
    files[1].release()
    stranger = os.open(tmp_path / "stranger", os.O_RDONLY)
    try:
        assert number == stranger
        assert [b"a", b"b", b"c"] == batch.read()
    finally:
        os.close(stranger)


def test_closing_elsewhere_does_not_slow_others_down(folder: Folder, budget: DescriptorBudget, tmp_path: Path) -> None:
    batch = Batch(budget, [folder.open_file("a"), folder.open_file("b")])
    other = folder.open_file("c")
    other.read()
    batch.read()
    other.release()
    assert [b"a", b"b"] == batch.read()
    assert 2 == budget.taken


@pytest.mark.parametrize("limit", [0, 2, 3])
def test_results_do_not_depend_on_the_descriptor_limit(tmp_path: Path, limit: int) -> None:
    budget = DescriptorBudget(limit)
    folder = Folder(str(tmp_path), budget)
    for name in NAMES:
        (tmp_path / name).write_text(name)
    batch = Batch(budget, [folder.open_file(name) for name in NAMES])
    assert [[b"a", b"b", b"c"]] * 3 == [batch.read() for _ in range(3)]
    assert limit == budget.taken
    folder.close()


@pytest.mark.parametrize("size", [SIZE - 1, SIZE, SIZE + 1, 3 * SIZE])
def test_long_file_is_read_whole(folder: Folder, budget: DescriptorBudget, tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    batch = Batch(budget, [folder.open_file("a")])
    assert [size] * 3 == [len(batch.read()[0]) for _ in range(3)]


def test_empty_batch_reads_nothing() -> None:
    batch = Batch(DescriptorBudget(1))
    assert [[], []] == [batch.read(), batch.read()]


def test_same_text_is_parsed_once() -> None:
    parsed: list[bytes] = []

    def parse(text: bytes) -> int:
        parsed.append(text)
        return len(text)

    memo = Memo(parse)
    assert [3, 3, 0, 3] == [memo(text) for text in (b"abc", b"abc", b"", b"abc")]
    assert [b"", b"abc", b"", b"abc"] == parsed
