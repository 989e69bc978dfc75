# SPDX-License-Identifier: Apache-2.0
"""A heat map holds every node or core, thinned, and says which of them differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.charts import MAX_LINES, make_charts
from slurmscope.jobs.heat_maps import MAX_POINTS, MAX_ROWS, find_heat_maps, make_heat_maps, summarize_rows
from slurmscope.jobs.report import Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import NodeSummary
from tests.fakes.measured import curve, measure_nodes
from tests.fakes.reports import START, make_record, make_two_node_report


def report_of(
    cores: dict[str, float], *, cpus_per_node: float | None = 4.0, measured: Measured | None = None
) -> JobReport:
    """Report a job of two hours on which each node kept so many cores busy."""
    measured = measured or measure_nodes(cores)
    record = make_record(nodes=tuple(cores), node_count=len(cores), cpus=4 * len(cores))
    summary = summarize(record, measured, now_seconds=START + 7200.0)
    nodes = tuple(replace(node, cpus=cpus_per_node) for node in summary.nodes)
    summary = replace(summary, nodes=nodes)
    charts, heat_maps = make_charts(summary, measured), make_heat_maps(summary, measured)
    return JobReport(summary=summary, made_seconds=START + 7300, charts=charts, heat_maps=heat_maps)


def heat_maps_of(report: JobReport) -> dict[str, HeatMap]:
    return {heat_map.name: heat_map for heat_map in find_heat_maps(report)}


def test_few_nodes_are_taken_from_the_chart_and_not_stored_twice() -> None:
    report = report_of({"n10": 4.0, "n2": 1.0})

    assert () == report.heat_maps
    cpu = heat_maps_of(report)["cpu"]
    assert ("ratio", 1.0) == (cpu.unit, cpu.full)
    # n2 before n10; a core of four is a quarter, four of four are all.
    assert [("n2", {0.25}), ("n10", {1.0})] == [(row.label, set(row.values)) for row in cpu.rows]


def test_points_are_thinned_to_means() -> None:
    half = curve(("n1",), lambda offset: 4.0 if offset <= 3600 else 0.0)
    measured = measure_nodes({"n1": 4.0, "n2": 4.0})
    measured = replace(measured, curves={**measured.curves, "cpu": (half, measured.curves["cpu"][1])})
    cpu = heat_maps_of(report_of({"n1": 4.0, "n2": 4.0}, measured=measured))["cpu"]

    # 240 points of half a minute become 60 of two minutes.
    assert MAX_POINTS == len(cpu.times) == len(cpu.rows[0].values)
    assert (1.0, 0.0) == (cpu.rows[0].values[0], cpu.rows[0].values[-1])
    assert cpu.times[-1] < START + 7200.0 <= cpu.end_seconds


@pytest.mark.parametrize(("points", "has_map"), [(1, False), (2, True)])
def test_two_points_are_the_least_of_a_heat_map(points: int, has_map: bool) -> None:
    report = report_of({"n1": 4.0, "n2": 1.0})
    lines = tuple(ChartLine(label=label, values=(4.0,) * points) for label in ("n1", "n2"))
    short = replace(report.charts[0], times=tuple(START + 30.0 * (1 + each) for each in range(points)), lines=lines)
    found = heat_maps_of(replace(report, charts=(short,)))
    assert has_map is ("cpu" in found)
    # A point is of the half minute before it.
    assert not has_map or (START, START + 60.0) == (found["cpu"].times[0], found["cpu"].end_seconds)


def test_many_nodes_are_stored_because_charts_fold_them() -> None:
    report = report_of({f"n{index}": 4.0 for index in range(MAX_LINES + 1)})

    assert {"cpu", "memory"} == {heat_map.name for heat_map in report.heat_maps}
    assert MAX_LINES + 1 == len(heat_maps_of(report)["cpu"].rows)
    assert 3 == len(report.charts[0].lines)


def test_of_too_many_nodes_those_that_differ_most_are_kept() -> None:
    cores = {f"n{index}": 4.0 for index in range(MAX_ROWS + 20)} | {"n7": 0.0, "n70": 1.0}
    cpu = heat_maps_of(report_of(cores))["cpu"]

    assert (MAX_ROWS, 20) == (len(cpu.rows), cpu.rows_left_out)
    assert {"n7", "n70"} <= {row.label for row in cpu.rows}
    assert ["n7", "n70"] == [row.label for row in summarize_rows(cpu) if row.differs]


def test_folded_chart_without_a_stored_map_has_none() -> None:
    report = report_of({f"n{index}": 4.0 for index in range(MAX_LINES + 1)})

    assert {} == heat_maps_of(replace(report, heat_maps=()))


@pytest.mark.parametrize("cores", [{"n1": 4.0}, {}])
def test_one_node_has_no_heat_map(cores: dict[str, float]) -> None:
    assert {} == heat_maps_of(report_of(cores))


def test_single_point_has_no_heat_map() -> None:
    measured = Measured(curves={"cpu": tuple(curve((name,), 1.0, last=30.0) for name in ("n1", "n2"))})
    assert "cpu" not in heat_maps_of(report_of({"n1": 1.0, "n2": 1.0}, measured=measured))


def test_nodes_of_unknown_size_keep_their_unit_and_have_no_full_scale() -> None:
    maps = heat_maps_of(report_of({"n1": 4.0, "n2": 2.0}, cpus_per_node=None))

    assert ("cores", None) == (maps["cpu"].unit, maps["cpu"].full)
    # No node reported a limit.
    assert ("bytes", None) == (maps["memory"].unit, maps["memory"].full)
    assert {1.1e9} == set(maps["memory"].rows[0].values)


def test_node_that_the_summary_does_not_have_has_no_size() -> None:
    report = make_two_node_report()
    report = replace(report, summary=replace(report.summary, nodes=(NodeSummary(node="n1", cpus=4.0),)))

    assert "cores" == heat_maps_of(report)["cpu"].unit


def test_cores_and_gpus_are_shares_as_they_are() -> None:
    names = {"n1": 2.0, "n2": 2.0}
    measured = measure_nodes(names)
    curves = {**measured.curves, "gpu": tuple(curve((name,), 0.2) for name in names)}
    gpu = heat_maps_of(report_of(names, measured=replace(measured, curves=curves)))["gpu"]

    assert ("ratio", {0.2}) == (gpu.unit, set(gpu.rows[0].values))


def test_rows_have_mean_lowest_and_highest_and_gaps_are_unknown() -> None:
    rows = (
        ChartLine(label="a", values=(0.2, None, 0.4)),
        ChartLine(label="b", values=(None, None, None)),
        ChartLine(label="c", values=(0.9, 0.9, 0.9)),
        ChartLine(label="d", values=(0.3, 0.3, 0.3)),
    )
    heat_map = HeatMap(name="cpu", title="t", unit="ratio", times=(1.0, 2.0, 3.0), end_seconds=4.0, rows=rows, full=1.0)
    a, b, c, d = summarize_rows(heat_map)

    assert 0.3 == pytest.approx(a.mean)
    assert (0.2, 0.4, False) == (a.lowest, a.highest, a.differs)
    assert (None, None, None, False) == (b.mean, b.lowest, b.highest, b.differs)
    assert (True, False) == (c.differs, d.differs)


@pytest.mark.parametrize(
    ("full", "means", "differing"),
    [
        # Without a full scale the largest row is it: 0.15 of 4 cores are 0.6.
        (None, (4.0, 4.0, 3.5, 3.0), [False, False, False, True]),
        # With one, a tenth is little however idle all rows are.
        (1.0, (0.4, 0.4, 0.4, 0.3), [False] * 4),
        (1.0, (0.0, 0.0, 0.0, 0.15), [False] * 4),
        (1.0, (0.0, 0.0, 0.0, 0.151), [False, False, False, True]),
    ],
)
def test_row_differs_by_a_part_of_the_scale(
    full: float | None, means: tuple[float, ...], differing: list[bool]
) -> None:
    rows = tuple(ChartLine(label=label, values=(mean,)) for label, mean in zip("abcd", means, strict=True))
    heat_map = HeatMap(name="cpu", title="t", unit="cores", times=(1.0,), end_seconds=2.0, rows=rows, full=full)

    assert differing == [row.differs for row in summarize_rows(heat_map)]


def test_map_without_values_has_no_row_that_differs() -> None:
    rows = tuple(ChartLine(label=label, values=(None,)) for label in "ab")
    heat_map = HeatMap(name="cpu", title="t", unit="cores", times=(1.0,), end_seconds=2.0, rows=rows)

    assert [False, False] == [row.differs for row in summarize_rows(heat_map)]


def test_column_begins_where_the_step_of_its_point_begins() -> None:
    # A point of a curve is the mean of the step before it.
    lines = tuple(ChartLine(label=name, values=(1.0, 3.0, 0.0)) for name in ("n1", "n2"))
    times = (START + 60.0, START + 120.0, START + 180.0)
    chart = Chart(name="cpu", title="", unit="cores", subject=Subject.CPU, times=times, lines=lines)
    cpu = heat_maps_of(replace(make_two_node_report(), charts=(chart,)))["cpu"]

    assert ((START, START + 60.0, START + 120.0), START + 180.0) == (cpu.times, cpu.end_seconds)
