# SPDX-License-Identifier: Apache-2.0
"""A curve in one line keeps its shape, its gaps and its peaks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.render.text import ASCII, BLOCKS, draw_sparkline


@pytest.mark.parametrize(
    ("values", "columns", "drawn"),
    [
        ((), 10, ""),
        ((0, 0), 10, "▁▁"),
        ((0, 1, 2, 3, 4, 5, 6, 7, 8), 20, "▁▂▃▄▅▆▇██"),
        ((1, None, 1), 10, "█ █"),
        ((None, None), 10, "  "),
        ((0, 0, 9, 0, 0, 0), 3, "▁█▁"),
        ((5, 5), 0, "█"),
    ],
)
def test_curve_is_drawn(values: tuple[float | None, ...], columns: int, drawn: str) -> None:
    assert drawn == draw_sparkline(values, columns)


def test_other_marks_can_be_chosen() -> None:
    assert "_#" == draw_sparkline((0, 1), 5, ASCII)


@given(st.lists(st.none() | st.floats(0, 1e15), max_size=300), st.integers(1, 100))
def test_any_curve_fits(values: list[float | None], columns: int) -> None:
    drawn = draw_sparkline(values, columns)

    assert len(drawn) == min(len(values), columns)
    assert set(drawn) <= {*BLOCKS, " "}
