# SPDX-License-Identifier: Apache-2.0
"""Find the cgroups of jobs, and read one job through those of its steps and tasks.

The folders that contain jobs are searched for once a minute and cached; a scan lists only those.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurmscope.core.log import fields
from slurmscope.node.cgroup.folders import CgroupFolder, Members, RereadTimer, subfolders
from slurmscope.node.cgroup.kept_files import TEMPORARY_ERRORS
from slurmscope.node.cgroup.names import JobName, ProcessOwners, parse_job, parse_step, parse_task
from slurmscope.node.job_use import CgroupUse, GroupKey, JobKey

logger = logging.getLogger(__name__)


SEARCH_SECONDS = 60.0
# While no slurmd has a folder for jobs: it may be starting.
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job's folder; ``relative`` is its path below the root of its hierarchy, the same in all of v1.

    ``is_stray`` marks one that is not in the hierarchy where its processes are tracked: usually a leftover.
    """

    name: JobName
    path: str
    relative: str
    inode: int
    node_name: str = ""
    uid: int | None = None
    is_stray: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParent:
    """A folder that contains jobs; the fields have the same meaning as those of a job."""

    path: str
    relative: str
    node_name: str
    uid: int | None = None
    is_stray: bool = False


class KnownFolders:
    """List job folders and cache them: at most scans, most of them are already known."""

    def __init__(self) -> None:
        self.refused = 0
        self._known: dict[str, FoundJob] = {}
        self._seen: dict[str, FoundJob] = {}

    def begin(self) -> None:
        """Begin a scan; folders that it does not find are dropped from the cache at the next one."""
        self._known, self._seen = self._seen, {}

    def jobs_in(self, parent: JobParent) -> Iterator[FoundJob]:
        for name, inode in self.list_folder(parent.path).items():
            path = f"{parent.path}/{name}"
            job = self._known.get(path)
            if job is None or job.inode != inode or job.is_stray != parent.is_stray:
                job = self._parse(name, path, inode, parent)
            if job:
                self._seen[path] = job
                yield job

    def list_folder(self, path: str) -> dict[str, int]:
        """List a folder; count one that we may not read, but raise when descriptors run out: that is not "no jobs"."""
        try:
            return subfolders(path)
        except OSError as error:
            if error.errno in TEMPORARY_ERRORS:
                raise
            if not self.refused:
                logger.warning("cannot list a folder of cgroups", extra=fields(path=path, error=error.strerror))
            self.refused += 1
            return {}

    def _parse(self, name: str, path: str, inode: int, parent: JobParent) -> FoundJob | None:
        if (job := parse_job(name)) is None:
            return None
        return FoundJob(
            name=job,
            path=path,
            relative=f"{parent.relative}/{name}",
            inode=inode,
            node_name=parent.node_name,
            uid=parent.uid,
            is_stray=parent.is_stray,
        )


def trusted_links(path: str) -> int:
    """Return the link count of a folder that root or we own; 0 for others.

    Users may own parts of the tree and give folders there any name.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_nlink if found.st_uid in (0, os.geteuid()) else 0


MOST_GROUPS = 10_000


class CgroupReader(Protocol):
    """Read the use of one job, step or task."""

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone."""

    def release(self) -> None:
        """Close all descriptors; the files stay readable."""

    def close(self) -> None:
        """Close all descriptors permanently."""


class JobFolders(Protocol):
    """Access the folders of one job, whichever cgroup version has them."""

    def open_group(self, relative: str, *, is_optional: bool) -> CgroupReader:
        """Return the reader of a folder below the job's; the empty path is the job itself."""

    def steps(self) -> list[CgroupFolder]:
        """Return the folders directly below the job."""

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        """Return the path from a step to its tasks, and the folders there."""

    def members(self) -> Members:
        """Return the processes."""

    def has_processes(self) -> bool:
        """Return whether there is any process."""

    def release(self) -> None:
        """Close all descriptors; the files stay readable."""

    def close(self) -> None:
        """Close all descriptors permanently."""


class JobCgroup:
    """Read the cgroups of one run of a job on this node.

    The tree that found the job closes it when its folder is gone. Not thread-safe.
    """

    def __init__(self, key: JobKey, path: Path, folders: JobFolders, uid: int | None) -> None:
        """Set the key of the job, its folder (the tracking one of cgroup v1), and its user where known."""
        self.key = key
        self.path = path
        self.uid = uid
        self._folders = folders
        self._top = folders.open_group("", is_optional=False)
        self._groups: dict[GroupKey, tuple[CgroupFolder, CgroupReader]] = {}

    def read(self) -> CgroupUse | None:
        """Read the whole job; None when its cgroup is gone or not complete yet."""
        return self._top.read()

    def read_groups(self, *, steps: bool, tasks: bool) -> dict[GroupKey, CgroupUse]:
        """Read the current steps, tasks or both; a group that has just vanished is left out."""
        before, self._groups = self._groups, {}
        uses: dict[GroupKey, CgroupUse] = {}
        for key, relative, cgroup in self._list_groups(tasks=tasks):
            if (not key.task and not steps) or len(self._groups) >= MOST_GROUPS:
                continue
            known, group = before.pop(key, (None, None))
            if group is None or known is not cgroup:
                if group:
                    group.close()
                group = self._folders.open_group(relative, is_optional=True)
            self._groups[key] = (cgroup, group)
            use = group.read()
            if use is None:
                cgroup.refresh()  # marks it as gone, which its parent checks
            else:
                uses[key] = use
        for _, group in before.values():
            group.close()
        return uses

    def members(self) -> Members:
        """Return the processes, those of the user separate from slurmstepd."""
        return self._folders.members()

    def release(self) -> None:
        self._folders.release()
        for group in self._open_groups():
            group.release()

    def close(self) -> None:
        """Close all descriptors permanently; later reads return nothing."""
        self._folders.close()
        for group in self._open_groups():
            group.close()
        self._groups.clear()

    def _open_groups(self) -> Iterator[CgroupReader]:
        yield self._top
        yield from (group for _, group in self._groups.values())

    def _list_groups(self, *, tasks: bool) -> Iterator[tuple[GroupKey, str, CgroupFolder]]:
        for step_cgroup in self._folders.steps():
            step = parse_step(step_cgroup.name)
            if step is None:
                continue
            yield GroupKey(step=step), step_cgroup.name, step_cgroup
            if tasks:
                path, task_cgroups = self._folders.tasks(step_cgroup)
                for cgroup in task_cgroups:
                    if (task := parse_task(cgroup.name)) is not None:
                        yield GroupKey(step=step, task=task), f"{step_cgroup.name}/{path}{cgroup.name}", cgroup


# How long a cgroup may be without a process before it counts as stale: a new one gets its first process a moment after
# it is made, and vanishes a moment after its last process.
STALE_SECONDS = 10.0
# Longest interval between two checks whether an old job still has a process.
PROCESS_CHECK_SECONDS = 120.0


class JobEntry:
    """Track one job folder: its job ID, its user, and whether it still has processes."""

    def __init__(
        self, found: FoundJob, folders: JobFolders, owners: ProcessOwners, clock: Callable[[], float], *, is_old: bool
    ) -> None:
        """Set the folder; an old folder without a process is stale at once, a new one after a grace period."""
        self.found = found
        self.job: JobCgroup | None = None
        # Made once: building the paths of thousands of jobs at each scan would cost more than listing them.
        self.watched: tuple[Path, ...] = ()
        self.is_stale = False
        self._folders = folders
        self._owners = owners
        self._clock = clock
        self._empty_since: float | None = None
        self._empty_limit = 0.0 if is_old else STALE_SECONDS
        self._process_timer = RereadTimer(clock, found.relative, PROCESS_CHECK_SECONDS)
        self._timer = RereadTimer(clock, found.relative)

    def is_same(self, found: FoundJob) -> bool:
        """Return whether a folder is the known one, and not a new one of the same name.

        A job whose main folder vanished first still has the others; inodes of two hierarchies are not comparable.
        """
        return found.path != self.found.path or found.inode == self.found.inode

    def refresh(self) -> None:
        """Check what may have changed since the last scan."""
        self._check_processes()
        if not self.is_stale and (self.job is None or self.job.uid is None):
            self._identify()

    def close(self) -> None:
        self._folders.close()
        if self.job:
            self.job.close()

    def _check_processes(self) -> None:
        # An old job seldom loses its last process, and leftovers, which may be many, seldom get a new one.
        is_waiting = self._empty_since is not None and not self.is_stale
        if not is_waiting and not self._process_timer.is_due():
            return
        if self._folders.has_processes():
            self._empty_since, self.is_stale = None, False
            self._empty_limit = STALE_SECONDS
            return
        now = self._clock()
        self._empty_since = now if self._empty_since is None else self._empty_since
        self.is_stale = now - self._empty_since >= self._empty_limit
        if self.is_stale:
            (self.job or self._folders).release()

    def _identify(self) -> None:
        """Find the job ID of a SLUID and the user; what is not found is retried later."""
        if self.job is None and self.found.name.job_id is not None:
            self.job = self._open(self.found.name.job_id)
        if (self.job and self.job.uid is not None) or not self._timer.is_due():
            return
        members = self._folders.members()
        if not members.user:  # too young: try again at the next scan
            self._timer = RereadTimer(self._clock, self.found.relative)
        job_id = self._resolve(members) if self.job is None else None
        if job_id is not None:
            self.job = self._open(job_id)
        if self.job and self.job.uid is None:
            self.job.uid = self._owners.common_user(members.user)

    def _open(self, job_id: int) -> JobCgroup:
        key = JobKey(job_id, self.found.node_name, self.found.name.sluid)
        return JobCgroup(key, Path(self.found.path), self._folders, self.found.uid)

    def _resolve(self, members: Members) -> int | None:
        jobs = {pid: self._owners.titled_job(pid) for pid in members.stepd}
        # The PID of a process that ended meanwhile may be reused by another job: only processes that still exist count.
        still_here = set(self._folders.members().stepd)
        titled = {job for pid, job in jobs.items() if job is not None and pid in still_here}
        # Nothing else names the job: its users can change the environment of their processes.
        return titled.pop() if len(titled) == 1 else None
