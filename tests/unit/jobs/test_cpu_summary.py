# SPDX-License-Identifier: Apache-2.0
"""The peak of busy cores comes from the source with the finest resolution; unknown cores give no busy ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.resources import node_cpus, summarize_cpu
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import NOT_COVERED
from tests.fakes.measured import curve, measure_nodes
from tests.fakes.reports import START, make_record


def peak_cores(*, points: float | None, scraped: dict[str, float], nodes: tuple[str, ...] = ("n1",)) -> float | None:
    run = MeasuredRun(
        record=make_record(cpus=16, nodes=nodes, node_count=len(nodes), cpu_seconds=None),
        start_seconds=float(START),
        end_seconds=START + 7200.0,
        nodes=nodes,
        curves={} if points is None else {"cpu": tuple(curve((node,), points) for node in nodes)},
        totals={"busy_peak": {(node,): cores for node, cores in scraped.items()}},
    )
    return summarize_cpu(run, (), NOT_COVERED).peak_cores


@pytest.mark.parametrize(
    ("points", "scraped", "expected"),
    [
        # 16 cores for 60 s of every 600, else one: points of 288 s are means, (60 x 16 + 228 x 1) / 288 = 4.125.
        (4.125, 16.0, 16.0),
        (4.125, 3.0, 4.125),
        (None, 16.0, 16.0),
        (4.125, None, 4.125),
        (0.5, None, 0.5),
        (None, None, None),
    ],
)
def test_peak_is_the_highest_that_was_seen(points: float | None, scraped: float | None, expected: float | None) -> None:
    assert expected == peak_cores(points=points, scraped={} if scraped is None else {"n1": scraped})


def test_peak_of_a_job_with_an_unmeasured_node_is_that_of_its_points() -> None:
    assert 8.0 == peak_cores(points=4.0, scraped={"n1": 16.0}, nodes=("n1", "n2"))


def test_peak_between_two_scrapes_is_no_more_than_there_are_cores() -> None:
    assert 16.0 == peak_cores(points=4.0, scraped={"n1": 40.0})


def test_busy_cores_are_unknown_where_accounting_does_not_know_the_cores() -> None:
    # The agent knows the two cores of its node, one of which was busy for the two hours.
    measured = measure_nodes({"n1": 1.0})
    measured = replace(measured, totals={**measured.totals, "cores": {("n1",): 2.0}})
    cpu = summarize(make_record(cpus=None, cpu_seconds=None), measured, now_seconds=START + 7200.0).cpu

    assert pytest.approx(0.5) == cpu.time.ratio
    assert cpu.mean_cores is None


@pytest.mark.parametrize(
    ("nodes", "cpus", "reported", "expected"),
    [
        (("n1", "n2"), 8, {"n1": 6.0}, {"n1": 6.0, "n2": 2.0}),
        (("n1", "n2"), 7, {"n1": 6.0}, {"n1": 6.0, "n2": 1.0}),
        (("n1", "n2", "n3"), 10, {"n1": 6.0}, {"n1": 6.0, "n2": 2.0, "n3": 2.0}),
        (("n1", "n2", "n3"), 9, {"n1": 6.0}, {"n1": 6.0}),
        # Nothing is left for the second node: one of the figures is wrong.
        (("n1", "n2"), 6, {"n1": 6.0}, {"n1": 6.0}),
        (("n1",), None, {}, {}),
        (("n1",), 4, {"n1": 2.0}, {"n1": 4.0}),
    ],
)
def test_nodes_that_report_no_cores_share_the_rest_evenly(
    nodes: tuple[str, ...], cpus: int | None, reported: dict[str, float], expected: dict[str, float]
) -> None:
    run = MeasuredRun(
        record=make_record(cpus=cpus, nodes=nodes, node_count=len(nodes)),
        start_seconds=float(START),
        end_seconds=START + 7200.0,
        nodes=nodes,
        curves={},
        totals={"cores": {(node,): cores for node, cores in reported.items()}},
    )

    assert expected == node_cpus(run)
