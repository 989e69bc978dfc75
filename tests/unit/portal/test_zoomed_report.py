# SPDX-License-Identifier: Apache-2.0
"""A part of a run has finer charts where there are finer curves, and is cut from the report elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.report import Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Measured, Series
from slurmscope.portal.zoom import RunPart, ZoomedReport, find_curves, zoom_report
from tests.fakes.reports import START, make_record, make_report

PART = RunPart(START + 600.0, START + 1200.0)
NOTHING = Measured()


def chart(name: str = "cpu", *, step: int = 300, nodes: int = 1) -> Chart:
    times = tuple(float(START + at) for at in range(0, 7201, step))
    lines = tuple(
        ChartLine(label=f"n{node}", values=tuple(map(float, range(len(times))))) for node in range(1, nodes + 1)
    )
    return Chart(name=name, title=name, unit="cores", subject=Subject.CPU, times=times, lines=lines)


def report_of(*charts: Chart, nodes: int = 1) -> JobReport:
    names = tuple(f"n{node}" for node in range(1, nodes + 1))
    return make_report(make_record(nodes=names, node_count=nodes), charts=charts)


def finer(name: str, step: int, *, nodes: int = 1) -> Measured:
    """Return curves of the part, whose value is their number of the point."""
    times = tuple(float(at) for at in range(int(PART.from_seconds) + step, int(PART.to_seconds) + 1, step))
    values = tuple(float(place) for place in range(len(times)))
    return Measured(curves={name: tuple(Series((f"n{node}",), times, values) for node in range(1, nodes + 1))})


def test_curves_of_charts_are_named_once_and_without_single_processes() -> None:
    charts = [chart(name) for name in ("cpu", "memory", "cpu_split", "gpu_memory", "traced_cpu", "traced_memory_node")]

    assert (
        "cpu", "cpu_user", "cpu_system", "memory_anon", "memory_shared", "memory_rss", "gpu_memory"
    ) == find_curves(report_of(*charts))  # fmt: skip


def test_chart_without_finer_curves_is_cut_from_the_report() -> None:
    zoomed = zoom_report(report_of(chart()), NOTHING, PART)

    (cut,) = zoomed.report.charts
    # Points every 300 s, of which those at 600, 900 and 1200 s are within the part.
    assert (START + 600.0, START + 900.0, START + 1200.0) == cut.times
    assert (2.0, 3.0, 4.0) == cut.lines[0].values
    assert (frozenset(), None) == (zoomed.finer, zoomed.step_seconds)


def test_finer_curves_replace_their_chart_only() -> None:
    zoomed = zoom_report(report_of(chart("cpu"), chart("read")), finer("cpu", 15), PART)

    by_name = {one.name: one for one in zoomed.report.charts}
    assert frozenset({"cpu"}) == zoomed.finer
    assert 40 == len(by_name["cpu"].times)
    assert 3 == len(by_name["read"].times)
    assert pytest.approx(15.0) == zoomed.step_seconds


def test_curves_that_are_no_finer_change_nothing() -> None:
    """The server keeps only coarse data for so old a job."""
    zoomed = zoom_report(report_of(chart()), finer("cpu", 600), PART)

    assert frozenset() == zoomed.finer
    assert 3 == len(zoomed.report.charts[0].times)


def test_part_between_two_points_of_the_report_has_no_chart() -> None:
    assert () == zoom_report(report_of(chart()), NOTHING, RunPart(START + 610.0, START + 890.0)).report.charts


def test_one_finer_point_has_no_step() -> None:
    part = RunPart(START + 610.0, START + 640.0)
    measured = Measured(curves={"cpu": (Series(("n1",), (START + 630.0,), (1.0,)),)})
    zoomed = zoom_report(report_of(chart()), measured, part)

    assert (frozenset({"cpu"}), None) == (zoomed.finer, zoomed.step_seconds)


def test_finer_chart_of_few_nodes_has_a_finer_heat_map() -> None:
    zoomed = zoom_report(report_of(chart(nodes=2), nodes=2), finer("cpu", 15, nodes=2), PART)

    (heat_map,) = find_heat_maps(zoomed.report)
    assert (40, ("n1", "n2")) == (len(heat_map.times), tuple(row.label for row in heat_map.rows))
    # The first of 40 points, at 615 s, is of the 15 seconds before it.
    assert PART.from_seconds == heat_map.times[0]


def wide(*, times: tuple[float, ...]) -> HeatMap:
    rows = tuple(ChartLine(label=f"n{node}", values=tuple(map(float, range(len(times))))) for node in range(1, 21))
    return HeatMap(name="cpu", title="", unit="cores", times=times, end_seconds=times[-1] + 300, rows=rows)


def test_stored_heat_map_is_cut_or_made_again() -> None:
    times = tuple(float(START + at) for at in range(0, 7200, 300))
    folded = chart(nodes=1)
    report = replace(report_of(folded, nodes=20), heat_maps=(wide(times=times),))

    (cut,) = zoom_report(report, NOTHING, PART).report.heat_maps
    assert (START + 600.0, START + 900.0, START + 1200.0) == cut.times
    assert START + 1500.0 == cut.end_seconds
    assert {(2.0, 3.0, 4.0)} == {row.values for row in cut.rows}

    (made,) = zoom_report(report, finer("cpu", 15, nodes=20), PART).report.heat_maps
    assert (40, 20) == (len(made.times), len(made.rows))


def test_last_cell_of_a_heat_map_ends_with_it() -> None:
    times = tuple(float(START + at) for at in range(0, 7200, 300))
    report = replace(report_of(chart()), heat_maps=(wide(times=times),))
    (cut,) = zoom_report(report, NOTHING, RunPart(START + 6600.0, START + 7200.0)).report.heat_maps

    assert (START + 6600.0, START + 6900.0) == cut.times
    assert START + 7200.0 == cut.end_seconds


def test_problem_is_kept() -> None:
    zoomed = zoom_report(report_of(chart()), NOTHING, PART, problem="no route to host")

    assert isinstance(zoomed, ZoomedReport)
    assert "no route to host" == zoomed.problem
