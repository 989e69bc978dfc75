# SPDX-License-Identifier: Apache-2.0
"""Check the totals of programs, threads and open files of a job."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from slurmscope.node.procfs.process_totals import (
    FileTally,
    GrowthTotals,
    NewNames,
    ProcessFiles,
    ProgramTotals,
    ThreadTally,
    bounded,
    bounded_most,
    is_file,
    remember,
)
from slurmscope.node.procfs.stat import ThreadSample
from tests.unit.node.proc_tree import sample


def test_most_threads_are_those_of_one_process() -> None:
    tally = ThreadTally()
    for pid, command, threads in ((1, "rank", 4), (2, "rank", 6), (3, "rank", 5), (4, "sh", 1), (5, "cc", 3)):
        tally.add(sample(pid, command=command)._replace(threads=threads))

    assert {"rank": 6, "sh": 1, "cc": 3} == tally.most_of_program
    # Of two programs that are not shown by name, the larger one counts.
    assert {"rank": 6, "other": 3} == bounded_most(tally.most_of_program, ["rank", "other"])


def test_time_of_ended_processes_stays() -> None:
    ledger = ProgramTotals(10)
    ledger.update([sample(1, command="a", ticks=5), sample(2, command="b", ticks=7)])
    ledger.update([sample(2, command="b", ticks=9)])
    ledger.update([])

    assert {"a": 5, "b": 9} == ledger.cpu_ticks_by_program()
    assert 14 == ledger.cpu_ticks


def test_process_that_a_list_lacks_for_a_while_counts_once() -> None:
    ledger = ProgramTotals(10)
    ledger.update([sample(1, command="a", ticks=5, faults=3), sample(2, command="b", ticks=7, faults=2)])
    ledger.update([sample(1, command="a", ticks=5, faults=3)])
    ledger.update([])
    ledger.update([sample(1, command="a", ticks=6, faults=3), sample(2, command="b", ticks=9, faults=4)])

    assert {"a": 6, "b": 9} == ledger.cpu_ticks_by_program()
    assert (15, 7) == (ledger.cpu_ticks, ledger.minor_faults)


def test_memory_of_processes_that_are_gone_is_bounded() -> None:
    vanished: dict[int, int] = {}
    for pid in range(1000):
        remember(vanished, {pid % 300: pid})

    assert 256 == len(vanished)
    # The last ones, whatever their PIDs.
    assert set(range(744, 1000)) == set(vanished.values())


def test_next_agent_continues_the_time_of_programs() -> None:
    ledger, next_agent = ProgramTotals(10), ProgramTotals(10)
    living = sample(2, command="b", ticks=9, faults=5)
    ledger.update([sample(1, command="a", ticks=5, faults=3), sample(2, command="sh", ticks=2, faults=1)])
    ledger.update([living])
    assert {"a": 5, "sh": 2, "b": 7} == ledger.cpu_ticks_by_program()
    next_agent.resume(ledger.keep([living]))

    # 4 more while no agent ran, by a process whose time before was attributed to two programs.
    next_agent.update([sample(2, command="b", ticks=13, faults=6)])
    assert {"a": 5, "sh": 2, "b": 11} == next_agent.cpu_ticks_by_program()
    assert (18, 9) == (next_agent.cpu_ticks, next_agent.minor_faults)


def test_time_does_not_fall_when_a_process_ended_while_no_agent_ran() -> None:
    ledger, next_agent = ProgramTotals(1), ProgramTotals(1)
    living = [sample(1, command="a", ticks=50), sample(2, command="b", ticks=9)]
    ledger.update(living)
    assert {"a": 50, "other": 9} == ledger.cpu_ticks_by_program()
    next_agent.resume(ledger.keep(living))
    next_agent.update([sample(2, command="b", ticks=10)])
    assert {"a": 50, "other": 9} == next_agent.cpu_ticks_by_program()
    next_agent.update([sample(2, command="b", ticks=13)])
    # The first of these 4 is hidden by what is missing of the other process.
    assert {"a": 50, "other": 12} == next_agent.cpu_ticks_by_program()


def test_next_agent_continues_the_counters_of_threads() -> None:
    ledger, next_agent = GrowthTotals(), GrowthTotals()
    ledger.update({1: (10, 4), 2: (5, 1)})
    ledger.update({2: (6, 1)})
    next_agent.resume(ledger.keep())
    next_agent.update({2: (8, 1), 3: (1, 1)})
    assert (19, 6) == next_agent.totals
    third = GrowthTotals()
    third.resume(next_agent.keep())
    third.update({})
    assert (19, 6) == third.totals


def test_number_given_to_another_process_counts_from_its_start() -> None:
    ledger = ProgramTotals(10)
    ledger.update([sample(1, start=1, command="a", ticks=50, faults=10)])
    ledger.update([sample(1, start=2, command="a", ticks=3, faults=4)])

    assert {"a": 53} == ledger.cpu_ticks_by_program()
    assert 14 == ledger.minor_faults


def test_program_that_starts_another_keeps_what_it_used() -> None:
    ledger = ProgramTotals(10)
    ledger.update([sample(1, command="bash", ticks=5)])
    ledger.update([sample(1, command="python", ticks=25)])

    assert {"bash": 5, "python": 20} == ledger.cpu_ticks_by_program()


def test_programs_beyond_the_limit_are_one() -> None:
    ledger = ProgramTotals(2)
    ledger.update([sample(pid, command=f"p{pid}", ticks=pid) for pid in range(1, 6)])

    assert {"p5": 5, "p4": 4, "other": 1 + 2 + 3} == ledger.cpu_ticks_by_program()


def test_program_of_the_name_for_the_rest_is_part_of_it() -> None:
    ledger = ProgramTotals(2)
    ledger.update([sample(1, command="other", ticks=100), sample(2, command="a", ticks=1)])

    assert {"a": 1, "other": 100} == ledger.cpu_ticks_by_program()


def test_program_that_is_no_longer_shown_does_not_make_the_rest_jump() -> None:
    ledger = ProgramTotals(1)
    ledger.update([sample(1, command="a", ticks=100), sample(2, command="b", ticks=5)])
    assert {"a": 100, "other": 5} == ledger.cpu_ticks_by_program()
    # b works for 200 ticks, a for one more: 201 were spent, and no series but that of b may grow by more than its own.
    ledger.update([sample(1, command="a", ticks=101), sample(2, command="b", ticks=205)])
    assert {"b": 205, "other": 6} == ledger.cpu_ticks_by_program()
    ledger.update([sample(1, command="a", ticks=111), sample(2, command="b", ticks=206)])
    assert {"b": 206, "other": 16} == ledger.cpu_ticks_by_program()


def test_nothing_falls_when_programs_change_places() -> None:
    chance = random.Random(3)
    ledger, ticks = ProgramTotals(3), Counter[int]()
    highest: dict[str, int] = {}
    for _ in range(300):
        ticks[chance.randrange(1, 9)] += chance.randrange(20)
        ledger.update([sample(pid, command=f"p{pid}", ticks=used) for pid, used in ticks.items()])
        shown = ledger.cpu_ticks_by_program()
        assert len(shown) <= 4
        for name, value in shown.items():
            assert highest.get(name, 0) <= value
            highest[name] = value
    assert ticks.total() == ledger.cpu_ticks
    assert max(ticks.values()) == max(value for name, value in shown.items() if name != "other")


def test_two_of_a_kind_do_not_take_turns() -> None:
    ledger = ProgramTotals(1)
    seen = []
    for used in range(100, 110):
        later = 2 * (used % 2)
        ledger.update([sample(1, command="a", ticks=used), sample(2, command="b", ticks=used - 1 + later)])
        seen.append(set(ledger.cpu_ticks_by_program()) - {"other"})

    assert [{"a"}] * 10 == seen


def test_job_that_renames_itself_without_end_costs_no_memory() -> None:
    ledger = ProgramTotals(2)
    ledger.update([sample(1, command="real", ticks=1000)])
    for number in range(2000):
        ledger.update([sample(1, command="real", ticks=1000), sample(2, command=f"x{number}", ticks=number)])

    shown = ledger.cpu_ticks_by_program()
    assert (3, 1000) == (len(shown), shown["real"])
    assert 1000 + 1999 == ledger.cpu_ticks == sum(shown.values())
    assert len(ledger._ticks) <= 256


def test_counters_of_vanished_threads_stay() -> None:
    ledger = GrowthTotals()
    ledger.update({1: (5, 1), 2: (7, 1)})
    ledger.update({2: (8, 1), 3: (1, 1)})

    assert (14, 3) == ledger.totals


def test_thread_that_one_scan_lacks_counts_once() -> None:
    ledger = GrowthTotals()
    ledger.update({1: (100, 7), 2: (1, 1)})
    ledger.update({2: (1, 1)})
    ledger.update({1: (104, 8), 2: (1, 1)})

    assert (105, 9) == ledger.totals


def test_rest_of_threads_is_one() -> None:
    counts = Counter({"a": 5, "b": 4, "c": 3, "d": 2})

    assert {"a": 5, "b": 4, "other": 5} == bounded(counts, 2, NewNames(lambda: 0.0))
    assert dict(counts) == bounded(counts, 4, NewNames(lambda: 0.0))
    assert {"other": 8, "a": 4} == bounded(Counter({"other": 5, "a": 4, "b": 3}), 2, NewNames(lambda: 0.0))


def test_threads_are_counted_by_state_program_and_core() -> None:
    tally = ThreadTally()
    tally.add(sample(1, command="a", state="R"))
    tally.add(sample(2, command="b")._replace(threads=3), [ThreadSample(2, 0, "R", 4), ThreadSample(3, 0, "D", 5)])
    tally.add(sample(4, command="b", state="?"))

    assert {"running": 2, "disk_sleep": 1, "unknown": 2} == tally.in_state
    assert {"a": 1, "b": 4} == tally.of_program
    assert {0: 1, 4: 1} == tally.on_core


def test_threads_that_were_not_read_are_unknown() -> None:
    tally = ThreadTally()
    tally.add(sample(1)._replace(threads=8))

    assert {"unknown": 8} == tally.in_state


def files(number: int, targets: list[str] | None) -> ProcessFiles:
    found = ProcessFiles((b"scratch", b"nobackup"))
    for target in targets or ():
        found.take(target.encode())
    found.number, found.has_targets = number, targets is not None
    return found


def test_same_file_of_two_processes_is_one() -> None:
    tally = FileTally(("scratch",), 100)
    tally.add(files(3, ["/data/a", "pipe:[1]", "/dev/null"]), 1000)
    tally.add(files(2, ["/data/a", "/data/b (deleted)"]), 8)

    assert 5 == tally.open_files
    assert 2 == tally.distinct_files
    assert 0.25 == tally.worst_ratio
    assert tally.uses_scratch is False


def test_scratch_is_recognised_by_words_of_paths() -> None:
    pipe, file = FileTally(("scratch", "nobackup"), 100), FileTally(("scratch", "nobackup"), 100)
    pipe.add(files(1, ["pipe:[scratch]"]), None)
    file.add(files(1, ["/lustre/nobackup/x"]), None)

    assert (False, True) == (pipe.uses_scratch, file.uses_scratch)
    assert file.worst_ratio is None


def test_closed_targets_leave_the_count() -> None:
    tally = FileTally(("scratch",), 100)
    tally.add(files(3, ["/data/a"]), 1000)
    tally.add(files(3, None), 1000)

    assert 6 == tally.open_files
    assert tally.distinct_files is None
    assert tally.uses_scratch is None


def test_room_shrinks_with_each_target() -> None:
    tally = FileTally((), 2)
    tally.add(files(1, ["/a"]), None)
    assert 1 == tally.room
    tally.add(files(9, ["/b", "/c"]), None)

    assert 0 == tally.room


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/home/alice/a", True),
        ("/home/alice/a (deleted)", True),
        ("/dev/shm/psm2", True),
        ("/dev/nvidia0", False),
        ("/proc/1/stat", False),
        ("/sys/fs/cgroup", False),
        ("/memfd:x (deleted)", False),
        ("socket:[1]", False),
        ("anon_inode:[eventfd]", False),
        ("", False),
    ],
)
def test_files_are_recognised_by_their_path(target: str, expected: bool) -> None:
    assert expected is is_file(target.encode())
