# SPDX-License-Identifier: Apache-2.0
"""Ended jobs are classified by exit code and added up; figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.cluster.completions import RUN_BUCKETS_SECONDS, Completions, EndedJob, ExitClass, RunTimes, add_jobs

JOB = EndedJob(
    job_id=7, submit_time=100, end_time=900, partition="debug", account="physics", state="COMPLETED",
    elapsed_seconds=60, cpu_seconds=240, gpus=2,
)  # fmt: skip
NOTHING = Completions(since=0, read_until=1000)


@pytest.mark.parametrize(
    ("state", "code", "signal", "expected"),
    [
        ("COMPLETED", 0, 0, ExitClass.OK),
        ("FAILED", 2, 0, ExitClass.ERROR),
        ("FAILED", 0, 9, ExitClass.SIGNAL),
        ("FAILED", 2, 9, ExitClass.SIGNAL),
        # It could not be launched.
        ("FAILED", 0, 0, ExitClass.NONE),
        ("TIMEOUT", 0, 15, ExitClass.NONE),
        ("CANCELLED", 1, 0, ExitClass.NONE),
    ],
)
def test_exit_class_is_that_of_the_own_program(state: str, code: int, signal: int, expected: ExitClass) -> None:
    assert expected == replace(JOB, state=state, exit_code=code, exit_signal=signal).exit_class


def test_job_without_a_partition_is_partial() -> None:
    assert (True, False) == (replace(JOB, partition="").is_partial, JOB.is_partial)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    # Bounds are inclusive: le="10" counts a run of 10 s.
    [(0, 0), (10, 0), (11, 1), (60, 1), (61, 2), (604_800, 9), (604_801, 10)],
)
def test_run_falls_into_the_bucket_of_its_upper_bound(seconds: int, bucket: int) -> None:
    expected = [0] * (len(RUN_BUCKETS_SECONDS) + 1)
    expected[bucket] = 1

    assert RunTimes(counts=tuple(expected), total_seconds=seconds) == RunTimes().plus(seconds)


def test_runs_are_added_up() -> None:
    times = RunTimes().plus(5).plus(20).plus(7)

    assert (2, 1, 0) == times.counts[:3]
    assert 32 == times.total_seconds


def test_jobs_are_added_by_partition_and_account() -> None:
    failed = replace(JOB, job_id=8, state="FAILED", exit_code=1, elapsed_seconds=10, cpu_seconds=40, gpus=None)
    sums = add_jobs(add_jobs(NOTHING, [JOB]), [JOB, failed])

    assert {
        ("debug", "physics", "COMPLETED", "ok"): 2,
        ("debug", "physics", "FAILED", "error"): 1,
    } == sums.ended
    assert {("debug", "physics"): 520} == sums.cpu_seconds
    # Two runs of two GPUs for 60 s.
    assert {("debug", "physics"): 240} == sums.gpu_seconds
    assert {"debug": RunTimes().plus(60).plus(60).plus(10)} == sums.run_times


def test_tasks_cancelled_before_their_start_are_counted_but_have_not_run() -> None:
    cancelled = replace(JOB, state="CANCELLED", elapsed_seconds=None, tasks=5)
    sums = add_jobs(NOTHING, [cancelled])

    assert {("debug", "physics", "CANCELLED", "none"): 5} == sums.ended
    assert ({}, {}, {}) == (sums.run_times, sums.cpu_seconds, sums.gpu_seconds)


def test_sums_that_are_served_do_not_change() -> None:
    before = add_jobs(NOTHING, [JOB])
    add_jobs(before, [JOB])

    assert {("debug", "physics"): 240} == before.cpu_seconds
