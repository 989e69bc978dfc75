# SPDX-License-Identifier: Apache-2.0
"""Measurements belong to the nodes of a job by long names, short names, or none."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.jobs.summary import UsedShare
from tests.fakes.measured import measure_nodes, summed
from tests.fakes.reports import make_record

TWO: dict[str, Any] = {"nodes": ("n1", "n2"), "node_count": 2, "cpus": 8}


@pytest.mark.parametrize("label", ["n1", "n1.cluster.example", ""])
def test_node_is_known_by_its_long_name_and_by_none_when_it_is_the_only_one(label: str) -> None:
    summary = summed(make_record(cpu_seconds=None), measure_nodes({label: 2.0}))

    assert [("n1", 14400.0)] == [(node.node, node.cpu_seconds) for node in summary.nodes]


def test_node_that_slurm_knows_by_its_long_name_is_known_by_its_short_one() -> None:
    record = make_record(**TWO | {"nodes": ("n1.a.example", "n10.a.example")}, cpu_seconds=None)
    summary = summed(record, measure_nodes({"n1": 2.0, "n10": 1.0, "n1.b.example": 4.0}))

    assert [14400.0, 7200.0] == [node.cpu_seconds for node in summary.nodes]


def test_short_name_of_two_nodes_means_neither() -> None:
    record = make_record(**TWO | {"nodes": ("n1.a.example", "n1.b.example")}, cpu_seconds=None)
    summary = summed(record, measure_nodes({"n1": 2.0, "n1.b.example": 1.0}))

    assert [None, 7200.0] == [node.cpu_seconds for node in summary.nodes]


def test_ambiguous_series_are_not_measured() -> None:
    summary = summed(make_record(**TWO, cpu_seconds=None), measure_nodes({"": 2.0, "other": 1.0}))

    assert UsedShare(requested=57600.0) == summary.cpu.time
    assert 0 == summary.coverage.nodes_measured


def test_two_names_of_one_node_are_not_added_up() -> None:
    summary = summed(make_record(cpu_seconds=None), measure_nodes({"n1": 2.0, "n1.example": 1.0}))

    assert (14400.0, 2.0) == (summary.cpu.time.used, summary.cpu.peak_cores)


def test_nodes_are_taken_from_the_measurement_where_accounting_names_none() -> None:
    summary = summed(
        make_record(nodes=(), node_count=2, cpus=8, cpu_seconds=None), measure_nodes({"n1": 1.0, "n2": 3.0})
    )

    assert [("n1", 4.0), ("n2", 4.0)] == [(node.node, node.cpus) for node in summary.nodes]
    assert 0.5 == summary.cpu.time.ratio


def test_job_of_which_no_node_is_known_is_summed_up() -> None:
    summary = summed(make_record(nodes=(), node_count=0, cpu_seconds=14400.0))

    assert (0.5, ()) == (summary.cpu.time.ratio, summary.nodes)
