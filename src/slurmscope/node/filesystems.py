# SPDX-License-Identifier: Apache-2.0
"""Export the use of NFS file systems by this node, and by the jobs that were alone on it.

::

    slurm_node_filesystem_read_bytes_total{slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 52428800
    jobs_filesystem_read_bytes_total{slurm_job="4711",slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 1048576
    jobs_filesystem_write_bytes_total{slurm_job="4711",slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 4096

The kernel counts per mount, not per process, so what happens while several jobs run belongs to none of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import add

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, counter, gauge
from slurmscope.node.job_metrics import JOB, label_jobs
from slurmscope.node.job_use import JobKey, NodeJobs, Roster
from slurmscope.node.mounts import ClientUse, Mount, MountedFilesystem, MountReading, NodeFilesystems

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
                alike[position] = replace(known, use=_join_known(known.use, mount.use, max))
                break
        else:
            alike.append(mount)
    return tuple(mount for alike in distinct.values() for mount in alike)


def use_by_filesystem(mounts: Iterable[Mount]) -> dict[MountedFilesystem, ClientUse]:
    """Add up the counters of each file system."""
    total: dict[MountedFilesystem, ClientUse] = {}
    for mount in mounts:
        total[mount.filesystem] = _join(total.get(mount.filesystem, _NOTHING), mount.use, add)
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
        grown = _join(was.use if was else _NOTHING, mount.use, lambda used, now: max(0, now - used))
        total[mount.filesystem] = _join(total.get(mount.filesystem, _NOTHING), grown, add)
    return total


def add_use(
    total: Mapping[MountedFilesystem, ClientUse], further: Mapping[MountedFilesystem, ClientUse]
) -> dict[MountedFilesystem, ClientUse]:
    """Add to the totals of a job; a quantity that was counted once keeps its total while it is not."""
    added = dict(total)
    for filesystem, use in further.items():
        if filesystem in added:
            added[filesystem] = _join_known(added[filesystem], use, add)
        elif len(added) < MAX_MOUNTS:
            added[filesystem] = use
    return added


def _is_same_time(one: Mount, one_read_at: float, other: Mount, other_read_at: float) -> bool:
    if one.age_seconds is None or other.age_seconds is None:
        return one.age_seconds is other.age_seconds
    mounted_at = (one_read_at - one.age_seconds, other_read_at - other.age_seconds)
    return abs(mounted_at[0] - mounted_at[1]) <= _AGE_ERROR_SECONDS


def _join(one: ClientUse, other: ClientUse, join: Callable[[int, int], int]) -> ClientUse:
    """Join what both have counted."""
    return ClientUse(*(None if a is None or b is None else join(a, b) for a, b in zip(one, other, strict=True)))


def _join_known(one: ClientUse, other: ClientUse, join: Callable[[int, int], int]) -> ClientUse:
    """Join two counts; what only one of them has counted stays."""
    return ClientUse(*(a if b is None else b if a is None else join(a, b) for a, b in zip(one, other, strict=True)))


KEPT_JOBS = 1000
"""Jobs whose totals are kept. No other job is alone while one runs, so this can only drop ended ones."""


class FilesystemReader:
    """Read mounts repeatedly. Not thread-safe."""

    def __init__(
        self,
        read_mounts: Callable[[Collection[int]], Collection[Mount]],
        roster: Callable[[], Roster],
        pids_of: Callable[[JobKey], Collection[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the functions that list the mounts which processes see, the running jobs, and the processes of one."""
        self._read_mounts = read_mounts
        self._roster = roster
        self._pids_of = pids_of
        self._clock = clock
        self._last: tuple[Roster, MountReading] | None = None
        self._jobs: OrderedDict[JobKey, Mapping[MountedFilesystem, ClientUse]] = OrderedDict()

    def read(self) -> NodeFilesystems:
        """Return the mounts and the totals of jobs."""
        # A job that ends during the reading counts before it, and one that begins counts after it: both ran.
        before = self._roster()
        mounts = distinct_mounts(self._read_mounts(self._pids_of(before.alone) if before.alone else ()))
        reading = MountReading(self._clock(), mounts[:MAX_MOUNTS])
        self._attribute(reading, self._roster())
        self._last = (before, reading)
        return NodeFilesystems(mounts=reading.mounts, jobs=dict(self._jobs), left_out=len(mounts) - len(reading.mounts))

    def _attribute(self, reading: MountReading, roster: Roster) -> None:
        if self._last is None:
            return
        key = find_only_job(self._last[0], roster)
        grown = growth_by_filesystem(self._last[1], reading)
        if key is None or not grown:
            return
        self._jobs[key] = add_use(self._jobs.pop(key, {}), grown)
        while len(self._jobs) > KEPT_JOBS:
            self._jobs.popitem(last=False)


_FILESYSTEM = ("filesystem", "fstype")
_NODE = ("slurm_node", *_FILESYSTEM)
_OF_JOB = (*JOB, *_FILESYSTEM)

# In the order of the fields of ClientUse.
NODE = (
    counter("slurm_node_filesystem_read_bytes_total", "Bytes that this node read from an NFS server.", *_NODE),
    counter("slurm_node_filesystem_write_bytes_total", "Bytes that this node wrote to an NFS server.", *_NODE),
    counter(
        "slurm_node_filesystem_metadata_operations_total",
        "Requests of this node to an NFS server that transfer no data (open, getattr, create, remove, ...).",
        *_NODE,
    ),
)
OF_JOB = (
    counter(
        "jobs_filesystem_read_bytes_total",
        "Bytes that the node read from an NFS server while no other job ran on it.",
        *_OF_JOB,
    ),
    counter(
        "jobs_filesystem_write_bytes_total",
        "Bytes that the node wrote to an NFS server while no other job ran on it.",
        *_OF_JOB,
    ),
    counter(
        "jobs_filesystem_metadata_operations_total",
        "Requests to an NFS server that transfer no data (open, getattr, create, remove, ...), made while no other job "
        "ran on the node.",
        *_OF_JOB,
    ),
)
LEFT_OUT = gauge(
    "slurm_node_filesystems_left_out",
    "NFS mounts above the limit of 200 per node, which are not counted.",
    "slurm_node",
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    filesystems: NodeFilesystems,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    """Yield the counters of the node, then those of jobs that run or ended a short time ago."""
    host = node_jobs.host_name
    uses: dict[Labels, ClientUse] = {(host, *key): use for key, use in use_by_filesystem(filesystems.mounts).items()}
    for position, metric in enumerate(NODE):
        yield Family(metric, _known(uses, position))
    if filesystems.mounts:
        yield Family(LEFT_OUT, {(host,): filesystems.left_out})
    of_jobs = _uses_of_jobs(filesystems, node_jobs)
    for position, metric in enumerate(OF_JOB):
        yield Family(metric, _known(of_jobs, position))


def _known(uses: Mapping[Labels, ClientUse], position: int) -> dict[Labels, float]:
    return {labels: n for labels, use in uses.items() if (n := use[position]) is not None}


def _uses_of_jobs(filesystems: NodeFilesystems, node_jobs: NodeJobs) -> dict[Labels, ClientUse]:
    return {
        (*labels, *filesystem): use
        for labels, job in label_jobs(node_jobs).items()
        for filesystem, use in filesystems.jobs.get(job.key, {}).items()
    }


COLLECTOR = Collector(
    name="filesystems",
    role=Role.NODE,
    help="Use of NFS file systems by this node, and by jobs that were alone on it.",
    needs=("filesystems", "node_jobs"),
    metrics=(*NODE, LEFT_OUT, *OF_JOB),
    collect=collect,
)
