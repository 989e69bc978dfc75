# SPDX-License-Identifier: Apache-2.0
"""Attribute the use of a node's network file systems to the job that was alone on the node.

The kernel counts per mount, not per process, so what happens while several jobs run belongs to none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurmscope.model.job_use import JobKey, Roster
from slurmscope.model.mounts import ClientUse, Mount, MountedFilesystem, MountReading

MAX_MOUNTS = 200
"""Mounts that are read on one node, and file systems that are kept of one job."""

# The kernel rounds the age down, and lists are not read at once.
_AGE_ERROR_SECONDS = 2.0

_NOTHING = ClientUse(0, 0, 0)


def find_only_job(before: Roster, now: Roster) -> JobKey | None:
    """Return the only job that ran at any time between two moments; None if there was none or several."""
    begun = now.begun - before.begun
    if begun == 0:
        return before.alone
    if begun == 1 and (before.running == 0 or before.alone == now.last):
        return now.last
    return None


def distinct_mounts(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Merge the mounts that share their counters: one file system mounted in several places at the same time."""
    distinct: dict[MountedFilesystem, list[Mount]] = {}
    for mount in mounts:
        alike = distinct.setdefault(mount.filesystem, [])
        for position, known in enumerate(alike):
            if _is_same_time(known, 0.0, mount, 0.0):
                alike[position] = replace(known, use=ClientUse(*map(_higher, known.use, mount.use)))
                break
        else:
            alike.append(mount)
    return tuple(mount for alike in distinct.values() for mount in alike)


def use_by_filesystem(mounts: Iterable[Mount]) -> dict[MountedFilesystem, ClientUse]:
    """Add up the counters of each file system."""
    total: dict[MountedFilesystem, ClientUse] = {}
    for mount in mounts:
        total[mount.filesystem] = _add(total.get(mount.filesystem, _NOTHING), mount.use)
    return total


def growth_by_filesystem(before: MountReading, now: MountReading) -> dict[MountedFilesystem, ClientUse]:
    """Return what was used between two readings.

    A mount that is new counts from its start. One that was mounted earlier but not seen then, and a counter that fell,
    count from the next reading on.
    """
    known: dict[MountedFilesystem, list[Mount]] = {}
    for mount in before.mounts:
        known.setdefault(mount.filesystem, []).append(mount)
    elapsed = now.at_seconds - before.at_seconds
    total: dict[MountedFilesystem, ClientUse] = {}
    for mount in now.mounts:
        same = (
            was
            for was in known.get(mount.filesystem, ())
            if _is_same_time(was, before.at_seconds, mount, now.at_seconds)
        )
        was = next(same, None)
        if was is None and (mount.age_seconds is None or mount.age_seconds > elapsed):
            continue
        grown = _grown(was.use if was else _NOTHING, mount.use)
        total[mount.filesystem] = _add(total.get(mount.filesystem, _NOTHING), grown)
    return total


def add_use(
    total: Mapping[MountedFilesystem, ClientUse], further: Mapping[MountedFilesystem, ClientUse]
) -> dict[MountedFilesystem, ClientUse]:
    """Add to the totals of a job; a quantity that was counted once keeps its total while it is not."""
    added = dict(total)
    for filesystem, use in further.items():
        if filesystem in added:
            added[filesystem] = ClientUse(*map(_sum_of_known, added[filesystem], use))
        elif len(added) < MAX_MOUNTS:
            added[filesystem] = use
    return added


def _is_same_time(one: Mount, one_read_at: float, other: Mount, other_read_at: float) -> bool:
    if one.age_seconds is None or other.age_seconds is None:
        return one.age_seconds is other.age_seconds
    mounted_at = (one_read_at - one.age_seconds, other_read_at - other.age_seconds)
    return abs(mounted_at[0] - mounted_at[1]) <= _AGE_ERROR_SECONDS


def _higher(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _add(one: ClientUse, other: ClientUse) -> ClientUse:
    pairs = zip(one, other, strict=True)
    return ClientUse(*(None if a is None or b is None else a + b for a, b in pairs))


def _grown(was: ClientUse, now: ClientUse) -> ClientUse:
    pairs = zip(was, now, strict=True)
    return ClientUse(*(None if a is None or b is None else max(0, b - a) for a, b in pairs))


def _sum_of_known(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other
