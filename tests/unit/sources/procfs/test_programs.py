# SPDX-License-Identifier: Apache-2.0
"""CPU time by program is bounded in names and never falls."""

from __future__ import annotations

import random
from collections import Counter

from slurmscope.sources.procfs.programs import GrowthTotals, ProgramTotals, bounded
from tests.unit.sources.procfs.proc_tree import sample


def test_time_of_ended_processes_stays() -> None:
    ledger = ProgramTotals(10)
    ledger.update([sample(1, command="a", ticks=5), sample(2, command="b", ticks=7)])
    ledger.update([sample(2, command="b", ticks=9)])
    ledger.update([])

    assert {"a": 5, "b": 9} == ledger.cpu_ticks_by_program()
    assert 14 == ledger.cpu_ticks


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


def test_rest_of_threads_is_one() -> None:
    counts = Counter({"a": 5, "b": 4, "c": 3, "d": 2})

    assert {"a": 5, "b": 4, "other": 5} == bounded(counts, 2)
    assert dict(counts) == bounded(counts, 4)
    assert {"other": 8, "a": 4} == bounded(Counter({"other": 5, "a": 4, "b": 3}), 2)
