# SPDX-License-Identifier: Apache-2.0
"""Combine two readings of one job so that no total is lost and none decreases.

Readings of a job have gaps: its cgroups are removed one after the other when it ends, and on a node without a running
step a job may have no cgroup at all until its next step creates a new one, which counts from 0 again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import fields, replace
from typing import Protocol, TypeVar

from slurmscope.model.job_use import BlockUse, CgroupUse, CpuUse, GroupKey, JobUse, MemoryUse

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)

WHOLE_JOB = GroupKey()
_NOTHING = CgroupUse()
_GAUGES = tuple(field.name for field in fields(MemoryUse) if field.name not in {"peak_bytes", "events"})


def has_restarted(before: JobUse, now: JobUse) -> bool:
    """Return whether the job's cgroup is a new one: the CPU time of a cgroup never decreases."""
    was, used = (use.groups.get(WHOLE_JOB, _NOTHING).cpu.total_seconds for use in (before, now))
    return was is not None and used is not None and used < was


def is_missing_something(before: JobUse, now: JobUse) -> bool:
    """Return whether a later reading lacks values of an earlier one: some cgroups may be removed already."""
    was, used = (use.groups.get(WHOLE_JOB, _NOTHING) for use in (before, now))
    return (
        (used.cpu.total_seconds is None and was.cpu.total_seconds is not None)
        # The current use is not read while nothing is made from it.
        or (used.memory.anon_bytes is None and was.memory.anon_bytes is not None)
        or (used.memory.current_bytes is None and was.memory.current_bytes is not None)
        or (now.processes is None and before.processes is not None)
        or (now.uid is None and before.uid is not None)
        or bool(before.environment and not now.environment)
    )


def completed(before: JobUse, now: JobUse) -> JobUse:
    """Fill in values that a later reading of the same cgroup lacks, and let no total decrease."""
    groups = dict(before.groups)
    for key, group in now.groups.items():
        groups[key] = _join_groups(groups[key], group, _higher) if key in groups else group
    return replace(
        now,
        uid=_later(before.uid, now.uid),
        groups=groups,
        processes=_later(before.processes, now.processes),
        environment=now.environment or before.environment,
    )


def continued(before: JobUse, now: JobUse) -> JobUse:
    """Add the totals that the job had when its cgroup was removed."""
    if WHOLE_JOB not in before.groups or WHOLE_JOB not in now.groups:
        return now
    whole = _join_groups(before.groups[WHOLE_JOB], now.groups[WHOLE_JOB], _sum)
    return replace(now, uid=_later(before.uid, now.uid), groups={**now.groups, WHOLE_JOB: whole})


def is_same_run(steps_before: Collection[str], steps_now: Collection[str]) -> bool:
    """Return whether a job whose cgroup was created again continues, or was requeued and starts again.

    Slurm numbers the steps of one run upwards; the batch and extern steps keep the cgroup for the whole run.
    """
    if not steps_before or not all(step.isdecimal() for step in (*steps_before, *steps_now)):
        return False
    return max(map(int, steps_before)) < min(map(int, steps_now), default=0)


class _Join(Protocol):
    """Combine two values of one counter."""

    def __call__(self, was: _Number, used: _Number, /) -> _Number:
        """Return the combined value."""
        ...


def _higher(was: _Number, used: _Number) -> _Number:
    return max(was, used)


def _sum(was: _Number, used: _Number) -> _Number:
    return was + used


def _join_groups(before: CgroupUse, now: CgroupUse, join: _Join) -> CgroupUse:
    return CgroupUse(
        cpu=_join_cpu(before.cpu, now.cpu, join),
        memory=_join_memory(before.memory, now.memory, join),
        pressure_seconds=_join_each(before.pressure_seconds, now.pressure_seconds, join),
        block={
            device: _join_block(before.block.get(device, BlockUse()), now.block.get(device, BlockUse()), join)
            for device in {**before.block, **now.block}
        },
        pids=_later(before.pids, now.pids),
        pids_limit=_later(before.pids_limit, now.pids_limit),
        unreadable=now.unreadable,
    )


def _join_cpu(before: CpuUse, now: CpuUse, join: _Join) -> CpuUse:
    return CpuUse(
        total_seconds=_join(before.total_seconds, now.total_seconds, join),
        user_seconds=_join(before.user_seconds, now.user_seconds, join),
        system_seconds=_join(before.system_seconds, now.system_seconds, join),
        core_seconds=_join_each(before.core_seconds, now.core_seconds, join),
        cores=_later(before.cores, now.cores),
        periods=_join(before.periods, now.periods, join),
        throttled_periods=_join(before.throttled_periods, now.throttled_periods, join),
        throttled_seconds=_join(before.throttled_seconds, now.throttled_seconds, join),
    )


def _join_memory(before: MemoryUse, now: MemoryUse, join: _Join) -> MemoryUse:
    gauges = {name: _later(getattr(before, name), getattr(now, name)) for name in _GAUGES}
    return MemoryUse(
        **gauges,
        peak_bytes=_join(before.peak_bytes, now.peak_bytes, _higher),
        events=_join_each(before.events, now.events, join),
    )


def _join_block(before: BlockUse, now: BlockUse, join: _Join) -> BlockUse:
    return BlockUse(
        read_bytes=join(before.read_bytes, now.read_bytes),
        write_bytes=join(before.write_bytes, now.write_bytes),
        reads=join(before.reads, now.reads),
        writes=join(before.writes, now.writes),
    )


def _join_each(before: Mapping[_Key, _Number], now: Mapping[_Key, _Number], join: _Join) -> Mapping[_Key, _Number]:
    joined = {**before, **now}
    for key in before.keys() & now.keys():
        joined[key] = join(before[key], now[key])
    return joined


def _join(was: _Number | None, used: _Number | None, join: _Join) -> _Number | None:
    return join(was, used) if was is not None and used is not None else _later(was, used)


def _later(was: _Value | None, used: _Value | None) -> _Value | None:
    return was if used is None else used
