# SPDX-License-Identifier: Apache-2.0
"""The I/O of a job is counted once, whoever waits for whom, and never falls."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from slurmscope.node.procfs.io_totals import IoTotals
from slurmscope.node.procfs.stat import NO_IO, IoCounts, ProcessSample
from tests.unit.node.proc_tree import sample, written

MEGABYTE = 1_000_000


def total(ledger: IoTotals, *seen: tuple[ProcessSample, IoCounts], stepd: int = 0) -> int:
    return ledger.update(seen, (stepd,)).write_chars


def test_child_that_was_waited_for_is_counted_in_its_parent() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))

    # It wrote 7 more before it ended: nobody saw that but the parent.
    parent = sample(10, child_faults=60), IoCounts(0, 5 + 57, 0, 6, 0, 0)

    assert 62 == total(ledger, parent)
    assert 62 == total(ledger, parent)


def test_child_without_a_waiting_parent_is_kept() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))

    assert [55, 55, 55] == [total(ledger, (sample(10), written(5))) for _ in range(3)]


def test_busy_parent_that_does_not_wait_does_not_hide_its_child() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))

    # The parent wrote more than the child ever did, but has no faults of children.
    first = total(ledger, (sample(10), IoCounts(0, 505, 0, 10, 0, 0)))
    second = total(ledger, (sample(10), IoCounts(0, 605, 0, 12, 0, 0)))

    assert 505 <= first <= 555
    assert 655 == second


def test_parent_that_waits_for_others_does_not_hide_a_child_of_more_writes() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10, faults=50), written(50)))

    first, second = (total(ledger, (sample(10, child_faults=5000), IoCounts(0, 20, 0, 10, 0, 0))) for _ in range(2))

    assert 55 <= first <= 70
    assert 70 == second


def test_grandchild_is_found_two_levels_up() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), NO_IO), (sample(11, 10), written(1)), (sample(12, 11), written(50)))

    parent = sample(10, child_faults=120), IoCounts(0, 53, 0, 5, 0, 0)

    assert [53, 53] == [total(ledger, parent) for _ in range(2)]


def test_orphan_that_fell_out_of_the_job_is_kept() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), NO_IO), (sample(12, 1), written(50)))

    assert 50 == total(ledger, (sample(10), NO_IO))


def test_hand_over_between_two_reads_is_not_counted_twice() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))
    # The parent was read just before it waited, the child just after it was gone.
    during = total(ledger, (sample(10), written(5)))
    after = total(ledger, (sample(10, child_faults=50), IoCounts(0, 55, 0, 4, 0, 0)))

    assert [55, 55] == [during, after]


def test_hand_over_between_faults_and_io_is_not_counted_twice() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))
    during = total(ledger, (sample(10), IoCounts(0, 55, 0, 4, 0, 0)))
    after = total(ledger, (sample(10, child_faults=50), IoCounts(0, 55, 0, 4, 0, 0)))

    assert [55, 55] == [during, after]


def test_proof_is_used_once() -> None:
    ledger = IoTotals()
    children = [(sample(pid, 10, faults=50), written(50)) for pid in (11, 12)]
    total(ledger, (sample(10), NO_IO), *children)

    # One of two was waited for: the growth of the parent explains one of them only.
    parent = sample(10, child_faults=50), IoCounts(0, 50, 0, 2, 0, 0)

    assert [100, 100, 100] == [total(ledger, parent) for _ in range(3)]


def test_number_given_to_another_process_starts_at_its_own_counters() -> None:
    ledger = IoTotals()
    total(ledger, (sample(10, start=1), written(50)))

    assert 53 == total(ledger, (sample(10, start=2), written(3)))


@pytest.mark.parametrize("parent_id", [1, 10])
@pytest.mark.parametrize("scans", [1, 2, 3])
def test_living_process_that_a_list_lacks_for_a_while_counts_once(scans: int, parent_id: int) -> None:
    ledger = IoTotals()
    parent, child = (sample(10), written(5)), sample(11, parent_id)
    total(ledger, parent, (child, written(50)))
    seen = [total(ledger, parent) for _ in range(scans)]
    seen += [total(ledger, parent, (child, written(amount))) for amount in (50, 50, 57)]
    seen += [total(ledger, parent) for _ in range(3)]

    # Whether it is back or ended for good, it is the same process.
    assert [*[55] * (scans + 2), *[62] * 4] == seen


def test_slurmstepd_that_a_list_lacks_for_a_moment_counts_what_it_received_once() -> None:
    ledger = IoTotals()
    stepd, task = (sample(9, child_faults=60), IoCounts(0, 1050, 0, 4, 0, 0)), (sample(10, 9), written(5))
    total(ledger, (sample(9), written(1000)), task, (sample(11, 9), written(50)), stepd=9)
    seen = [total(ledger, *each, stepd=9) for each in ((stepd, task), (task,), (stepd, task))]

    # One of the tasks had ended: slurmstepd received its 50, and its own 1000 stay its own.
    assert [55, 55, 55] == seen


def test_chatter_of_slurmstepd_is_not_the_jobs() -> None:
    ledger = IoTotals()
    seen = [total(ledger, (sample(9), written(amount)), (sample(10, 9), written(1)), stepd=9) for amount in (50, 99)]

    assert [1, 1] == seen


def test_task_that_ended_is_counted_in_slurmstepd() -> None:
    ledger = IoTotals()
    total(ledger, (sample(9), written(1000)), (sample(10, 9), written(50)), stepd=9)

    # 60 from the task, 3 of its own; later it only chatters.
    ended = total(ledger, (sample(9, child_faults=50), IoCounts(0, 1063, 0, 5, 0, 0)), stepd=9)
    later = total(ledger, (sample(9, child_faults=50), IoCounts(0, 2000, 0, 9, 0, 0)), stepd=9)

    assert [63, 63] == [ended, later]


def test_task_whose_end_shows_first_in_the_io_of_slurmstepd_is_counted_once() -> None:
    ledger = IoTotals()
    total(ledger, (sample(9), written(1000)), (sample(10, 9), written(50)), stepd=9)
    during = total(ledger, (sample(9), IoCounts(0, 1060, 0, 5, 0, 0)), stepd=9)
    after = total(ledger, (sample(9, child_faults=50), IoCounts(0, 1060, 0, 5, 0, 0)), stepd=9)

    assert 50 <= during <= 60
    assert 60 == after


def test_slurmstepd_seen_late_has_what_its_children_left() -> None:
    assert 70 == total(IoTotals(), (sample(9, child_faults=9), written(70)), stepd=9)
    assert 0 == total(IoTotals(), (sample(9), written(70)), stepd=9)


def test_end_of_a_step_keeps_what_its_tasks_did() -> None:
    ledger = IoTotals()
    total(ledger, (sample(9), written(1000)), (sample(10, 9), written(50)), stepd=9)
    total(ledger, (sample(9, child_faults=50), IoCounts(0, 1060, 0, 5, 0, 0)), stepd=9)

    assert [60, 60] == [total(ledger), total(ledger)]


@dataclass
class Simulated:
    """A process of a kernel that hands over counters as Linux does."""

    pid: int
    parent: Simulated | None
    waits: bool
    faults: int = 0
    child_faults: int = 0
    io: int = 0
    own_io: int = 0
    last_seen_io: int | None = None
    children: list[Simulated] = field(default_factory=list)


class Kernel:
    """Run random programs: the truth is known, and how much of it nobody can know any more."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.root = Simulated(1, None, waits=True, faults=60)
        self.alive = [self.root]
        self.truth = 0
        self.unknowable = 0
        self.next_pid = 2

    def step(self) -> None:
        process = self.chance.choice(self.alive)
        action = self.chance.random()
        if action < 0.3 and len(self.alive) < 12:
            child = Simulated(self.next_pid, process, waits=self.chance.random() < 0.6, faults=60)
            self.next_pid += 1
            process.children.append(child)
            self.alive.append(child)
        elif action < 0.7:
            amount = self.chance.randrange(1, 1000)
            process.io += amount
            self.truth += amount
            process.faults += self.chance.randrange(3)
        elif process is not self.root and not process.children:
            self.end(process)

    def end(self, process: Simulated) -> None:
        self.alive.remove(process)
        parent = process.parent
        assert parent is not None
        parent.children.remove(process)
        if parent.waits:
            parent.io += process.io
            parent.child_faults += process.faults + process.child_faults
        else:
            self.unknowable += process.io - (process.last_seen_io or 0)

    def scan(self, ledger: IoTotals) -> int:
        seen = []
        for process in self.alive:
            process.last_seen_io = process.io
            shown = sample(
                process.pid,
                process.parent.pid if process.parent else 0,
                faults=process.faults,
                child_faults=process.child_faults,
            )
            seen.append((shown, IoCounts(0, process.io, 0, process.io, 0, 0)))
        return total(ledger, *seen)


@pytest.mark.parametrize("seed", range(60))
def test_random_trees_are_counted_once(seed: int) -> None:
    chance = random.Random(seed)
    kernel, ledger = Kernel(chance), IoTotals()
    totals = []
    for _ in range(120):
        for _ in range(chance.randrange(1, 4)):
            kernel.step()
        totals.append(kernel.scan(ledger))
    totals += [kernel.scan(ledger) for _ in range(3)]

    assert sorted(totals) == totals
    assert kernel.truth - kernel.unknowable <= totals[-1] <= kernel.truth


@pytest.mark.parametrize("seed", range(60))
def test_restarts_of_the_agent_lose_only_what_ended_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    kernel, ledger = Kernel(chance), IoTotals()
    totals = []
    for _ in range(40):
        for _ in range(chance.randrange(1, 12)):
            kernel.step()
        totals.append(kernel.scan(ledger))
        kept = ledger.keep(NO_IO)
        for _ in range(chance.randrange(6)):
            kernel.step()
        ledger = IoTotals()
        ledger.resume(kept)
        totals.append(kernel.scan(ledger))

    assert sorted(totals) == totals
    assert totals[-1] <= kernel.truth
    # Without a step in between, nothing is lost.
    resumed = IoTotals()
    resumed.resume(ledger.keep(NO_IO))
    assert totals[-1] == kernel.scan(resumed)


def test_child_that_was_kept_is_kept_by_the_next_agent() -> None:
    ledger, next_agent = IoTotals(), IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))
    assert [55, 55] == [total(ledger, (sample(10), written(5))) for _ in range(2)]
    next_agent.resume(ledger.keep(NO_IO))

    # The parent wrote 3 while no agent ran, and 4 later.
    assert 58 == total(next_agent, (sample(10), written(8)))
    assert 62 == total(next_agent, (sample(10), written(12)))


def test_total_does_not_fall_when_a_process_ended_while_no_agent_ran() -> None:
    ledger, next_agent = IoTotals(), IoTotals()
    total(ledger, (sample(10), written(5)), (sample(11, 10), written(50)))
    next_agent.resume(ledger.keep(NO_IO))

    assert 55 == total(next_agent, (sample(10), written(8)))
    assert 59 == total(next_agent, (sample(10), written(12)))


def test_own_io_of_slurmstepd_is_not_counted_by_the_next_agent() -> None:
    ledger, next_agent = IoTotals(), IoTotals()
    # It received 90 of its task; of these, the next agent will take 20 of an ended thread for received too.
    total(ledger, (sample(1), written(0)), (sample(2, 1), written(90)), stepd=1)
    assert 90 == total(ledger, (sample(1, child_faults=50), written(90)), stepd=1)
    next_agent.resume(ledger.keep(written(20)))
    assert 90 == total(next_agent, (sample(1, child_faults=50), written(110)), stepd=1)
    assert 95 == total(next_agent, (sample(1, child_faults=60), written(115)), stepd=1)
