# SPDX-License-Identifier: Apache-2.0
"""A node on which no step ran was idle, and threads that are never runnable sleep: neither is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.findings import judge
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.summary import JobSummary
from tests.fakes.measured import curve, measure_nodes, summed, with_curves, with_totals
from tests.fakes.reports import make_record

TWO: dict[str, Any] = {"nodes": ("n1", "n2"), "node_count": 2, "cpus": 8}


def on_two_nodes(
    *steps: StepRecord, programs: tuple[str, ...] = ("relax",), problems: tuple[str, ...] = ()
) -> JobSummary:
    """Sum up a job on two nodes, of which the first was measured."""
    measured = with_totals(
        measure_nodes({"n1": 4.0}),
        memory_peak={("n1",): 1.1e9},
        cores={("n1",): 6.0},
        program_threads={("n1", program): 4.0 for program in programs},
    )
    return summed(make_record(**TWO, steps=steps, cpu_seconds=28800.0), replace(measured, problems=problems))


BATCH = StepRecord(name="batch", state="COMPLETED")
EXTERN = StepRecord(name="extern", state="COMPLETED", node_list="n[1-2]")


def test_node_without_a_step_was_idle() -> None:
    summary = on_two_nodes(BATCH, EXTERN)

    # The allocation has 8 cores, of which the agent of the first node reports 6.
    assert [("n1", 6.0, 4.0), ("n2", 2.0, 0.0)] == [(n.node, n.cpus, n.mean_cores) for n in summary.nodes]
    assert (summary.coverage.is_good, 0.0) == (True, summary.nodes[1].working_peak_bytes)
    found = next(finding for finding in judge(summary) if finding.rule == "node_imbalance")
    assert "#SBATCH --nodes=1" == found.suggestion


@pytest.mark.parametrize(
    "summary",
    [
        on_two_nodes(),
        on_two_nodes(EXTERN),
        on_two_nodes(BATCH, replace(EXTERN, name="0")),
        on_two_nodes(BATCH, StepRecord(name="0", state="COMPLETED")),
        on_two_nodes(BATCH, StepRecord(name="0", state="COMPLETED", node_list="n[1-")),
        on_two_nodes(BATCH, programs=("mpirun", "ssh")),
        on_two_nodes(BATCH, EXTERN, problems=("Prometheus timed out",)),
    ],
)
def test_node_on_which_something_may_have_run_is_not_measured(summary: JobSummary) -> None:
    assert (1, None) == (summary.coverage.nodes_measured, summary.nodes[1].cpu_seconds)


def test_threads_that_only_sleep_are_not_runnable() -> None:
    measured = with_totals(measure_nodes({"n1": 0.0}), program_threads={("n1", "relax"): 40.0})
    assert 0.0 == summed(make_record(), measured).mean_running_threads
    # For an hour of two.
    half = with_curves(measured, running_threads=(curve(("n1",), 8.0, last=3600.0),))
    assert 4.0 == pytest.approx(summed(make_record(), half).mean_running_threads or 0.0, rel=0.02)
