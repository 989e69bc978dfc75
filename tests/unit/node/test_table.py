# SPDX-License-Identifier: Apache-2.0
"""All processes are summed up by group and by user, and totals do not fall."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node import process_groups as table_module
from slurmscope.node.process_groups import (
    ProcessGroup,
    ProcessTable,
    ProcessTableReader,
    UserUse,
    cpu_per_mille,
    memory_per_mille,
)
from slurmscope.node.procfs.reader import ProcessReader
from tests.unit.node.proc_tree import FIXTURES, ProcTree

ME = str(os.getuid())


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path, uptime_seconds=1000.0, memory_kilobytes=4_000_000)


@pytest.fixture
def reader(tree: ProcTree) -> Iterator[ProcessTableReader]:
    processes = ProcessReader(tree.root)
    yield ProcessTableReader(processes, str)
    processes.close()


def groups_of(table: ProcessTable) -> dict[int, ProcessGroup]:
    return {group.group_id: group for group in table.groups}


def user_of(table: ProcessTable) -> UserUse:
    [user] = table.users
    return user


@pytest.mark.parametrize(
    ("ticks", "elapsed", "expected"),
    [
        (0, 100, 0),
        (999, 1000, 999),
        (1, 1001, 0),
        (1999, 1000, 1990),  # from 100 % on ps shows whole percents: 199
        (1009, 1000, 1000),
        (50, 0, 0),
        (50, -3, 0),
    ],
)
def test_cpu_is_cut_off_as_ps_does(ticks: int, elapsed: int, expected: int) -> None:
    assert expected == cpu_per_mille(ticks, elapsed)


@pytest.mark.parametrize(("pages", "machine", "expected"), [(1, 1000, 1), (19, 10_000, 1), (9, 9, 999), (5, 0, 0)])
def test_memory_is_cut_off_as_ps_does(pages: int, machine: int, expected: int) -> None:
    assert expected == memory_per_mille(pages, machine)


def test_percentages_are_cut_off_before_they_are_summed(tree: ProcTree, reader: ProcessTableReader) -> None:
    # Up for 100,000 ticks with 1,000,000 pages: 0.19 % and 0.19 % of CPU, 0.29 % and 0.29 % of memory.
    tree.add(7, 7, ticks=190, pages=2900)
    tree.add(8, 7, ticks=190, pages=2900)

    group = groups_of(reader.read())[7]

    assert (0.2, 0.4) == (group.cpu_percent, group.memory_percent)
    assert (3.8, 5800 * 4096, 2) == (group.cpu_seconds, group.resident_bytes, group.processes)


def test_leader_names_the_group_wherever_it_stands(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(5, 7, command="early")
    tree.add(7, 7, command="leader")
    tree.add(9, 7, command="late")

    assert "leader" == groups_of(reader.read())[7].command


def test_first_process_names_a_group_without_leader(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(3, 0, command="kthreadd")
    tree.add(4, 0, command="kworker")

    group = groups_of(reader.read())[0]

    assert ("kthreadd", ME) == (group.command, group.user)


def test_ended_process_keeps_its_time_in_group_and_user(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(7, 7, ticks=100)
    tree.add(8, 7, ticks=500)
    reader.read()
    tree.remove(8)
    tree.add(7, 7, ticks=150)

    table = reader.read()

    assert 6.5 == groups_of(table)[7].cpu_seconds
    assert UserUse(user=ME, processes=1, cpu_seconds=6.5, resident_bytes=0) == user_of(table)


def test_user_without_processes_keeps_the_total(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(7, 7, ticks=100, pages=3)
    reader.read()
    tree.remove(7)

    table = reader.read()

    assert () == table.groups
    assert UserUse(user=ME, processes=0, cpu_seconds=1.0, resident_bytes=0) == user_of(table)


def test_number_given_to_another_group_starts_again(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(7, 7, ticks=100, start=10)
    reader.read()
    tree.add(7, 7, ticks=3, start=20)

    table = reader.read()

    assert 0.03 == groups_of(table)[7].cpu_seconds
    assert 1.03 == user_of(table).cpu_seconds


def test_processes_of_jobs_do_not_count_for_their_user(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(7, 7, ticks=100)
    tree.add(8, 8, ticks=500)

    table = reader.read(job_pids={8})

    assert 1.0 == user_of(table).cpu_seconds
    assert {7: False, 8: True} == {number: group.has_job_processes for number, group in groups_of(table).items()}


def test_process_that_a_job_started_meanwhile_does_not_count_for_its_user(
    tree: ProcTree, reader: ProcessTableReader
) -> None:
    tree.add(8, 8, ticks=500)
    tree.add(30, 30, ticks=100, parent=8, start=10)
    tree.add(29, 29, ticks=100, parent=30, start=20)

    assert () == reader.read(job_pids={8}).users

    # The parents end, and the job is over: what is left of it is no login either.
    tree.remove(8)
    tree.remove(30)
    tree.add(29, 29, ticks=400, parent=1, start=20)
    assert () == reader.read(job_pids=()).users


def test_job_that_began_meanwhile_does_not_count_for_its_user(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(8, 8, command="slurmstepd")
    tree.add(30, 30, ticks=100, parent=8)

    assert () == reader.read().users


def test_number_of_a_job_given_to_another_process_counts_for_its_user(
    tree: ProcTree, reader: ProcessTableReader
) -> None:
    tree.add(8, 8, ticks=500, start=10)
    reader.read(job_pids={8})
    tree.add(8, 8, ticks=100, start=20)

    assert 1.0 == user_of(reader.read()).cpu_seconds


def test_processes_that_seem_to_start_each_other_end_the_search(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(8, 8, ticks=100, parent=9)
    tree.add(9, 9, ticks=100, parent=8)

    assert 2.0 == user_of(reader.read()).cpu_seconds


def test_two_numbers_of_one_name_are_one_user(tree: ProcTree) -> None:
    tree.add(7, 7, ticks=100)
    processes = ProcessReader(tree.root)
    reader = ProcessTableReader(processes, lambda _: "alice")
    reader._users[77] = table_module._User()
    reader._users[77].ticks = 200

    assert 3.0 == user_of(reader.read()).cpu_seconds
    processes.close()


def test_users_who_left_are_dropped_in_the_end(tree: ProcTree, reader: ProcessTableReader) -> None:
    tree.add(7, 7, ticks=100)
    for uid in range(100_000, 100_000 + table_module.USER_LIMIT):
        reader._users[uid] = table_module._User()

    users = {use.user for use in reader.read().users}

    assert table_module.USER_LIMIT == len(users)
    assert ME in users
    assert "100000" not in users


def test_captured_processes_are_grouped_as_the_kernel_did() -> None:
    processes = ProcessReader(FIXTURES / "first")
    table = ProcessTableReader(processes, str).read()
    processes.close()

    groups = groups_of(table)

    assert {247, 255, 273, 274, 287, 289} == set(groups)
    assert ("slurm_script", 3) == (groups[255].command, groups[255].processes)
    # 2.94 s of CPU in the 10.08 s since its start; 73,620 of 2,014,140 kB.
    assert (29.1, 3.6) == (groups[287].cpu_percent, groups[287].memory_percent)
    assert not table.is_complete
