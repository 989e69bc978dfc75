# SPDX-License-Identifier: Apache-2.0
"""A line of the lists counts all core time that was held, and as used only what is known; worked out by hand."""

from __future__ import annotations

import pytest

from slurmscope.archive.job_columns import EDGE_SECONDS
from slurmscope.archive.job_rows import ColumnValues, job_values
from slurmscope.jobs.record import EarlierSize, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from tests.fakes.measured import measure_nodes
from tests.fakes.reports import START, make_record

DAY = 86_400


def row_of(record: JobRecord, measured: Measured | None = None, *, now_seconds: float = START + DAY) -> ColumnValues:
    summary = summarize(record, measured or Measured(), now_seconds=now_seconds)
    return job_values(JobReport(summary=summary, made_seconds=START + DAY))


def core_times(row: ColumnValues) -> tuple[float | None, ...]:
    return row["cpu_ratio"], row["core_seconds"], row["used_core_seconds"], row["wasted_core_seconds"]


def test_core_time_of_a_partly_measured_job_is_that_of_all_its_nodes() -> None:
    # Four nodes of 16 cores for two hours; one of them told that it was busy all the time.
    record = make_record(nodes=("n1", "n2", "n3", "n4"), node_count=4, cpus=64, cpu_seconds=None, steps=())

    assert (None, 64 * 7200.0, None, None) == core_times(row_of(record, measure_nodes({"n1": 16.0})))


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL"])
def test_killed_job_that_nobody_measured_is_not_said_to_have_wasted_its_cores(state: str) -> None:
    # Accounting misses the processes that were killed: 3.2 s are what the batch script took.
    record = make_record(state=state, cpus=64, cpu_seconds=3.2, end_seconds=START + DAY)

    assert (None, 64 * 86400.0, None, None) == core_times(row_of(record))


def test_completed_job_that_nobody_measured_used_what_accounting_tells() -> None:
    # Three of four cores for two hours.
    record = make_record(cpu_seconds=21600.0)

    assert (0.75, 28800.0, 21600.0, 7200.0) == core_times(row_of(record))


def test_killed_job_that_was_measured_used_what_its_nodes_tell() -> None:
    record = make_record(state="TIMEOUT", cpu_seconds=3.2)

    assert (0.5, 28800.0, 14400.0, 14400.0) == core_times(row_of(record, measure_nodes({"n1": 2.0})))


def test_use_of_a_measured_part_stands_for_the_little_that_was_not_measured() -> None:
    # Two of four cores were busy; the node told that until 6,480 s of 7,200 s.
    record = make_record(state="RUNNING", end_seconds=None)
    measured = measure_nodes({"n1": 2.0}, seconds=6480.0)

    assert (0.5, 28800.0, 14400.0, 14400.0) == core_times(row_of(record, measured, now_seconds=START + 7200.0))


def test_use_of_half_of_the_run_does_not_stand_for_the_other_half() -> None:
    record = make_record(state="RUNNING", end_seconds=None)
    measured = measure_nodes({"n1": 4.0}, seconds=3600.0)

    assert (None, 28800.0, None, None) == core_times(row_of(record, measured, now_seconds=START + 7200.0))


def test_job_that_took_more_than_its_cores_wasted_none_and_keeps_its_ratio() -> None:
    assert (1.5, 28800.0, 28800.0, 0.0) == core_times(row_of(make_record(), measure_nodes({"n1": 6.0})))


def test_job_that_never_started_held_nothing() -> None:
    record = make_record(state="CANCELLED", start_seconds=None, end_seconds=START, cpu_seconds=0.0)

    assert (None, 0.0, None, None) == core_times(row_of(record))


def at_half_load(record: JobRecord, working: range, *, cores: float = 2.0) -> ColumnValues:
    """Return the row of a job that was watched each minute, and kept two cores busy in some minutes of it."""
    minutes = ((record.end_seconds or 0) - START) // 60
    times = tuple(float(START + 60 * (minute + 1)) for minute in range(minutes))
    busy = tuple(cores if minute in working else 0.0 for minute in range(minutes))
    measured = Measured(
        curves={"cpu": (Series(("n1",), times, busy),)}, totals={"cpu": {("n1",): 60 * cores * len(working)}}
    )
    return row_of(record, measured)


def test_time_in_which_a_job_was_suspended_is_not_idle_after_its_work() -> None:
    # Two of four cores worked for two hours; then it was suspended, and cancelled two hours later.
    record = make_record(state="CANCELLED", end_seconds=START + 4 * 3600, suspended_seconds=2 * 3600, cpu_seconds=None)
    row = at_half_load(record, range(120))

    assert 4 * 3600 == row["wasted_core_seconds"]
    assert {None} == {row[name] for name in EDGE_SECONDS}


def test_resized_job_was_idle_at_its_start_with_the_cores_that_it_had_then() -> None:
    # One core waited for half an hour; then four of them worked for an hour, and waited for half an hour.
    size = EarlierSize(until_seconds=START + 1800, cpus=1, gpus=0)
    row = at_half_load(make_record(earlier_sizes=(size,), cpu_seconds=None), range(30, 90), cores=3.5)

    assert 1800 + 4 * 5400 == row["core_seconds"]
    assert 1800 == row["startup_core_seconds"]
    assert 4 * 1800 == row["tail_core_seconds"]
