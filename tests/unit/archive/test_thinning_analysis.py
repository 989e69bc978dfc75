# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope.archive.stored_reports import thin_chart, thin_heat_map
from slurmscope.jobs.report import Chart, ChartLine, HeatMap
from slurmscope.jobs.rule import Subject


def make_chart(unit: str, *values: float | None) -> Chart:
    times = tuple(float(10 * number) for number in range(len(values)))
    lines = (ChartLine(label="n1", values=values),)
    return Chart(name="x", title="X", unit=unit, subject=Subject.CPU, times=times, lines=lines, reference=4.0)


@pytest.mark.parametrize(
    ("unit", "expected"),
    # Pairs of 1, 3 | None, 6 | None, None | 1/3 alone.
    [("cores", (2.0, 6.0, None, 0.3333)), ("bytes", (3.0, 6.0, None, 0.3333))],
)
def test_points_become_means_and_of_memory_the_highest(unit: str, expected: tuple[float | None, ...]) -> None:
    chart = make_chart(unit, 1.0, 3.0, None, 6.0, None, None, 1 / 3)

    thinned = thin_chart(chart, 4)

    assert ((5.0, 25.0, 45.0, 60.0), expected) == (thinned.times, thinned.lines[0].values)
    assert (chart.title, chart.reference) == (thinned.title, thinned.reference)


@pytest.mark.parametrize("points", [3, 100])
def test_chart_with_few_points_keeps_them(points: int) -> None:
    chart = make_chart("cores", 1.0, None, 0.0)

    assert chart == thin_chart(chart, points)


def test_chart_without_points_stays_empty() -> None:
    assert make_chart("cores") == thin_chart(make_chart("cores"), 60)


def test_columns_of_a_heat_map_begin_with_the_first_that_they_replace() -> None:
    rows = (ChartLine(label="n1", values=(1.0, 2.0, 4.0)), ChartLine(label="n2", values=(None, None, 0.0)))
    heat_map = HeatMap(name="x", title="X", unit="ratio", times=(0.0, 10.0, 20.0), end_seconds=30.0, rows=rows)

    thinned = thin_heat_map(heat_map, 2)

    assert ((0.0, 20.0), 30.0) == (thinned.times, thinned.end_seconds)
    assert [(1.5, 4.0), (None, 0.0)] == [row.values for row in thinned.rows]
