# SPDX-License-Identifier: Apache-2.0
"""Each lost core-hour has one cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.archive.interface import TotalOrder, UseTotal
from slurmscope.archive.job_columns import JobRow, used_gpu_seconds
from slurmscope.jobs.findings import LossCause, find_state_cause
from slurmscope.jobs.summary import HeldGpu
from slurmscope.slurm.states import BASE_STATES
from tests.fakes.archive import make_row
from tests.fakes.reports import make_gpu_report, make_report

HOUR = 3600.0


def make_job(state: str, wasted: float | None, blocked: float | None = None) -> JobRow:
    """Make a job of 8 core-hours."""
    row = make_row(make_report())
    return replace(row, state=state, core_seconds=8 * HOUR, wasted_core_seconds=wasted, blocked_core_seconds=blocked)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (make_job("COMPLETED", 2 * HOUR), 2 * HOUR),
        (make_job("COMPLETED", 2 * HOUR, HOUR), 2 * HOUR),
        (make_job("COMPLETED", None), None),
        (make_job("COMPLETED", None, HOUR), None),
        (make_job("CANCELLED", 2 * HOUR), 2 * HOUR),
        (make_job("OUT_OF_MEMORY", 2 * HOUR), 8 * HOUR),
        (make_job("TIMEOUT", None), 8 * HOUR),
    ],
)
def test_job_that_did_not_complete_lost_all_of_its_time(row: JobRow, expected: float | None) -> None:
    assert expected == row.lost_core_seconds


def test_gpus_of_a_failed_job_are_lost_and_else_the_idle_ones() -> None:
    row = replace(make_row(make_gpu_report()), gpus=2, run_seconds=HOUR, wasted_gpu_seconds=0.5 * HOUR)

    assert 0.5 * HOUR == row.lost_gpu_seconds
    assert 2 * HOUR == replace(row, state="FAILED").lost_gpu_seconds
    assert replace(row, state="FAILED", gpus=0, wasted_gpu_seconds=None).lost_gpu_seconds is None


def test_causes_follow_from_the_state_and_have_labels() -> None:
    causes = {state: find_state_cause(state) for state in BASE_STATES}

    assert {"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED"} == {
        state for state, cause in causes.items() if cause is LossCause.FAILED
    }
    assert {"TIMEOUT", "DEADLINE"} == {state for state, cause in causes.items() if cause is LossCause.TIMEOUT}
    assert 4 == len({cause.label for cause in LossCause})


def test_total_adds_the_causes_and_is_ordered_by_any_of_them() -> None:
    total = UseTotal(
        key="ada", jobs=3, core_seconds=20.0, measured_core_seconds=0.0, used_core_seconds=0.0, gpu_seconds=9.0,
        measured_gpu_seconds=0.0, used_gpu_seconds=0.0, jobs_with_findings=0, failed_core_seconds=1.0,
        timeout_core_seconds=2.0, unused_core_seconds=3.0, blocked_core_seconds=4.0, failed_gpu_seconds=1.0,
        timeout_gpu_seconds=1.5, unused_gpu_seconds=0.5,
    )  # fmt: skip

    assert (6.0, 3.0) == (total.lost_core_seconds, total.lost_gpu_seconds)
    # What was not measured comes last.
    assert [0.0, 6.0, 1.0, 2.0, 3.0, 4.0, 3.0, 20.0, 9.0, 3.0] == [order.read(total) for order in TotalOrder]


def test_time_of_a_stuck_gpu_is_not_used_however_busy_it_seems() -> None:
    report = make_gpu_report()
    busy = replace(report.summary.gpu, mean_utilization=0.75)
    first, second = busy.devices

    def used(*devices: HeldGpu) -> float | None:
        return used_gpu_seconds(replace(report, summary=replace(report.summary, gpu=replace(busy, devices=devices))))

    # Two GPUs for two hours, of which a quarter was idle; 300 s may have been a wait for others.
    assert 3 * HOUR == used(first, second)
    assert 3 * HOUR - 1800 == used(replace(first, stuck_seconds=1800.0), replace(second, stuck_seconds=300.0))
    assert 0 == used(replace(first, stuck_seconds=4 * HOUR))
