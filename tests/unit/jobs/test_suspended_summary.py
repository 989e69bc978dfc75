# SPDX-License-Identifier: Apache-2.0
"""Suspended time is not run time, whichever source reports it; every expected number is calculated by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summary import Coverage, UsedShare
from tests.fakes.measured import STEP, curve, summed
from tests.fakes.reports import START, make_record

NOW = START + 7200.0


def half_suspended(**changed: Any) -> JobRecord:
    """Make a job of four cores and at most 5 hours that was suspended for 4 of the 8 hours from start to end."""
    usual = {"end_seconds": START + 8 * 3600, "suspended_seconds": 4 * 3600, "time_limit_seconds": 5 * 3600}
    return make_record(**{**usual, "cpu_seconds": None, **changed})


def half_idle(seconds: float = 8 * 3600.0) -> Measured:
    """Measure four busy cores but for the time from the 2nd to the 6th hour."""
    rates = curve(("n1",), lambda offset: 0.0 if 7200 < offset <= 21600 else 4.0, last=seconds)
    return Measured(curves={"cpu": (rates,)}, totals={"cpu": {("n1",): 4 * STEP * sum(v > 0 for v in rates.values)}})


def test_suspended_time_is_no_run_time() -> None:
    summary = summed(half_suspended(), half_idle(), START + 8 * 3600.0)

    assert 4 * 3600.0 == summary.run_seconds
    # 4 hours of 5, and 4 cores for 4 hours.
    assert (0.8, 1.0) == (summary.time.ratio, summary.cpu.time.ratio)
    assert (57600.0, 57600.0) == (summary.cpu.time.requested, summary.cpu.time.used)
    assert (4.0, 4.0) == (summary.cpu.mean_cores, summary.nodes[0].mean_cores)
    # Coverage is that of the time from start to end, all of which was measured.
    assert Coverage(nodes=1, nodes_measured=1, run_ratio=1.0) == summary.coverage


def test_suspended_time_is_no_run_time_where_only_accounting_knows() -> None:
    summary = summed(half_suspended(cpu_seconds=43200.0), now_seconds=START + 8 * 3600.0)

    assert UsedShare(requested=57600.0, used=43200.0) == summary.cpu.time


def test_job_that_is_suspended_now_has_run_until_then() -> None:
    record = half_suspended(state="SUSPENDED", end_seconds=None, suspended_seconds=3600)
    summary = summed(record, half_idle(3 * 3600.0), START + 3 * 3600.0)

    # 2 hours of work, one hour suspended.
    assert (7200.0, 0.4, 1.0) == (summary.run_seconds, summary.time.ratio, summary.cpu.time.ratio)
    assert 1.0 == summary.coverage.run_ratio


def test_node_of_a_suspended_job_that_fell_silent_ran_no_longer_than_the_job() -> None:
    # It was measured for 7 hours, of which it ran for at most 4.
    summary = summed(half_suspended(), half_idle(7 * 3600.0), START + 8 * 3600.0)

    assert (57600.0, 43200.0) == (summary.cpu.time.requested, summary.cpu.time.used)
    # 7 hours and two steps of 30 s, of 8 hours.
    assert pytest.approx(25260 / 28800) == summary.coverage.run_ratio


@pytest.mark.parametrize(("suspended", "seconds"), [(7201, 7200.0), (-1, 7200.0), (7200, 0.0)])
def test_suspended_time_that_cannot_be_true_does_not_count(suspended: int, seconds: float) -> None:
    assert seconds == summed(make_record(suspended_seconds=suspended)).run_seconds


def test_gpu_that_was_busy_until_the_job_was_suspended_was_busy() -> None:
    # 90 % in 4 of 8 hours, and nothing while it was suspended: a mean of 45 %.
    record = half_suspended(gres=(Gres(name="gpu", count=1),))
    measured = replace(
        half_idle(),
        totals={"gpu": {("n1",): 0.45}, "gpu_held_utilization": {("n1", "0", ""): 0.45}},
    )
    summary = summed(record, measured, START + 8 * 3600.0)

    assert (0.9, 0.9) == (summary.gpu.mean_utilization, summary.nodes[0].gpu_utilization)
    assert 0.9 == summary.gpu.devices[0].mean_utilization
