# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from slurmscope.jobs.pending.queue import JobPriorities, JobPriority
from slurmscope.jobs.pending.smaller_request import compare_priorities, find_positions
from tests.fakes.waiting import make_queue, make_waiting

FIRST = make_waiting(1, priority=90, cpus=8, gpus=2)
ARRAY = make_waiting(2, priority=50, array_job_id=2, tasks=(range(10),), tasks_text="0-9", cpus=2)
JOB = make_waiting(3, priority=20, partitions=("batch", "long"))
LAST = make_waiting(4, priority=10)
HELD = make_waiting(5, priority=0, reason="JobHeldUser")
DEPENDENT = make_waiting(6, priority=99, reason="Dependency")
QUEUE = make_queue(LAST, JOB, FIRST, HELD, ARRAY, DEPENDENT)


def test_position_counts_tasks_ahead_but_not_held_and_dependent_jobs() -> None:
    batch, long = find_positions(QUEUE, JOB)
    assert ("batch", 12, 13, 28, 2) == (
        batch.partition, batch.position, batch.jobs, batch.cores_ahead, batch.gpus_ahead,
    )  # fmt: skip
    assert ("long", 1, 1, 0) == (long.partition, long.position, long.jobs, long.cores_ahead)


def test_held_job_and_unknown_job_have_no_position() -> None:
    assert [] == list(find_positions(QUEUE, HELD))
    assert [] == list(find_positions(QUEUE, make_waiting(99)))


def make_priority(job_id: int, total: float, **factors: float) -> JobPriority:
    return JobPriority(job_id=job_id, partition="batch", total=total, factors=factors)


def test_factors_stand_beside_the_median_and_the_neighbours() -> None:
    """They are of the jobs that the position counts: job 6 depends on another one and has none."""
    priorities = JobPriorities(
        priorities=(
            make_priority(6, 99.0, age=99.0),
            make_priority(4, 10.0, age=10.0),
            make_priority(3, 20.0, age=5.0, fairshare=15.0),
            make_priority(1, 90.0, age=30.0, qos=60.0),
        )
    )
    (table,) = compare_priorities(priorities, QUEUE, JOB)
    assert ("batch", 13) == (table.partition, table.jobs)
    assert [
        ("priority", 20.0, 20.0, 90.0, 10.0),
        ("age", 5.0, 10.0, 30.0, 10.0),
        ("fairshare", 15.0, 0.0, 0.0, 0.0),
        ("qos", 0.0, 0.0, 60.0, 0.0),
    ] == [(row.factor, row.own, row.median, row.ahead, row.behind) for row in table.rows]


def test_only_job_has_no_neighbours() -> None:
    (table,) = compare_priorities(JobPriorities(priorities=(make_priority(3, 20.0, age=20.0),)), QUEUE, JOB)
    assert [(None, None), (None, None)] == [(row.ahead, row.behind) for row in table.rows]
    assert [] == list(compare_priorities(JobPriorities(), QUEUE, JOB))
