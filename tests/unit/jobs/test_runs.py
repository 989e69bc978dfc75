# SPDX-License-Identifier: Apache-2.0
"""One run of a job is one record, however often it was resized; runs of one ID may be of several jobs.

The records are those of Slurm 22.05: a job of two nodes that gave one back after 11 seconds, was suspended for 3, and
requeued after 174.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import EarlierSize, JobRecord, StepRecord
from slurmscope.jobs.runs import join_resized, newest_runs, newest_tasks, run_of, runs_of_job, whole_runs
from tests.fakes.reports import make_record

START = 1795000463
FIRST = make_record(
    1, state="RESIZING", submit_seconds=START, eligible_seconds=START, start_seconds=START, end_seconds=START + 11,
    nodes=("n1", "n2"), node_count=2, cpus=2, cpu_seconds=None, steps=(StepRecord(name="batch", state="RUNNING"),),
)  # fmt: skip
LAST = make_record(
    1, state="REQUEUED", submit_seconds=START + 11, eligible_seconds=START + 11, start_seconds=START,
    end_seconds=START + 174, suspended_seconds=3, nodes=("n1",), node_count=1, cpus=1, cpu_seconds=5.0,
    steps=(StepRecord(name="0", state="COMPLETED"),),
)  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [(START + 5, START + 90), (None, START + 5)])
def test_run_that_started_last_is_the_newest_of_one_submission(first: int | None, second: int) -> None:
    runs = [replace(LAST, submit_seconds=START, start_seconds=begin) for begin in (second, first)]

    assert [runs[0]] == newest_runs(runs) == newest_runs(runs[::-1])


def test_records_of_a_resized_job_are_one_run() -> None:
    (run,) = join_resized([LAST, FIRST])

    assert (START, START, START + 174) == (run.submit_seconds, run.start_seconds, run.end_seconds)
    assert (3, 5.0, 1, ("n1",)) == (run.suspended_seconds, run.cpu_seconds, run.cpus, run.nodes)
    assert ["batch", "0"] == [step.name for step in run.steps]
    assert (EarlierSize(START + 11, 2, 0),) == run.earlier_sizes


def test_record_of_a_new_size_is_no_run_of_its_own_until_the_old_one_ends() -> None:
    before = replace(FIRST, state="RUNNING", end_seconds=None)
    after = replace(LAST, state="RUNNING", end_seconds=None)

    # slurmdbd inserts the later record first: for a moment both are running.
    assert [before] == join_resized([after, before])
    assert [before] == list(whole_runs([before, after], lambda _: join_resized([before, after])))
    # A run that has ended is not hidden by a record that was never closed, nor is one whose first record was purged.
    assert [before, LAST] == join_resized([before, LAST])
    assert [after] == join_resized([after])


def test_new_size_that_seems_to_start_with_the_resize_is_joined() -> None:
    after = replace(LAST, state="RUNNING", end_seconds=None, start_seconds=START + 11)

    (run,) = whole_runs([after], lambda _: join_resized([FIRST, after]))

    assert (START, START) == (run.submit_seconds, run.start_seconds)


def test_core_time_of_a_resized_job_is_that_of_each_size() -> None:
    (run,) = join_resized([FIRST, LAST])

    # Two cores for 11 seconds, then one for 160.
    assert (2 * 11 + 160, 0.0) == run.allocated_seconds(171)
    assert (2 * 5, 0.0) == run.allocated_seconds(5)
    assert (171, 0.0) == LAST.allocated_seconds(171)


def test_gpu_time_of_a_resized_job_is_that_of_each_size() -> None:
    gpus = [(Gres(name="gpu", count=count),) for count in (4, 2)]
    (run,) = join_resized([replace(FIRST, gres=gpus[0]), replace(LAST, gres=gpus[1])])

    assert (2 * 11 + 160, 4 * 11 + 2 * 160) == run.allocated_seconds(171)


def test_job_may_be_resized_and_requeued_several_times() -> None:
    middle = replace(FIRST, submit_seconds=START + 11, end_seconds=START + 50, cpus=3)
    last = replace(LAST, submit_seconds=START + 50)
    again = make_record(1, submit_seconds=START + 300, start_seconds=START + 420, end_seconds=START + 500)

    run, other = join_resized([again, last, middle, FIRST])[::-1]

    assert [(START + 11, 2), (START + 50, 3)] == [size[:2] for size in run.earlier_sizes]
    assert (again, START) == (other, run.submit_seconds)


def test_last_record_of_a_resized_job_is_completed_by_the_others() -> None:
    asked: list[Sequence[int]] = []
    other = make_record(2)

    def read_jobs(job_ids: Sequence[int]) -> Iterable[JobRecord]:
        asked.append(job_ids)
        return join_resized([FIRST, LAST])

    found = list(whole_runs([LAST, other, FIRST], read_jobs))

    assert [[1]] == asked
    assert [START, other.submit_seconds] == [run.submit_seconds for run in found]


def test_last_record_stays_as_it_is_where_the_others_were_purged() -> None:
    assert [LAST] == list(whole_runs([LAST], lambda _: [LAST]))


def test_id_that_is_used_again_is_another_job() -> None:
    first = make_record(7, user="bob", submit_seconds=START, restarts=0)
    again = replace(first, submit_seconds=START + 100, restarts=1)
    reused = make_record(7, user="ada", submit_seconds=START + 10_000, restarts=0)
    requeued = replace(reused, submit_seconds=START + 20_000, restarts=1)
    runs = [first, again, reused, requeued]

    assert [requeued, reused] == runs_of_job(requeued, runs)
    assert [again, first] == runs_of_job(again, runs)
    assert [reused] == runs_of_job(reused, runs)


def test_id_that_the_same_user_gets_again_is_another_job() -> None:
    first = make_record(7, submit_seconds=START, restarts=0)
    second = make_record(7, submit_seconds=START + 10_000, restarts=0)
    requeued = replace(second, submit_seconds=START + 20_000, restarts=1)

    assert [requeued, second] == runs_of_job(requeued, [first, second, requeued])


def test_runs_of_releases_that_count_no_restarts_have_the_same_user_and_name() -> None:
    first = make_record(7, submit_seconds=START, restarts=None)
    again = replace(first, submit_seconds=START + 100)

    assert [again, first] == runs_of_job(again, [first, again])
    assert [again] == runs_of_job(again, [replace(first, user="bob"), replace(first, name="other"), again])


def test_each_task_of_the_newest_array_has_one_run() -> None:
    tasks = [make_record(20 + task, array_job_id=20, array_task_id=task, submit_seconds=START) for task in (1, 2)]
    requeued = replace(tasks[0], submit_seconds=START + 100)
    earlier = [replace(task, user="bob", job_id=task.job_id + 5, submit_seconds=5) for task in tasks]

    found = newest_tasks([*earlier, *tasks, requeued])

    assert {run_of(requeued), run_of(tasks[1])} == set(map(run_of, found))
    assert [] == newest_tasks([])


def test_job_that_started_at_once_is_not_the_rest_of_a_resized_one() -> None:
    at_once = make_record(3, submit_seconds=START, start_seconds=START)

    assert [at_once] == list(whole_runs([at_once], lambda _: pytest.fail("there are no other records")))


def test_restarts_that_one_of_two_records_lacks_are_not_compared() -> None:
    known, unknown = make_record(7, submit_seconds=START, restarts=3), make_record(7, restarts=None)
    for first, second in ((known, unknown), (unknown, known)):
        earlier, later = replace(first, submit_seconds=START), replace(second, submit_seconds=START + 100)
        assert [later, earlier] == runs_of_job(later, [earlier, later])


def test_cpu_time_of_a_resized_job_is_known_at_its_end() -> None:
    first, last = replace(FIRST, cpu_seconds=4.0), replace(LAST, cpu_seconds=5.0)
    running = replace(last, state="RUNNING", end_seconds=None)

    assert [9.0] == [run.cpu_seconds for run in join_resized([first, last])]
    assert [None] == [run.cpu_seconds for run in join_resized([first, running])]
    assert [None] == [run.cpu_seconds for run in join_resized([FIRST, replace(LAST, cpu_seconds=None)])]
