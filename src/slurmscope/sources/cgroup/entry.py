# SPDX-License-Identifier: Apache-2.0
"""Follow one job's folder: who it is, whose it is, and whether anybody is left in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmscope.model.job_use import JobKey
from slurmscope.sources.cgroup.find import FoundJob
from slurmscope.sources.cgroup.job import JobCgroup
from slurmscope.sources.cgroup.members import Members
from slurmscope.sources.cgroup.owners import ProcessOwners
from slurmscope.sources.cgroup.pace import Pace
from slurmscope.sources.cgroup.places import Place

# How long a cgroup may be without a process before it counts as left behind: a young one gets its first a moment after
# it is made, an old one goes a moment after its last.
STALE_SECONDS = 10.0
# How seldom an old job is asked whether any process is left in it.
LOOK_SECONDS = 120.0


class Entry:
    """Be one folder of a job, with or without a known number."""

    def __init__(
        self, found: FoundJob, place: Place, owners: ProcessOwners, clock: Callable[[], float], *, is_old: bool
    ) -> None:
        """Take what was found; an old folder without a process is left behind, a young one waits for its first."""
        self.found = found
        self.job: JobCgroup | None = None
        self.is_stale = False
        self._place = place
        self._owners = owners
        self._clock = clock
        self._empty_since: float | None = None
        self._empty_limit = 0.0 if is_old else STALE_SECONDS
        self._process_pace = Pace(clock, found.relative, LOOK_SECONDS)
        self._pace = Pace(clock, found.relative)

    def is_same(self, found: FoundJob) -> bool:
        """Tell whether a folder is the one we know, and not a new one of the same name.

        A job whose main folder went first still has the others; inodes of two hierarchies say nothing of each other.
        """
        return found.path != self.found.path or found.inode == self.found.inode

    def renew(self) -> None:
        """Look at what may have changed since the last scan."""
        self._look_for_processes()
        if not self.is_stale and (self.job is None or self.job.uid is None):
            self._identify()

    def close(self) -> None:
        """Close the job for good."""
        self._place.close()
        if self.job:
            self.job.close()

    def _look_for_processes(self) -> None:
        # An old job seldom loses its last process, and leftovers, which may be many, hardly ever get a new one.
        is_waiting = self._empty_since is not None and not self.is_stale
        if not is_waiting and not self._process_pace.is_due():
            return
        if self._place.has_processes():
            self._empty_since, self.is_stale = None, False
            self._empty_limit = STALE_SECONDS
            return
        now = self._clock()
        self._empty_since = now if self._empty_since is None else self._empty_since
        self.is_stale = now - self._empty_since >= self._empty_limit
        if self.is_stale:
            (self.job or self._place).release()

    def _identify(self) -> None:
        """Find the number behind a SLUID and the user; what nobody tells is asked again later."""
        if self.job is None and self.found.name.job_id is not None:
            self.job = self._open(self.found.name.job_id)
        if (self.job and self.job.uid is not None) or not self._pace.is_due():
            return
        members = self._place.members()
        if not members.user:  # too young: ask again at the next scan
            self._pace = Pace(self._clock, self.found.relative)
        job_id = self._resolve(members) if self.job is None else None
        if job_id is not None:
            self.job = self._open(job_id)
        if self.job and self.job.uid is None:
            self.job.uid = self._owners.common_user(members.user)

    def _open(self, job_id: int) -> JobCgroup:
        key = JobKey(job_id, self.found.node_name, self.found.name.sluid)
        return JobCgroup(key, Path(self.found.path), self._place, self.found.uid)

    def _resolve(self, members: Members) -> int | None:
        jobs = {pid: self._owners.titled_job(pid) for pid in members.stepd}
        # A process that ended meanwhile may have left its number to another job's: only those still here count.
        still_here = set(self._place.members().stepd)
        titled = {job for pid, job in jobs.items() if job is not None and pid in still_here}
        if titled:
            return titled.pop() if len(titled) == 1 else None
        return self._owners.agreed_job(members.user)
