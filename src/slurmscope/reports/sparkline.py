# SPDX-License-Identifier: Apache-2.0
"""Draw a curve in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
"""For terminals that have no block characters."""


def draw_sparkline(values: Sequence[float | None], columns: int, marks: str = BLOCKS) -> str:
    """Draw values from 0 to the highest in at most this many columns; a gap is a blank.

    Where values share a column, their highest counts: a short peak stays visible.
    """
    peaks = [_highest(values[first:last]) for first, last in _slices(len(values), columns)]
    top = max((peak for peak in peaks if peak is not None), default=0.0)
    return "".join(" " if peak is None else marks[_level(peak, top, len(marks))] for peak in peaks)


def _slices(count: int, columns: int) -> list[tuple[int, int]]:
    width = min(count, max(1, columns))
    return [(count * index // width, count * (index + 1) // width) for index in range(width)]


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _level(value: float, top: float, levels: int) -> int:
    return 0 if top <= 0 else min(levels - 1, int(value / top * levels))
