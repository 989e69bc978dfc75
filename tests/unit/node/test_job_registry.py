# SPDX-License-Identifier: Apache-2.0
"""Jobs come, work, end and come back, and every number is kept as long as it should."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.node.job_registry import PAUSED_LIMIT, YOUNG_SECONDS, JobRegistry
from slurmscope.node.job_use import WHOLE_JOB, GroupKey, JobKey, JobUse, Roster
from slurmscope.node.tracked_job import CONFIRM_SECONDS, MANY_PROCESSES, PAST_GROUP_LIMIT
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader

GRACE_SECONDS = 60.0
KEY = JobKey(7)


class Clock:
    """Stand still until a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Node:
    """Hold a registry, what it finds, and the clock."""

    finder: FakeFinder
    registry: JobRegistry
    clock: Clock

    def scan(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.registry.scan()

    def scan_and_read(self, seconds: float = 0.0) -> None:
        self.scan(seconds)
        for tracked in self.registry.live:
            self.registry.update_steps(tracked)
            self.registry.read(tracked)

    def only(self) -> JobUse:
        (use,) = self.registry.uses()
        return use

    def seconds(self) -> float | None:
        return self.only().groups[WHOLE_JOB].cpu.total_seconds


def make_node(*, has_steps: bool = False, ended_limit: int = 100) -> Node:
    finder, clock = FakeFinder(), Clock()
    registry = JobRegistry(
        finder,
        lambda: FakeReader(has_steps=has_steps),
        grace_seconds=GRACE_SECONDS,
        ended_limit=ended_limit,
        clock=clock,
    )
    return Node(finder, registry, clock)


@pytest.fixture
def node() -> Node:
    """Return a node without jobs."""
    return make_node()


def test_new_job_is_read_at_once(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=0.25))
    node.scan()
    assert (KEY, 0.25, False) == (node.only().key, node.seconds(), node.only().has_ended)


def test_job_without_values_yet_is_served_without_values(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=None))
    node.scan()
    assert JobUse(key=KEY, uid=1001) == node.only()


def test_ended_job_keeps_its_last_numbers_for_the_grace_period(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.scan()
    job.seconds = 3.5
    node.registry.read(node.registry.live[0])
    node.finder.remove(job)
    node.scan()
    assert (3.5, True) == (node.seconds(), node.only().has_ended)
    node.scan(GRACE_SECONDS - 1)
    assert 3.5 == node.seconds()
    node.scan(1)
    assert () == node.registry.uses()


def test_job_that_was_never_readable_is_not_missed(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=None))
    node.scan()
    node.finder.remove(job)
    node.scan()
    assert (KEY, True, {}) == (node.only().key, node.only().has_ended, node.only().groups)


def test_number_of_ended_jobs_is_limited() -> None:
    node = make_node(ended_limit=3)
    for number in range(5):
        job = node.finder.add(FakeJob(JobKey(number)))
        node.scan()
        node.finder.remove(job)
    node.scan()
    assert [2, 3, 4] == [use.key.job_id for use in node.registry.uses()]


def test_number_that_vanishes_at_the_end_is_kept(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=2.0))
    node.scan()
    node.registry.read(node.registry.live[0])
    job.seconds = None
    node.registry.read(node.registry.live[0])
    assert 2.0 == node.seconds()


def test_young_job_is_read_at_its_ages_and_then_no_more(node: Node) -> None:
    node.scan()
    node.finder.add(FakeJob(KEY))
    node.scan()
    ages = []
    while (due := node.registry.next_due_seconds()) is not None:
        node.clock.now = due
        ages += [due - 1000.0 for _ in node.registry.take_due()]
    assert pytest.approx(YOUNG_SECONDS) == ages


def test_job_older_than_the_agent_is_read_once(node: Node) -> None:
    node.finder.add(FakeJob(KEY))
    node.scan()
    node.clock.now += 60.0
    assert [KEY] == [tracked.key for tracked in node.registry.take_due()]
    assert node.registry.next_due_seconds() is None


def test_young_job_that_was_read_since_is_not_due(node: Node) -> None:
    node.scan()
    node.finder.add(FakeJob(KEY))
    node.scan_and_read()
    node.clock.now += 1.0
    node.registry.read(node.registry.live[0])
    assert [] == node.registry.take_due()
    node.clock.now += 1.0
    assert [KEY] == [tracked.key for tracked in node.registry.take_due()]


def test_job_with_several_reads_due_is_read_once(node: Node) -> None:
    node.scan()
    node.finder.add(FakeJob(KEY))
    node.scan()
    node.clock.now += 60.0
    assert [KEY] == [tracked.key for tracked in node.registry.take_due()]


def test_jobs_at_a_folder_name_are_those_that_run_there(node: Node) -> None:
    first = node.finder.add(FakeJob(JobKey(7, "n1"), path=Path("/cgroup/n1/job_7")))
    node.finder.add(FakeJob(JobKey(7, "n2"), path=Path("/cgroup/n2/job_7")))
    node.finder.add(FakeJob(JobKey(8), path=Path("/cgroup/n1/job_8")))
    node.finder.add(FakeJob(JobKey(9)))
    node.scan()
    assert {JobKey(7, "n1"), JobKey(7, "n2")} == {found.key for found in node.registry.jobs_at({"job_7", "", "other"})}
    node.finder.remove(first)
    node.scan()
    assert [JobKey(7, "n2")] == [found.key for found in node.registry.jobs_at({"job_7"})]


def test_young_job_that_has_ended_is_not_due(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.scan()
    node.finder.remove(job)
    node.scan(10.0)
    assert [] == node.registry.take_due()
    assert node.registry.next_due_seconds() is None


def test_requeued_job_starts_again(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0))
    node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    node.finder.add(FakeJob(KEY, seconds=1.0))
    node.scan_and_read()
    assert (1.0, False) == (node.seconds(), node.only().has_ended)


def test_directory_created_again_between_two_scans_starts_again(node: Node) -> None:
    node.finder.add(FakeJob(KEY, seconds=100.0))
    node.scan_and_read()
    node.finder.add(FakeJob(KEY, seconds=150.0))
    node.scan_and_read()
    assert 150.0 == node.seconds()


def test_fallen_counter_starts_again(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0))
    node.scan_and_read()
    job.seconds = 1.0
    node.registry.read(node.registry.live[0])
    assert 1.0 == node.seconds()


def test_runs_with_their_own_sluid_are_served_side_by_side(node: Node) -> None:
    job = node.finder.add(FakeJob(JobKey(7, "", "sAAAAAAAAAAAAA"), seconds=100.0))
    node.scan()
    node.finder.remove(job)
    node.finder.add(FakeJob(JobKey(7, "", "sBBBBBBBBBBBBB"), seconds=1.0))
    node.scan()
    lives = [(use.key.sluid, use.has_ended) for use in node.registry.uses()]
    assert [("sBBBBBBBBBBBBB", False), ("sAAAAAAAAAAAAA", True)] == lives


def test_job_between_two_steps_counts_on(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    again = node.finder.add(FakeJob(KEY, seconds=1.0, steps={"1"}))
    node.scan_and_read()
    assert (101.0, False) == (node.seconds(), node.only().has_ended)
    again.seconds = 5.0
    node.scan_and_read()
    assert 105.0 == node.seconds()
    node.finder.remove(again)
    node.scan()
    assert (105.0, True) == (node.seconds(), node.only().has_ended)


def end_step(node: Node, job: FakeJob, *, is_read: bool) -> bool:
    """Let the only step of a job end, and return whether its peak is called final."""
    node.scan_and_read()
    (tracked,) = node.registry.live
    if is_read:
        job.pids.clear()
        job.processes = 0
        node.registry.read_cgroup(tracked)
        node.registry.check_end(tracked)
        node.registry.read(tracked)
    node.finder.remove(job)
    node.scan()
    return node.only().is_peak_final


@pytest.mark.parametrize(
    ("is_read", "expected"), [((True, True), True), ((False, True), False), ((True, False), False)]
)
def test_peak_of_a_job_is_final_if_those_of_all_steps_are(
    node: Node, is_read: tuple[bool, bool], expected: bool
) -> None:
    for number, is_step_read in enumerate(is_read):
        job = node.finder.add(FakeJob(KEY, seconds=1.0, peak_bytes=5, steps={str(number)}, pids=[1]))
        is_final = end_step(node, job, is_read=is_step_read)
    assert expected is is_final


@pytest.mark.parametrize("begins", ["a process", "a step"])
def test_peak_is_no_longer_final_when_something_begins(node: Node, begins: str) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=1.0, peak_bytes=5, processes=0))
    node.scan_and_read()
    (tracked,) = node.registry.live
    node.registry.check_end(tracked)
    assert tracked.ended_use().is_peak_final
    if begins == "a process":
        job.processes = 1
    else:
        job.steps = {"batch", "0"}
    node.scan_and_read()
    assert not tracked.ended_use().is_peak_final


def test_failed_reading_is_not_the_last_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=1.0, peak_bytes=5))
    node.scan_and_read()
    (tracked,) = node.registry.live
    monkeypatch.setattr(job, "read", lambda: 1 / 0)
    node.registry.read_cgroup(tracked)
    node.registry.check_end(tracked)
    assert not tracked.ended_use().is_peak_final


def test_job_counts_on_after_a_pause_longer_than_the_grace_period(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    node.scan(3600.0)
    assert () == node.registry.uses()
    node.finder.add(FakeJob(KEY, seconds=1.0, steps={"1"}))
    node.scan_and_read()
    assert 101.0 == node.seconds()


def test_number_of_jobs_that_may_count_on_is_limited(node: Node) -> None:
    for number in range(PAUSED_LIMIT + 1):
        job = node.finder.add(FakeJob(JobKey(number), seconds=100.0, steps={"0"}))
        node.scan_and_read()
        node.finder.remove(job)
        node.scan(GRACE_SECONDS)
    for number in (0, PAUSED_LIMIT):
        node.finder.add(FakeJob(JobKey(number), seconds=1.0, steps={"1"}))
    node.scan_and_read()
    totals = {use.key.job_id: use.groups[WHOLE_JOB].cpu.total_seconds for use in node.registry.uses()}
    assert (1.0, 101.0) == (totals[0], totals[PAUSED_LIMIT])


def test_job_that_continues_keeps_the_totals_of_its_processes(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, steps={"0"}))
    for _ in range(3):
        node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    node.finder.add(FakeJob(KEY, steps={"1"}))
    node.scan_and_read()
    processes = node.only().processes
    assert processes is not None
    assert 4 == processes.minor_faults


def test_third_step_counts_on_from_both_before(node: Node) -> None:
    for step in ("0", "3", "4"):
        job = node.finder.add(FakeJob(KEY, seconds=10.0, steps={step}))
        node.scan_and_read()
        node.finder.remove(job)
        node.scan()
    assert 30.0 == node.seconds()


def test_requeued_job_without_a_batch_step_starts_again(node: Node) -> None:
    for _ in range(2):
        job = node.finder.add(FakeJob(KEY, seconds=10.0, steps={"0"}))
        node.scan_and_read()
        node.finder.remove(job)
        node.scan()
    assert 10.0 == node.seconds()


def test_old_numbers_stand_while_it_is_unknown_whether_the_job_goes_on(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    again = node.finder.add(FakeJob(KEY, seconds=1.0, steps=set()))
    node.scan_and_read()
    assert (100.0, True) == (node.seconds(), node.only().has_ended)
    again.steps = {"1"}
    node.scan_and_read()
    assert (101.0, False) == (node.seconds(), node.only().has_ended)


def test_job_that_shows_no_step_for_long_is_a_new_one(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, seconds=100.0, steps={"0"}))
    node.scan_and_read()
    node.finder.remove(job)
    node.scan()
    node.finder.add(FakeJob(KEY, seconds=1.0, steps=set()))
    node.scan_and_read()
    node.scan_and_read(CONFIRM_SECONDS)
    assert (1.0, False) == (node.seconds(), node.only().has_ended)


def test_ended_step_is_served_for_the_grace_period() -> None:
    node = make_node(has_steps=True)
    job = node.finder.add(FakeJob(KEY, steps={"batch", "0"}))
    node.scan_and_read()
    job.steps = {"batch"}
    node.scan_and_read()
    assert {WHOLE_JOB, GroupKey("batch"), GroupKey("0")} == node.only().groups.keys()
    node.scan_and_read(GRACE_SECONDS)
    assert {WHOLE_JOB, GroupKey("batch")} == node.only().groups.keys()


def test_number_of_ended_steps_is_limited() -> None:
    node = make_node(has_steps=True)
    job = node.finder.add(FakeJob(KEY, steps=set(map(str, range(2 * PAST_GROUP_LIMIT)))))
    node.scan_and_read()
    job.steps = {"batch"}
    node.scan_and_read()
    assert PAST_GROUP_LIMIT + 2 == len(node.only().groups)


def test_reading_the_cgroup_leaves_the_processes_as_they_were(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY, processes=3, pids=[1, 2, 3]))
    node.scan_and_read()
    job.seconds, job.processes = 2.0, 1
    node.registry.read_cgroup(node.registry.live[0])
    processes = node.only().processes
    assert processes is not None
    assert (2.0, 3) == (node.seconds(), processes.processes)
    assert {1, 2, 3} == node.only().pids


@pytest.mark.parametrize(("count", "expected"), [(MANY_PROCESSES, False), (MANY_PROCESSES + 1, True)])
def test_job_with_many_processes_is_known(node: Node, count: int, expected: bool) -> None:
    node.finder.add(FakeJob(KEY, processes=count))
    node.scan()
    assert not node.registry.live[0].has_many_processes
    node.scan_and_read()
    assert expected is node.registry.live[0].has_many_processes


def test_jobs_are_found_by_the_name_of_their_folder(node: Node) -> None:
    node.finder.add(FakeJob(JobKey(7, "n1"), path=Path("/cgroup/slurm_n1/uid_1/job_7")))
    node.finder.add(FakeJob(JobKey(7, "n2"), path=Path("/cgroup/slurm_n2/uid_1/job_7")))
    node.finder.add(FakeJob(JobKey(8, "n1"), path=Path("/cgroup/slurm_n1/uid_1/job_8")))
    node.finder.add(FakeJob(JobKey(9)))
    node.scan()
    told = node.registry.jobs_at({"/", "cgroup", "uid_1", "job_7", ""})
    assert {JobKey(7, "n1"), JobKey(7, "n2")} == {tracked.key for tracked in told}


def test_job_that_has_ended_is_not_read_any_more(node: Node) -> None:
    job = node.finder.add(FakeJob(KEY))
    node.scan()
    (tracked,) = node.registry.live
    node.finder.remove(job)
    node.scan()
    job.seconds = 9.0
    node.registry.read(tracked)
    assert (False, 0.0) == (node.registry.is_live(tracked), node.seconds())


def test_roster_counts_jobs_that_began_and_names_the_only_one(node: Node) -> None:
    other = JobKey(8)
    first = node.finder.add(FakeJob(KEY))
    node.scan()
    assert Roster(begun=1, running=1, last=KEY, alone=KEY) == node.registry.roster
    node.finder.add(FakeJob(other))
    node.scan()
    assert Roster(begun=2, running=2, last=other) == node.registry.roster
    node.finder.remove(first)
    node.scan()
    assert Roster(begun=2, running=1, last=other, alone=other) == node.registry.roster
