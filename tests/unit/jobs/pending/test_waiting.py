# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope.jobs.pending.queue import JobPriorities, JobPriority, PendingJob
from tests.fakes.waiting import make_queue, make_waiting

ARRAY = make_waiting(10, array_job_id=10, tasks=(range(3, 25), range(30, 31)), tasks_text="3-24,30%2", priority=7)
HET = make_waiting(20, het_job_id=20, het_offset=0)
PART = make_waiting(21, het_job_id=20, het_offset=1, submit_seconds=5)
QUEUE = make_queue(make_waiting(5, priority=90), ARRAY, HET, PART, make_waiting(6, user="bob", partitions=("a", "b")))


@pytest.mark.parametrize(
    ("shown_id", "job_id"),
    [
        ("5", 5), ("10", None), ("10_3", 10), ("10_30", 10), ("10_25", None), ("20", 20), ("20+0", 20), ("20+1", 21),
        ("20+2", None), ("5_0", None), ("77", None), ("", None), ("x", None), ("10_", None), ("10_x", None),
    ],
)  # fmt: skip
def test_job_is_found_by_the_id_that_users_write(shown_id: str, job_id: int | None) -> None:
    found = QUEUE.find(shown_id)
    assert job_id == (found.job_id if found else None)


@pytest.mark.parametrize(
    ("job", "shown_id", "count"),
    [
        (make_waiting(5), "5", 1),
        (ARRAY, "10_[3-24,30%2]", 23),
        (make_waiting(10, array_job_id=10, tasks=(range(7, 8),), tasks_text="7"), "10_7", 1),
        (PART, "20+1", 1),
    ],
)
def test_id_is_shown_as_squeue_prints_it(job: PendingJob, shown_id: str, count: int) -> None:
    assert (shown_id, count) == (job.shown_id, job.task_count)


def test_partition_is_in_the_order_of_the_scheduler() -> None:
    assert [6] == [job.job_id for job in QUEUE.in_partition("b")]
    assert [21, 20, 5, 10] == [job.job_id for job in QUEUE.in_partition("batch")]
    assert () == QUEUE.in_partition("none")


def test_users_and_arrays_have_their_jobs() -> None:
    assert [6] == [job.job_id for job in QUEUE.of_user("bob")]
    assert [] == list(QUEUE.of_user("eve"))
    assert (ARRAY,) == QUEUE.find_array(10)
    assert () == QUEUE.find_array(5)


@pytest.mark.parametrize(
    ("values", "is_held", "is_eligible"),
    [
        ({"reason": "Priority"}, False, True),
        ({"reason": "JobHeldUser"}, True, False),
        ({"reason": "Priority", "priority": 0}, True, False),
        ({"reason": "Dependency"}, False, False),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:n1"}, False, True),
    ],
)
def test_held_and_dependent_jobs_delay_no_other(values: dict[str, object], is_held: bool, is_eligible: bool) -> None:
    job = make_waiting(1, **values)
    assert (is_held, is_eligible) == (job.is_held, job.is_eligible)


def test_job_has_a_priority_in_each_partition() -> None:
    first, second = (JobPriority(job_id=6, partition=name, total=5.0) for name in "ab")
    priorities = JobPriorities(priorities=(first, JobPriority(job_id=7, partition="a", total=1.0), second))
    assert [first, second] == list(priorities.of(make_waiting(6)))
