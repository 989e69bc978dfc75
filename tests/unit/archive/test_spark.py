# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.job_columns import POINTS, make_spark
from slurmscope.core.tres import Gres
from slurmscope.jobs.report import Chart, ChartLine
from slurmscope.jobs.rule import Subject
from tests.fakes.reports import make_record, make_report


def make_line(name: str, *lines: tuple[float | None, ...], reference: float | None = None) -> Chart:
    return Chart(
        name=name,
        title=name,
        unit="cores",
        subject=Subject.CPU,
        times=tuple(float(number) for number in range(len(lines[0]))),
        lines=tuple(ChartLine(label=str(number), values=values) for number, values in enumerate(lines)),
        reference=reference,
    )


def test_each_part_is_the_mean_over_nodes_as_a_share_of_the_allocated_cores() -> None:
    """Two nodes of 4 cores: one is idle, the other goes from busy over unknown to half."""
    busy = (4.0,) * 8 + (None,) * 8 + (2.0,) * 8
    chart = make_line("cpu", busy, (0.0,) * 8 + (None,) * 8 + (0.0,) * 8, reference=4.0)

    # Half of 9 is rounded to the even 4; a quarter of it is 2.25.
    assert "4" * 8 + "-" * 8 + "2" * 8 == make_spark(make_report(charts=(chart,)))


@pytest.mark.parametrize("charts", [(), (make_line("cpu", (1.0, 2.0)),), (make_line("gpu", (1.0, 1.0)),)])
def test_nothing_is_drawn_without_a_curve_of_known_size(charts: tuple[Chart, ...]) -> None:
    assert "" == make_spark(make_report(charts=charts))


def test_job_with_gpus_shows_these() -> None:
    record = replace(make_record(), gres=(Gres(name="gpu", count=1),))
    charts = (make_line("cpu", (4.0,) * POINTS, reference=4.0), make_line("gpu", (0.0,) * POINTS))
    assert "0" * POINTS == make_spark(make_report(record, charts=charts))


def test_young_job_has_no_gaps_between_its_few_points() -> None:
    assert "99999" == make_spark(make_report(charts=(make_line("cpu", (4.0,) * 5, reference=4.0),)))


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=500))
def test_it_is_never_longer_than_its_column(values: list[float | None]) -> None:
    text = make_spark(make_report(charts=(make_line("cpu", tuple(values), reference=2.0),)))
    assert min(POINTS, len(values)) == len(text)
    assert set(text) <= set("0123456789-")
