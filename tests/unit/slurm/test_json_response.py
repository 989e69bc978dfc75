# SPDX-License-Identifier: Apache-2.0
"""Tasks of an array are counted as sbatch made them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.slurm.text import count_tasks, is_cut


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("7", 1),
        ("1-10", 10),
        ("1-10%2", 10),
        ("0,3,5-9:2", 5),
        ("0-999:3", 334),
        ("1-2,5,8-9", 5),
        ("5-5", 1),
        ("0-4000000", 4000001),
    ],
)
def test_tasks_are_counted(text: str, tasks: int) -> None:
    assert tasks == count_tasks(text)
    assert not is_cut(text)


@pytest.mark.parametrize(
    "text",
    [
        # As squeue 22.05 has cut it.
        "1-2,5,8-9,12,14,17-18,21-22,24,26,28-31,33,35-36,38,44,48,57...",
        "1-2,5,8-9,12,14,17-18,21-22,24,26,28-31,33,35-36,38,44,48,57...%4",
        "1-2,...",
        "1...",
    ],
)
def test_cut_list_is_recognised_and_not_counted(text: str) -> None:
    assert is_cut(text)
    with pytest.raises(ValueError, match="not a"):
        count_tasks(text)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "9-1", "1-9:0", "1,,2", "1 ", "٣", "1-99999999999", "[1-3]"])
def test_other_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        count_tasks(text)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_count_is_that_of_the_ids_written_one_by_one(ids: set[int]) -> None:
    assert len(ids) == count_tasks(",".join(map(str, sorted(ids))))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_count_of_a_range_is_that_of_a_range_of_python(first: int, length: int, step: int) -> None:
    assert len(range(first, first + length + 1, step)) == count_tasks(f"{first}-{first + length}:{step}")
