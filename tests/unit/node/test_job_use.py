# SPDX-License-Identifier: Apache-2.0
"""Two readings of a job make one in which nothing is lost and no total falls."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.job_use import (
    WHOLE_JOB,
    BlockUse,
    CgroupUse,
    CpuUse,
    GroupKey,
    JobKey,
    JobUse,
    MemoryUse,
    ProcessUse,
    completed,
    continued,
    has_restarted,
    is_missing_something,
    is_same_run,
)

KEY = JobKey(7)
FULL = CgroupUse(
    cpu=CpuUse(
        total_seconds=10.0,
        user_seconds=8.0,
        system_seconds=2.0,
        core_seconds={0: 4.0, 1: 6.0},
        cores=(0, 1),
        periods=100,
        throttled_periods=10,
        throttled_seconds=1.0,
    ),
    memory=MemoryUse(current_bytes=500, anon_bytes=300, peak_bytes=900, limit_bytes=1000, events={"oom_kill": 1}),
    pressure_seconds={("cpu", "some"): 3.0},
    block={"8:0": BlockUse(read_bytes=10, write_bytes=20, reads=1, writes=2)},
    pids=4,
    pids_limit=100,
)


REST: dict[str, Any] = {"uid": 1001, "environment": {"A": "b"}, "processes": ProcessUse(processes=1)}


def use(whole: CgroupUse | None = FULL, **further: object) -> JobUse:
    made = JobUse(key=KEY, groups={} if whole is None else {WHOLE_JOB: whole})
    return replace(made, **further)  # type: ignore[arg-type]


def cpu(seconds: float | None) -> JobUse:
    return use(CgroupUse(cpu=CpuUse(total_seconds=seconds)))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(10.0, 10.0, False), (10.0, 11.0, False), (10.0, 9.9, True), (None, 1.0, False), (10.0, None, False)],
)
def test_fallen_cpu_time_means_another_cgroup(before: float | None, now: float | None, expected: bool) -> None:
    assert expected is has_restarted(cpu(before), cpu(now))


def test_job_without_numbers_has_not_restarted() -> None:
    assert not has_restarted(use(), use(None))


def test_whole_reading_misses_nothing() -> None:
    assert not is_missing_something(use(), use())
    assert not is_missing_something(use(None), use())


@pytest.mark.parametrize(
    "now",
    [
        use(None),
        use(replace(FULL, cpu=CpuUse())),
        use(replace(FULL, memory=MemoryUse())),
        use(uid=None),
        use(uid=1001, environment={}),
        use(uid=1001, environment={"A": "b"}, processes=None),
    ],
)
def test_whatever_is_missing_is_noticed(now: JobUse) -> None:
    before = use(uid=1001, environment={"A": "b"}, processes=ProcessUse(processes=1))
    assert is_missing_something(before, now)


@pytest.mark.parametrize(
    "now",
    [
        use(replace(FULL, cpu=CpuUse()), **REST),
        use(replace(FULL, memory=MemoryUse()), **REST),
        use(**(REST | {"uid": None})),
        use(**(REST | {"environment": {}})),
        use(**(REST | {"processes": None})),
    ],
)
def test_one_missing_value_is_noticed_alone(now: JobUse) -> None:
    assert is_missing_something(use(**REST), now)
    assert not is_missing_something(now, use(**REST))
    assert not is_missing_something(now, now)


def test_missing_memory_is_noticed_where_its_current_use_is_not_read() -> None:
    whole = replace(FULL, memory=replace(FULL.memory, current_bytes=None))
    gone = use(replace(FULL, memory=MemoryUse()))
    assert is_missing_something(use(whole), gone)
    assert not is_missing_something(use(whole), use(whole))
    assert whole.memory == completed(use(whole), gone).groups[WHOLE_JOB].memory


def test_missing_numbers_are_filled_in() -> None:
    before = use(uid=1001, environment={"A": "b"}, processes=ProcessUse(processes=2))
    assert before == completed(before, use(None))
    assert before == completed(before, use(CgroupUse()))


def test_later_gauges_replace_earlier_ones() -> None:
    later = MemoryUse(current_bytes=100, anon_bytes=50, peak_bytes=900, limit_bytes=2000, events={"oom_kill": 1})
    done = completed(use(), use(replace(FULL, memory=later, pids=1)))
    assert (later, 1) == (done.groups[WHOLE_JOB].memory, done.groups[WHOLE_JOB].pids)


def test_no_total_falls_when_completed() -> None:
    lower = CgroupUse(
        cpu=CpuUse(total_seconds=1.0, user_seconds=0.5, core_seconds={0: 9.0}, periods=1),
        memory=MemoryUse(peak_bytes=1, events={"oom_kill": 0, "max": 5}),
        pressure_seconds={("cpu", "some"): 1.0},
        block={"8:0": BlockUse(read_bytes=5, write_bytes=50)},
    )
    whole = completed(use(), use(lower)).groups[WHOLE_JOB]
    assert (10.0, 8.0, {0: 9.0, 1: 6.0}, 100) == (
        whole.cpu.total_seconds, whole.cpu.user_seconds, whole.cpu.core_seconds, whole.cpu.periods,
    )  # fmt: skip
    assert (900, {"oom_kill": 1, "max": 5}) == (whole.memory.peak_bytes, whole.memory.events)
    assert {("cpu", "some"): 3.0} == whole.pressure_seconds
    assert {"8:0": BlockUse(read_bytes=10, write_bytes=50, reads=1, writes=2)} == whole.block


def test_steps_that_are_gone_stay_when_completed() -> None:
    step = GroupKey(step="0")
    before = replace(use(), groups={WHOLE_JOB: FULL, step: FULL})
    assert {WHOLE_JOB, step} == completed(before, use()).groups.keys()


def test_new_cgroup_counts_on_from_the_old_one() -> None:
    whole = continued(use(uid=1001), use()).groups[WHOLE_JOB]
    assert (20.0, 16.0, 4.0) == (whole.cpu.total_seconds, whole.cpu.user_seconds, whole.cpu.system_seconds)
    assert ({0: 8.0, 1: 12.0}, 200, 20, 2.0) == (
        whole.cpu.core_seconds, whole.cpu.periods, whole.cpu.throttled_periods, whole.cpu.throttled_seconds,
    )  # fmt: skip
    assert {("cpu", "some"): 6.0} == whole.pressure_seconds
    assert {"8:0": BlockUse(read_bytes=20, write_bytes=40, reads=2, writes=4)} == whole.block
    assert {"oom_kill": 2} == whole.memory.events


def test_gauges_are_not_added_up() -> None:
    whole = continued(use(), use()).groups[WHOLE_JOB]
    assert (500, 900, 1000, 4) == (
        whole.memory.current_bytes, whole.memory.peak_bytes, whole.memory.limit_bytes, whole.pids,
    )  # fmt: skip


def test_user_is_known_from_the_old_cgroup() -> None:
    assert 1001 == continued(use(uid=1001), use()).uid


def test_without_numbers_on_both_sides_there_is_nothing_to_add() -> None:
    assert use() == continued(use(None), use())
    assert use(None) == continued(use(), use(None))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"0"}, {"1"}, True),
        ({"0", "9"}, {"10", "11"}, True),
        ({"0"}, {"0"}, False),
        ({"3"}, {"0"}, False),
        ({"0", "2"}, {"1"}, False),
        ({"batch", "0"}, {"1"}, False),
        ({"0"}, {"batch"}, False),
        ({"extern"}, {"extern"}, False),
        ({"0+1"}, {"1+1"}, False),
        (set(), {"1"}, False),
        ({"0"}, set(), False),
    ],
)
def test_job_goes_on_only_with_a_step_of_a_higher_number(before: set[str], now: set[str], expected: bool) -> None:
    assert expected is is_same_run(before, now)


SECONDS = st.none() | st.floats(0, 1e9)
COUNTS = st.dictionaries(st.sampled_from(("a", "b")), st.integers(0, 2**63))
CGROUPS = st.builds(
    CgroupUse,
    cpu=st.builds(
        CpuUse,
        total_seconds=SECONDS,
        user_seconds=SECONDS,
        core_seconds=st.dictionaries(st.integers(0, 3), st.floats(0, 1e9)),
    ),
    memory=st.builds(MemoryUse, current_bytes=st.none() | st.integers(0, 2**63), events=COUNTS),
)


@given(CGROUPS, CGROUPS)
def test_completing_never_loses_and_never_lets_fall(before: CgroupUse, now: CgroupUse) -> None:
    whole = completed(use(before), use(now)).groups[WHOLE_JOB]
    for name in ("total_seconds", "user_seconds"):
        known = [value for one in (before, now) if (value := getattr(one.cpu, name)) is not None]
        assert max(known, default=None) == getattr(whole.cpu, name)
    for core in before.cpu.core_seconds.keys() | now.cpu.core_seconds.keys():
        assert whole.cpu.core_seconds[core] >= max(one.cpu.core_seconds.get(core, 0.0) for one in (before, now))


def test_every_field_of_a_cgroup_is_joined() -> None:
    """A field that is added to the model and forgotten here would silently vanish."""
    for part, made in ((CpuUse, FULL.cpu), (CgroupUse, FULL)):
        assert all(getattr(made, field.name) not in (None, {}) for field in fields(part) if field.name != "unreadable")
    assert FULL == completed(use(), use(CgroupUse())).groups[WHOLE_JOB]
    assert FULL == completed(use(CgroupUse()), use()).groups[WHOLE_JOB]
