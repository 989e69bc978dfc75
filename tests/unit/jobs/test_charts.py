# SPDX-License-Identifier: Apache-2.0
"""Charts show what was measured, with the allocated level, in a bounded number of lines and points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slurmscope.jobs.charts import MAX_LINES, make_charts
from slurmscope.jobs.queries import CURVES
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from tests.fakes.measured import curve, measure_nodes
from tests.fakes.reports import GIB, START, make_record


def charts_of(record: JobRecord, measured: Measured) -> dict[str, Chart]:
    summary = summarize(record, measured, now_seconds=START + 7200.0)
    return {chart.name: chart for chart in make_charts(summary, measured)}


def many_nodes(count: int) -> tuple[JobRecord, Measured]:
    names = tuple(f"n{index}" for index in range(count))
    record = make_record(nodes=names, node_count=count, cpus=4 * count)
    return record, measure_nodes({name: float(index) for index, name in enumerate(names)})


def test_busy_cores_have_the_line_of_the_allocation() -> None:
    charts = charts_of(make_record(), measure_nodes({"n1": 2.0}))

    assert ["cpu", "memory"] == list(charts)
    assert (4.0, "allocated cores") == (charts["cpu"].reference, charts["cpu"].reference_label)
    assert [("n1", 240, {2.0})] == [(line.label, len(line.values), set(line.values)) for line in charts["cpu"].lines]
    # Accounting's 8 GiB, as the node told no limit.
    assert 8.0 * GIB == charts["memory"].reference
    assert {1.1e9} == set(charts["memory"].lines[0].values)


def test_curves_of_a_running_job_go_on_after_it_was_suspended() -> None:
    running = make_record(state="RUNNING", end_seconds=None, suspended_seconds=3600)
    charts = charts_of(running, measure_nodes({"n1": 2.0}))

    assert (START + 30.0, START + 7200.0) == (charts["cpu"].times[0], charts["cpu"].times[-1])


def test_several_nodes_have_the_level_of_one() -> None:
    record, measured = many_nodes(2)
    limits: Mapping[tuple[str, ...], float] = {("n0",): 5e9, ("n1",): 5e9}
    charts = charts_of(record, replace(measured, totals={**measured.totals, "memory_limit": limits}))

    assert (4.0, 5e9) == (charts["cpu"].reference, charts["memory"].reference)
    assert ["n0", "n1"] == [line.label for line in charts["cpu"].lines]


def test_nodes_with_different_levels_have_none() -> None:
    record, measured = many_nodes(2)
    cores: Mapping[tuple[str, ...], float] = {("n0",): 3.0, ("n1",): 5.0}
    charts = charts_of(record, replace(measured, totals={**measured.totals, "cores": cores}))

    assert (None, "") == (charts["cpu"].reference, charts["cpu"].reference_label)


@pytest.mark.parametrize(("nodes", "lines"), [(MAX_LINES, MAX_LINES), (MAX_LINES + 1, 3)])
def test_too_many_lines_become_three(nodes: int, lines: int) -> None:
    assert lines == len(charts_of(*many_nodes(nodes))["cpu"].lines)


def test_three_lines_are_lowest_median_and_highest() -> None:
    record, measured = many_nodes(16)
    gap = (*measured.curves["cpu"][:15], curve(("n15",), 15.0, first=60.0))
    cpu = charts_of(record, replace(measured, curves={"cpu": gap}))["cpu"]

    assert [("lowest of 16", 0.0), ("median of 16", 7.5), ("highest of 16", 15.0)] == [
        (line.label, line.values[5]) for line in cpu.lines
    ]
    # The last node is not yet there at the first point: the highest of the others.
    assert 14.0 == cpu.lines[2].values[0]


def test_time_without_measurements_is_a_gap_in_all_three_lines() -> None:
    record, measured = many_nodes(16)
    late = tuple(curve((f"n{index}",), 1.0, last=90.0) for index in range(15))
    later = curve(("n15",), 1.0, first=180.0, last=270.0)
    cpu = charts_of(record, replace(measured, curves={"cpu": (*late, later)}))["cpu"]

    assert {(1.0, 1.0, 1.0, None, None, 1.0, 1.0, 1.0, 1.0)} == {line.values for line in cpu.lines}


def test_user_and_system_time_share_a_chart() -> None:
    curves = {"cpu_user": (curve((), 3.0),), "cpu_system": (curve((), 0.5),)}
    charts = charts_of(make_record(), Measured(curves=curves))

    assert [("user", 3.0), ("system", 0.5)] == [(line.label, line.values[0]) for line in charts["cpu_split"].lines]
    assert 4.0 == charts["cpu_split"].reference
    assert charts_of(make_record(cpus=0), Measured(curves=curves))["cpu_split"].reference is None


def test_only_the_cores_of_the_job_are_drawn() -> None:
    seconds: dict[tuple[str, ...], float] = {
        ("n1", "0"): 7000.0,
        ("n1", "1"): 7000.0,
        ("n1", "2"): 0.0,
        ("n1", "3"): 0.0,
        ("n1", "4"): 0.0,
    }
    measured = Measured(
        curves={"cpu_core": tuple(curve(labels, value / 7200.0) for labels, value in seconds.items())},
        totals={"cpu_core": seconds},
    )
    chart = charts_of(make_record(), measured)["cpu_core"]

    assert [f"n1 core {core}" for core in range(4)] == [line.label for line in chart.lines]


def test_every_curve_has_its_chart() -> None:
    labels = ("n1", "0", "0", "812", "relax")
    curves = {name: (curve(labels[: len(wanted.by)], 0.5),) for name, wanted in CURVES.items()}
    measured = Measured(curves=curves, totals={"cpu_core": {labels[:2]: 9.0}, "traced_cpu": {labels: 9.0}})
    charts = charts_of(make_record(), measured)

    assert [
        "gpu_busy", "gpu_sm", "gpu_tensor", "gpu_held_memory", "gpu_power",
        "cpu", "memory", "read", "write", "filesystem_read", "filesystem_write",
        "filesystem_metadata", "cpu_split", "cpu_core", "running_threads", "open_files",
        "traced_cpu_node", "traced_cpu", "traced_memory_node", "traced_memory", "traced_threads", "traced_read",
        "traced_write",
    ] == list(charts)  # fmt: skip
    assert all(chart.help.endswith(".") and chart.title for chart in charts.values())


def test_long_run_is_thinned_and_its_highest_memory_stays() -> None:
    spike = curve(("n1",), lambda offset: 7e9 if offset == 3001.0 else 1e9, first=1.0, step=1.0)
    charts = charts_of(make_record(), Measured(curves={"memory_anon": (spike,), "cpu": (spike,)}))

    assert MAX_CHART_POINTS >= len(charts["memory"].times) > MAX_CHART_POINTS / 2
    assert 7e9 == max(value or 0.0 for value in charts["memory"].lines[0].values)
    assert charts["cpu"].times[-1] <= START + 7201.0


def test_job_that_never_started_has_no_chart() -> None:
    assert {} == charts_of(make_record(start_seconds=None, state="PENDING"), measure_nodes({"n1": 1.0}))


def test_memory_of_one_node_has_the_line_of_its_limit() -> None:
    measured = measure_nodes({"n1": 2.0})
    limited = replace(measured, totals={**measured.totals, "memory_limit": {("n1",): 5e9}})

    assert 5e9 == charts_of(make_record(), limited)["memory"].reference


def test_memory_of_several_nodes_without_limits_has_no_line() -> None:
    record, measured = many_nodes(2)

    assert charts_of(record, measured)["memory"].reference is None


def test_use_of_file_systems_has_a_line_for_each() -> None:
    curves = (curve(("work",), 5e6), curve(("home",), 1e6), curve(("",), 9.0))
    chart = charts_of(make_record(), Measured(curves={"filesystem_read": curves}))["filesystem_read"]

    assert {"work": 5e6, "home": 1e6} == {line.label: line.values[0] for line in chart.lines}


def test_targets_without_a_file_system_have_no_chart() -> None:
    assert {} == charts_of(make_record(), Measured(curves={"filesystem_metadata": (curve(("",), 9.0),)}))


def two_gpus(*nodes: str) -> Mapping[str, tuple[Series, ...]]:
    """Return the curves of two GPUs of each node, the second of which is idle."""
    shares = {"gpu_busy": 1.0, "gpu_sm": 0.5, "gpu_tensor": 0.25, "gpu_held_memory": 4e10, "gpu_power": 600.0}
    return {
        name: tuple(curve((node, gpu, ""), most if gpu == "0" else most / 10) for node in nodes for gpu in ("0", "1"))
        for name, most in shares.items()
    }


def test_gpus_come_first_with_a_line_for_each() -> None:
    measured = measure_nodes({"n1": 2.0})
    means = {"gpu": (curve(("n1",), 0.55),), "gpu_memory": (curve(("n1",), 4.4e10),)}
    charts = charts_of(make_record(), replace(measured, curves={**measured.curves, **two_gpus("n1"), **means}))

    assert ["gpu_busy", "gpu_sm", "gpu_tensor", "gpu_held_memory", "gpu_power", "cpu", "memory"] == list(charts)
    assert [("GPU 0", 1.0), ("GPU 1", 0.1)] == [(line.label, line.values[0]) for line in charts["gpu_busy"].lines]
    assert ("watts", 600.0) == (charts["gpu_power"].unit, charts["gpu_power"].lines[0].values[0])


def test_gpus_of_several_nodes_are_named_with_their_node() -> None:
    charts = charts_of(make_record(nodes=("n1", "n2"), node_count=2), Measured(curves=two_gpus("n1", "n2")))
    assert ["n1 GPU 0", "n1 GPU 1", "n2 GPU 0", "n2 GPU 1"] == [line.label for line in charts["gpu_sm"].lines]


def test_memory_of_gpus_has_their_size_where_all_are_alike() -> None:
    sizes: dict[tuple[str, ...], float] = {("n1", "0", ""): 8e10, ("n1", "1", ""): 8e10}
    measured = Measured(curves=two_gpus("n1"), totals={"gpu_memory_size": sizes})
    other = replace(measured, totals={"gpu_memory_size": {**sizes, ("n1", "1", ""): 4e10}})

    assert (8e10, "memory of a GPU") == (
        (chart := charts_of(make_record(), measured)["gpu_held_memory"]).reference,
        chart.reference_label,
    )
    assert charts_of(make_record(), other)["gpu_held_memory"].reference is None


def test_means_of_nodes_stay_where_gpus_are_not_measured_one_by_one() -> None:
    means = {"gpu": (curve(("n1",), 0.55),), "gpu_memory": (curve(("n1",), 4.4e10),)}
    assert ["gpu", "gpu_memory"] == list(charts_of(make_record(), Measured(curves=means)))
