# SPDX-License-Identifier: Apache-2.0
"""Check the parsers of the two format languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.simulator.commands.listing import Column, ColumnLayout, parse_long_format, parse_short_format

names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", min_size=1)
# A digit or a dot at the start of a suffix would belong to the width.
suffixes = st.text(st.characters(exclude_characters=",\0"), max_size=8).filter(
    lambda suffix: suffix[:1] not in set("0123456789.")
)
columns = st.builds(Column, name=names, width=st.integers(0, 999), is_right=st.booleans(), suffix=suffixes)


def long_text(column: Column) -> str:
    """Write a column as a user types it."""
    return f"{column.name}:{'.' if column.is_right else ''}{column.width or ''}{column.suffix}"


# Each was given to the real squeue -O for the job 1 named "plain": its answer is in the comment.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JobID", [Column(name="JobID", width=20)]),  # "1                   "
        ("JobID:,Name:", [Column(name="JobID"), Column(name="Name")]),  # "1plain"
        ("JobID:5abc", [Column(name="JobID", width=5, suffix="abc")]),  # "1    abc"
        ("Name:.12|x", [Column(name="Name", width=12, is_right=True, suffix="|x")]),  # "       plain|x"
        ("State:ab:cd|", [Column(name="State", suffix="ab:cd|")]),  # "RUNNINGab:cd|"
        ("Partition:.x", [Column(name="Partition", is_right=True, suffix="x")]),  # "debugx"
        ("Name:007|", [Column(name="Name", width=7, suffix="|")]),  # "plain  |"
        ("JobID:|,,Name:|,", [Column(name="JobID", suffix="|"), Column(name="Name", suffix="|")]),  # "1|plain|"
        ("JobID:\x1e\x1f", [Column(name="JobID", suffix="\x1e\x1f")]),  # "1\x1e\x1f"
        ("", []),  # ""
    ],
)
def test_long_formats_are_read_as_squeue_reads_them(text: str, expected: list[Column]) -> None:
    assert ColumnLayout(columns=tuple(expected)) == parse_long_format(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%i|%.8j", ColumnLayout(columns=(Column(name="i", suffix="|"), Column(name="j", width=8, is_right=True)))),
        ('{"a": "%a"}', ColumnLayout(prefix='{"a": "', columns=(Column(name="a", suffix='"}'),))),
        ("nothing", ColumnLayout(prefix="nothing", columns=())),
        ("%i%", ColumnLayout(columns=(Column(name="i"),))),
        ("%5j%% %T", ColumnLayout(columns=(Column(name="j", width=5), Column(name="%", suffix=" "), Column(name="T")))),
    ],
)
def test_short_formats_are_read_as_squeue_reads_them(text: str, expected: ColumnLayout) -> None:
    assert expected == parse_short_format(text)


@given(st.lists(columns, max_size=6))
def test_a_written_long_format_is_read_back(wanted: list[Column]) -> None:
    assert tuple(wanted) == parse_long_format(",".join(long_text(column) for column in wanted)).columns


@given(st.text(max_size=200))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for layout in (parse_long_format(text), parse_short_format(text)):
        assert all(0 <= column.width <= 65_535 for column in layout.columns)


@given(st.lists(st.tuples(st.sampled_from("ijTuPR"), suffixes.filter(lambda suffix: "%" not in suffix)), max_size=6))
def test_a_written_short_format_is_read_back(wanted: list[tuple[str, str]]) -> None:
    text = "".join(f"%{letter}{suffix}" for letter, suffix in wanted)
    assert wanted == [(column.name, column.suffix) for column in parse_short_format(text).columns]
