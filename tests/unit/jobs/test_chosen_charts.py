# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.charts import choose_charts, is_flat
from slurmscope.jobs.render.svg.charts import describe_range
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from tests.fakes.reports import make_gpu_report, make_report


def make_chart(name: str, subject: Subject, *values: float, reference: float | None = None) -> Chart:
    lines = (ChartLine(label="n1", values=values),)
    times = tuple(float(index) for index in range(len(values)))
    return Chart(name=name, title=name, unit="cores", subject=subject, times=times, lines=lines, reference=reference)


def report_of(charts: tuple[Chart, ...], marked: tuple[Subject, ...] = (), *, has_gpus: bool = False) -> JobReport:
    report = make_gpu_report() if has_gpus else make_report()
    findings = tuple(replace(report.findings[0], subject=subject, consequences=()) for subject in marked)
    return replace(report, charts=charts, findings=findings)


CHARTS = (
    make_chart("cpu", Subject.CPU, 1, 2, 4),
    make_chart("memory", Subject.MEMORY, 1, 2, 3),
    make_chart("gpu", Subject.GPU, 0, 1, 2),
    make_chart("read", Subject.FILES, 5, 1, 1),
    make_chart("write", Subject.FILES, 1, 5, 1),
    make_chart("cpu_split", Subject.CPU, 1, 2, 4),
    make_chart("open_files", Subject.FILES, 30, 30, 30),
)


@pytest.mark.parametrize(
    ("marked", "has_gpus", "shown"),
    [
        ((), False, ["cpu", "memory", "gpu", "read"]),
        ((), True, ["gpu", "cpu", "memory", "read"]),
        ((Subject.MEMORY,), True, ["gpu", "memory", "cpu", "read"]),
        ((Subject.FILES,), False, ["read", "write", "cpu", "memory"]),
    ],
)
def test_four_charts_are_chosen_that_matter(marked: tuple[Subject, ...], has_gpus: bool, shown: list[str]) -> None:
    assert shown == [chart.name for chart in choose_charts(report_of(CHARTS, marked, has_gpus=has_gpus), 4).shown]


def test_flat_chart_is_named_instead_of_drawn() -> None:
    flat = make_chart("memory", Subject.MEMORY, 30.0, 31.0, 30.0, reference=64.0)
    chosen = choose_charts(report_of((CHARTS[0], flat)))
    assert (["cpu"], ["memory"]) == ([chart.name for chart in chosen.shown], [chart.name for chart in chosen.flat])
    assert "30 to 31" == describe_range(flat)
    # The finding about it needs the picture.
    assert flat in choose_charts(report_of((CHARTS[0], flat), (Subject.MEMORY,))).shown
    # A page with nothing but flat charts still shows them.
    assert ((flat,), ()) == choose_charts(report_of((flat,)))


@pytest.mark.parametrize(
    ("values", "reference", "expected"),
    [((0, 0, 0), None, True), ((0, 1, 0), None, False), ((0, 1, 0), 32.0, True), ((), None, True)],
)
def test_chart_is_flat_within_a_twentieth_of_its_scale(
    values: tuple[float, ...], reference: float | None, expected: bool
) -> None:
    assert expected is is_flat(make_chart("cpu", Subject.CPU, *values, reference=reference))
