# SPDX-License-Identifier: Apache-2.0
"""Seconds that GPUs counted become shares of the run; a GPU that does not count something leaves it unknown."""

from __future__ import annotations

import pytest

from slurmscope.core.units import format_energy
from slurmscope.jobs.gpus import sum_work
from slurmscope.jobs.render.tables import make_gpu_table
from slurmscope.jobs.summary import GpuWork, JobSummary
from tests.fakes.measured import measure_nodes, summed, with_totals
from tests.fakes.reports import make_record, make_report

FIRST, SECOND = ("n1", "0", ""), ("n1", "1", "")


def summarize(**totals: dict[tuple[str, ...], float]) -> JobSummary:
    """Sum up a job of two hours on two GPUs."""
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={FIRST: 1.0, SECOND: 1.0})
    return summed(make_record(), with_totals(measured, **totals))


def test_seconds_are_shares_of_the_run() -> None:
    summary = summarize(
        gpu_busy={FIRST: 7200.0, SECOND: 1800.0},
        gpu_tensor={FIRST: 3600.0, SECOND: 0.0},
        gpu_fp32={(*FIRST, "fp32"): 720.0, (*SECOND, "fp32"): 0.0},
        gpu_energy={FIRST: 3.6e6, SECOND: 1.8e6},
    )

    assert [(1.0, 0.5), (0.25, 0.0)] == [(gpu.work.busy_ratio, gpu.work.tensor_ratio) for gpu in summary.gpu.devices]
    assert GpuWork(busy_ratio=0.625, tensor_ratio=0.25, fp32_ratio=0.05, energy_joules=5.4e6) == summary.gpu.work


def test_what_one_gpu_does_not_count_is_unknown_for_all() -> None:
    works = [GpuWork(busy_ratio=0.5, sm_ratio=0.4), GpuWork(busy_ratio=0.75)]
    assert GpuWork(busy_ratio=0.625) == sum_work(works)
    assert GpuWork() == sum_work([])


def test_shared_gpu_has_the_part_of_the_job() -> None:
    summary = summarize(gpu_jobs={FIRST: 2.0, SECOND: 1.0}, gpu_busy={FIRST: 720.0})
    assert [0.1, None] == [gpu.mean_utilization for gpu in summary.gpu.devices]


def test_table_has_the_columns_that_were_counted() -> None:
    counted = make_gpu_table(make_report(summary=summarize(gpu_sm={FIRST: 720.0}, gpu_energy={FIRST: 4.5e6})))
    older = make_gpu_table(make_report(summary=summarize()))

    assert ("SM", "Energy") == counted.head[-2:]
    assert [("10 %", "1.25 kWh"), ("–", "–")] == [row[-2:] for row in counted.rows]
    assert older.head == counted.head[:-2]


@pytest.mark.parametrize(
    ("joules", "text"),
    [(None, "not measured"), (0.0, "0 Wh"), (1800.0, "0.5 Wh"), (3.6e6, "1 kWh"), (9e9, "2,500 kWh")],
)
def test_energy_is_written_as_people_pay_for_it(joules: float | None, text: str) -> None:
    assert text == format_energy(joules)
