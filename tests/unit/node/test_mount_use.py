# SPDX-License-Identifier: Apache-2.0
"""Check what belongs to a job of what the kernel counts for all processes of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.filesystems import (
    MAX_MOUNTS,
    add_use,
    distinct_mounts,
    find_only_job,
    growth_by_filesystem,
    use_by_filesystem,
)
from slurmscope.node.job_use import JobKey, Roster
from slurmscope.node.mounts import ClientUse, Mount, MountedFilesystem, MountReading

HOME = MountedFilesystem("nfs1:/home", "nfs4")
WORK = MountedFilesystem("nfs1:/work", "nfs4")
ONE, TWO = JobKey(1), JobKey(2)
EMPTY = Roster()
ALONE = Roster(begun=1, running=1, last=ONE, alone=ONE)


def mount(read: int | None, age: int | None = 1000, *, write: int = 0, filesystem: MountedFilesystem = HOME) -> Mount:
    return Mount(filesystem=filesystem, age_seconds=age, use=ClientUse(read, write, None))


def growth(before: list[Mount], now: list[Mount], seconds: float = 10.0) -> dict[MountedFilesystem, ClientUse]:
    return growth_by_filesystem(MountReading(500.0, tuple(before)), MountReading(500.0 + seconds, tuple(now)))


@pytest.mark.parametrize(
    ("before", "now", "job"),
    [
        (EMPTY, EMPTY, None),
        (ALONE, ALONE, ONE),
        (EMPTY, ALONE, ONE),
        (ALONE, Roster(begun=1, last=ONE), ONE),
        (EMPTY, Roster(begun=1, last=ONE), ONE),
        # The next step of the job has created its cgroup again.
        (ALONE, Roster(begun=2, running=1, last=ONE, alone=ONE), ONE),
        # Another job began, or even began and ended.
        (ALONE, Roster(begun=2, running=2, last=TWO), None),
        (ALONE, Roster(begun=2, running=1, last=TWO, alone=ONE), None),
        (ALONE, Roster(begun=2, running=1, last=TWO, alone=TWO), None),
        (EMPTY, Roster(begun=2, running=1, last=TWO, alone=TWO), None),
        (Roster(begun=2, running=2, last=TWO), Roster(begun=2, running=1, last=TWO, alone=ONE), None),
        (Roster(begun=2, running=2, last=TWO), Roster(begun=3, running=3, last=JobKey(3)), None),
    ],
)
def test_job_is_alone_if_no_other_ran_at_any_time(before: Roster, now: Roster, job: JobKey | None) -> None:
    assert job == find_only_job(before, now)


def test_one_file_system_in_several_places_counts_once() -> None:
    one, again = mount(100, 1000), mount(101, 1001)

    assert (mount(101, 1000),) == distinct_mounts([one, again])
    assert (mount(101, 1001),) == distinct_mounts([again, one])


def test_two_mounts_of_one_file_system_are_both_counted() -> None:
    mounts = distinct_mounts([mount(100, 1000), mount(30, 400), mount(7, filesystem=WORK), mount(2, None)])

    assert {HOME: 132, WORK: 7} == {name: use.read_bytes for name, use in use_by_filesystem(mounts).items()}


def test_merged_mounts_never_fall() -> None:
    """Two mounts within a second look like one: then each number is that of the higher one."""
    one, other = mount(100, write=1), mount(50, write=9)

    assert (mount(100, write=9),) == distinct_mounts([one, other]) == distinct_mounts([other, one])


def test_unknown_and_known_numbers_of_one_mount_give_the_known() -> None:
    assert (mount(5),) == distinct_mounts([mount(None), mount(5)]) == distinct_mounts([mount(5), mount(None)])


def test_growth_is_the_difference_of_two_readings() -> None:
    assert {HOME: ClientUse(25, 3, None)} == growth([mount(100, 1000)], [mount(125, 1010, write=3)])


@pytest.mark.parametrize("age", [8, 0])
def test_new_mount_counts_from_its_start(age: int) -> None:
    assert {HOME: ClientUse(25, 0, None)} == growth([], [mount(25, age)])
    assert {HOME: ClientUse(25, 0, None)} == growth([mount(1000, 5000)], [mount(25, age)])


@pytest.mark.parametrize("age", [11, None])
def test_older_mount_that_was_not_seen_before_counts_later(age: int | None) -> None:
    assert {} == growth([], [mount(10**12, age)])


def test_mount_without_age_is_compared_by_name() -> None:
    assert {HOME: ClientUse(5, 0, None)} == growth([mount(20, None)], [mount(25, None)])


def test_counter_that_fell_or_vanished_counts_nothing() -> None:
    assert {HOME: ClientUse(0, 0, None)} == growth([mount(2**64 - 1)], [mount(3, 1010)])
    assert {HOME: ClientUse(None, 0, None)} == growth([mount(5)], [mount(None, 1010)])


def test_job_keeps_the_total_of_what_is_not_counted_now() -> None:
    first = add_use({}, {HOME: ClientUse(1, None, None)})
    second = add_use(first, {HOME: ClientUse(None, 2, None), WORK: ClientUse(5, 6, 7)})

    assert {HOME: ClientUse(1, 2, None), WORK: ClientUse(5, 6, 7)} == second


def test_job_has_a_limited_number_of_file_systems() -> None:
    many = {MountedFilesystem(str(number), "nfs"): ClientUse(1, 1, 1) for number in range(MAX_MOUNTS + 5)}

    assert MAX_MOUNTS == len(add_use({}, many))


MOUNTS = st.builds(
    mount,
    st.none() | st.integers(0, 2**64 - 1),
    st.none() | st.integers(0, 3000),
    filesystem=st.sampled_from([HOME, WORK]),
)


@given(st.lists(st.lists(MOUNTS, max_size=4).map(distinct_mounts), min_size=2, max_size=6))
def test_total_of_a_job_never_falls(readings: list[tuple[Mount, ...]]) -> None:
    total: dict[MountedFilesystem, ClientUse] = {}
    for number in range(1, len(readings)):
        before = total
        total = add_use(total, growth(list(readings[number - 1]), list(readings[number])))
        for filesystem, use in before.items():
            assert all(was is None or was <= (now or 0) for was, now in zip(use, total[filesystem], strict=True))
