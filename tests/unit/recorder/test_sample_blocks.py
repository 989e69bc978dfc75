# SPDX-License-Identifier: Apache-2.0
"""Blocks give back what was put in, and their sums are those of the samples."""

from __future__ import annotations

import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.recorder.slabs import BlockSummary, digest, grow, join, pack_floats, unpack_floats

FLOATS = st.lists(st.floats(allow_nan=False), max_size=50)
COUNTS = st.lists(st.integers(0, 9), min_size=2, max_size=20)


@given(FLOATS)
def test_packed_numbers_come_back(numbers: list[float]) -> None:
    assert numbers == list(unpack_floats(pack_floats(array("d", numbers))))


def test_steady_numbers_take_little_room() -> None:
    counter = array("d", (1e9 + 15.0 * turn for turn in range(240)))
    assert len(pack_floats(counter)) < len(counter) * 3
    assert len(pack_floats(array("d", [8.0] * 240))) < 40


@pytest.mark.parametrize(
    "packed", [b"", b"nonsense", zlib.compress(b"12345"), pack_floats(array("d", [1.0] * 99))[:-1]]
)
def test_damaged_numbers_are_rejected(packed: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack_floats(packed)


def test_reset_counter_goes_on_where_it_was() -> None:
    assert [5.0, 7.0, 8.0, 11.0, 11.0] == list(grow([5.0, 7.0, 1.0, 4.0, 0.0]))
    assert [5.0, 7.0, 7.0] == list(grow([5.0, 7.0, 7.0]))


def test_samples_are_summed_up() -> None:
    expected = BlockSummary(
        first_at=10.0, last_at=40.0, samples=4.0, total=17.0, highest=7.0, first=5.0, last=4.0, growth=2.0 + 1.0 + 3.0
    )
    assert expected == digest([10.0, 20.0, 30.0, 40.0], [5.0, 7.0, 1.0, 4.0])


@given(values=COUNTS, data=st.data())
def test_joined_sums_are_those_of_all_samples(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    times = list(range(len(values)))
    assert digest(times, values) == join(digest(times[:cut], values[:cut]), digest(times[cut:], values[cut:]))
