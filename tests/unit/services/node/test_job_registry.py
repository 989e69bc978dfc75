# SPDX-License-Identifier: Apache-2.0
"""Jobs come, work, end and come back, and every number is kept as long as it should."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.model.job_totals import WHOLE_JOB
from slurmscope.model.job_use import GroupKey, JobKey, JobUse
from slurmscope.services.node.job_registry import YOUNG_SECONDS, JobRegistry
from slurmscope.services.node.tracked_job import DOUBT_SECONDS, MANY_PROCESSES, PAST_GROUP_LIMIT
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReading

GRACE_SECONDS = 60.0
KEY = JobKey(7)


class Clock:
    """Stand still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Node:
    """Hold a book, what it finds, and the clock."""

    finder: FakeFinder
    book: JobRegistry
    clock: Clock

    def look(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.book.look()

    def look_and_read(self, seconds: float = 0.0) -> None:
        self.look(seconds)
        for tracked in self.book.live:
            self.book.look_into(tracked)
            self.book.read(tracked)

    def only(self) -> JobUse:
        (use,) = self.book.uses()
        return use

    def seconds(self) -> float | None:
        return self.only().groups[WHOLE_JOB].cpu.total_seconds


def make_node(*, has_steps: bool = False, ended_limit: int = 100) -> Node:
    finder, clock = FakeFinder(), Clock()
    book = JobRegistry(
        finder,
        lambda: FakeReading(has_steps=has_steps),
        grace_seconds=GRACE_SECONDS,
        ended_limit=ended_limit,
        clock=clock,
    )
    return Node(finder, book, clock)


@pytest.fixture
def node() -> Node:
    """Give a node without jobs."""
    return make_node()


def test_new_job_is_read_at_once(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=0.25))
    node.look()
    assert (KEY, 0.25, False) == (node.only().key, node.seconds(), node.only().has_ended)


def test_job_that_shows_nothing_yet_is_told_without_numbers(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=None))
    node.look()
    assert JobUse(key=KEY, uid=1001) == node.only()


def test_ended_job_keeps_its_last_numbers_for_the_grace_period(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.look()
    job.seconds = 3.5
    node.book.read(node.book.live[0])
    node.finder.remove(job)
    node.look()
    assert (3.5, True) == (node.seconds(), node.only().has_ended)
    node.look(GRACE_SECONDS - 1)
    assert 3.5 == node.seconds()
    node.look(1)
    assert () == node.book.uses()


def test_job_that_was_never_readable_is_not_missed(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=None))
    node.look()
    node.finder.remove(job)
    node.look()
    assert (KEY, True, {}) == (node.only().key, node.only().has_ended, node.only().groups)


def test_only_so_many_ended_jobs_are_remembered() -> None:
    node = make_node(ended_limit=3)
    for number in range(5):
        job = node.finder.add(FakeJob(JobKey(number)))
        node.look()
        node.finder.remove(job)
    node.look()
    assert ([2, 3, 4], 2) == ([use.key.job_id for use in node.book.uses()], node.book.forgotten)


def test_number_that_vanishes_at_the_end_is_kept(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=2.0))
    node.look()
    node.book.read(node.book.live[0])
    job.seconds = None
    node.book.read(node.book.live[0])
    assert 2.0 == node.seconds()


def test_young_job_is_read_at_its_ages_and_then_no_more(node: Node) -> None:
    node.finder.add(FakeJob(KEY))
    node.look()
    ages = []
    while (due := node.book.next_due_seconds()) is not None:
        node.clock.now = due
        ages += [due - 1000.0 for _ in node.book.take_due()]
    assert pytest.approx(YOUNG_SECONDS) == ages


def test_young_job_that_has_ended_is_not_due(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.look()
    node.finder.remove(job)
    node.look(10.0)
    assert [] == node.book.take_due()
    assert node.book.next_due_seconds() is None


def test_requeued_job_starts_anew(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0))
    node.look_and_read()
    node.finder.remove(job)
    node.look()
    node.finder.add(FakeJob(KEY, seconds=1.0))
    node.look_and_read()
    assert (1.0, False) == (node.seconds(), node.only().has_ended)


def test_folder_made_anew_between_two_looks_starts_anew(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=100.0))
    node.look_and_read()
    node.finder.add(FakeJob(KEY, seconds=150.0))
    node.look_and_read()
    assert 150.0 == node.seconds()


def test_fallen_counter_starts_anew(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0))
    node.look_and_read()
    job.seconds = 1.0
    node.book.read(node.book.live[0])
    assert 1.0 == node.seconds()


def test_lives_with_names_of_their_own_are_told_side_by_side(node: Node) -> None:
    job = node.finder.add(FakeJob(JobKey(7, "", "sAAAAAAAAAAAAA"), seconds=100.0))
    node.look()
    node.finder.remove(job)
    node.finder.add(FakeJob(JobKey(7, "", "sBBBBBBBBBBBBB"), seconds=1.0))
    node.look()
    lives = [(use.key.life, use.has_ended) for use in node.book.uses()]
    assert [("sBBBBBBBBBBBBB", False), ("sAAAAAAAAAAAAA", True)] == lives


def test_job_between_two_steps_counts_on(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.look_and_read()
    node.finder.remove(job)
    node.look()
    again = node.finder.add(FakeJob(KEY, seconds=1.0, steps={"1"}))
    node.look_and_read()
    assert (101.0, False) == (node.seconds(), node.only().has_ended)
    again.seconds = 5.0
    node.look_and_read()
    assert 105.0 == node.seconds()
    node.finder.remove(again)
    node.look()
    assert (105.0, True) == (node.seconds(), node.only().has_ended)


def test_job_that_counts_on_keeps_the_ledger_of_its_processes(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, steps={"0"}))
    for _ in range(3):
        node.look_and_read()
    node.finder.remove(job)
    node.look()
    node.finder.add(FakeJob(KEY, steps={"1"}))
    node.look_and_read()
    processes = node.only().processes
    assert processes is not None
    assert 4 == processes.minor_faults


def test_third_step_counts_on_from_both_before(node: Node) -> None:
    for step in ("0", "3", "4"):
        job = node.finder.add(FakeJob(KEY, seconds=10.0, steps={step}))
        node.look_and_read()
        node.finder.remove(job)
        node.look()
    assert 30.0 == node.seconds()


def test_requeued_job_without_a_batch_step_starts_anew(node: Node) -> None:
    for _ in range(2):
        job = node.finder.add(FakeJob(KEY, seconds=10.0, steps={"0"}))
        node.look_and_read()
        node.finder.remove(job)
        node.look()
    assert 10.0 == node.seconds()


def test_old_numbers_stand_while_it_is_unknown_whether_the_job_goes_on(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.look_and_read()
    node.finder.remove(job)
    node.look()
    again = node.finder.add(FakeJob(KEY, seconds=1.0, steps=set()))
    node.look_and_read()
    assert (100.0, True) == (node.seconds(), node.only().has_ended)
    again.steps = {"1"}
    node.look_and_read()
    assert (101.0, False) == (node.seconds(), node.only().has_ended)


def test_job_that_shows_no_step_for_long_is_a_new_one(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.look_and_read()
    node.finder.remove(job)
    node.look()
    node.finder.add(FakeJob(KEY, seconds=1.0, steps=set()))
    node.look_and_read()
    node.look_and_read(DOUBT_SECONDS)
    assert (1.0, False) == (node.seconds(), node.only().has_ended)


def test_ended_step_is_told_for_the_grace_period() -> None:
    node = make_node(has_steps=True)
    job = node.finder.add(FakeJob(KEY, steps={"batch", "0"}))
    node.look_and_read()
    job.steps = {"batch"}
    node.look_and_read()
    assert {WHOLE_JOB, GroupKey("batch"), GroupKey("0")} == node.only().groups.keys()
    node.look_and_read(GRACE_SECONDS)
    assert {WHOLE_JOB, GroupKey("batch")} == node.only().groups.keys()


def test_only_so_many_ended_steps_are_told() -> None:
    node = make_node(has_steps=True)
    job = node.finder.add(FakeJob(KEY, steps=set(map(str, range(2 * PAST_GROUP_LIMIT)))))
    node.look_and_read()
    job.steps = {"batch"}
    node.look_and_read()
    assert PAST_GROUP_LIMIT + 2 == len(node.only().groups)


def test_reading_the_cgroup_leaves_the_processes_as_they_were(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, processes=3))
    node.look_and_read()
    job.seconds, job.processes = 2.0, 1
    node.book.read_cgroup(node.book.live[0])
    processes = node.only().processes
    assert processes is not None
    assert (2.0, 3) == (node.seconds(), processes.processes)


@pytest.mark.parametrize(("count", "expected"), [(MANY_PROCESSES, False), (MANY_PROCESSES + 1, True)])
def test_job_with_many_processes_is_known(node: Node, count: int, expected: bool) -> None:
    node.finder.add(FakeJob(KEY, processes=count))
    node.look()
    assert not node.book.live[0].has_many_processes
    node.look_and_read()
    assert expected is node.book.live[0].has_many_processes


def test_jobs_are_found_by_the_name_of_their_folder(node: Node) -> None:
    node.finder.add(FakeJob(JobKey(7, "n1"), path=Path("/cgroup/slurm_n1/uid_1/job_7")))
    node.finder.add(FakeJob(JobKey(7, "n2"), path=Path("/cgroup/slurm_n2/uid_1/job_7")))
    node.finder.add(FakeJob(JobKey(8, "n1"), path=Path("/cgroup/slurm_n1/uid_1/job_8")))
    node.finder.add(FakeJob(JobKey(9)))
    node.look()
    told = node.book.jobs_at({"/", "cgroup", "uid_1", "job_7", ""})
    assert {JobKey(7, "n1"), JobKey(7, "n2")} == {tracked.key for tracked in told}


def test_job_that_has_ended_is_not_read_any_more(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.look()
    (tracked,) = node.book.live
    node.finder.remove(job)
    node.look()
    job.seconds = 9.0
    node.book.read(tracked)
    assert (False, 0.0) == (node.book.is_live(tracked), node.seconds())
