# SPDX-License-Identifier: Apache-2.0
"""Check that text fits into columns whatever it is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.render.text import cut, lay_table, measure, pad, wrap


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    assert 3 == measure("abc")
    assert 4 == measure("漢字")
    assert 1 == measure("e\u0301")


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    assert "abcd" == cut("abcd", 4)
    assert "abc…" == cut("abcde", 4)
    assert "漢…" == cut("漢字漢字", 4)
    assert "" == cut("abc", 0)


def test_padding_fills_to_the_column() -> None:
    assert "漢字  " == pad("漢字", 6)
    assert "  漢字" == pad("漢字", 6, is_right=True)


def test_lines_break_at_blanks_and_within_long_words() -> None:
    assert ["one two", "three"] == wrap("one two three", 8)
    assert ["see", "abcdefgh", "ij"] == wrap("see abcdefghij", 8)
    assert [""] == wrap("", 8)
    assert ["漢", "字"] == wrap("漢字", 1)


@given(st.text(), st.integers(2, 60))
def test_no_line_is_wider_than_the_page_and_nothing_is_lost(text: str, columns: int) -> None:
    lines = wrap(text, columns)

    assert all(measure(line) <= columns for line in lines)
    assert text.replace(" ", "") == "".join(lines).replace(" ", "")


@given(st.text(), st.integers(0, 60))
def test_padded_text_is_exactly_as_wide_as_requested(text: str, columns: int) -> None:
    assert columns == measure(pad(text, columns))


def test_a_table_leaves_out_its_last_columns_where_they_do_not_fit() -> None:
    head, rows = ("Node", "CPU", "Memory"), [("n1", "50 %", "8 GiB")]

    assert ["Node   CPU  Memory", "n1    50 %   8 GiB"] == lay_table(head, rows, 30)
    assert ["Node   CPU", "n1    50 %"] == lay_table(head, rows, 15)
    assert ["Node", "n1"] == lay_table(head, rows, 8)
