# SPDX-License-Identifier: Apache-2.0
"""Follow one job from reading to reading, so that its totals count from its start and never fall."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from slurmscope.model.job_totals import (
    completed,
    continued,
    has_restarted,
    is_missing_something,
    is_same_life,
)
from slurmscope.model.job_use import CgroupUse, GroupKey, JobKey, JobUse
from slurmscope.services.node.job_finding import StepFolders
from slurmscope.services.node.job_reading import LiveJob

# Steps that have ended and are still served, for each job.
PAST_GROUP_LIMIT = 1000
MANY_PROCESSES = 64
# A cgroup that came back shows its first step within milliseconds.
DOUBT_SECONDS = 1.0


class ReadsJob(Protocol):
    """Read one job again and again."""

    def read(self, job: LiveJob) -> JobUse | None:
        """Read everything; None when there is nothing to read, or not yet."""
        ...

    def read_cgroup(self, job: LiveJob) -> JobUse | None:
        """Read the cgroups only."""
        ...

    def leaders(self, job: LiveJob) -> Collection[int]:
        """List the processes whose end is worth a look."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSteps:
    """Hold what a job has to count on from when its cgroup comes back with its next step."""

    use: JobUse
    steps: frozenset[str]
    reading: ReadsJob


class TrackedJob:
    """Hold what is known of one job that is here."""

    def __init__(self, job: LiveJob, reading: ReadsJob, *, former: EarlierSteps | None, now: float) -> None:
        """Take the job, and what it was when it had a cgroup here before; ``now`` is on a monotonic clock."""
        self.job = job
        self.key: JobKey = job.key
        # The name by which changes of this job are told; empty where nothing tells.
        self.folder_name = job.path.name if job.path else ""
        self.watched: tuple[Path, ...] = ()
        self._reading = reading
        self._steps: frozenset[str] = frozenset()
        self._doubted = former
        self._doubted_until = now + DOUBT_SECONDS
        self._base: JobUse | None = None
        self._last: JobUse | None = None
        self._past: dict[GroupKey, tuple[float, CgroupUse]] = {}

    @property
    def use(self) -> JobUse:
        """Give what the job has used, as far as is known."""
        if self._doubted is not None:
            # It may be a new life or the old one: until that is known, the old numbers stand.
            return self._doubted.use
        last = self._last or JobUse(key=self.key, uid=self.job.uid)
        shown = continued(self._base, last) if self._base else last
        if not self._past:
            return shown
        return replace(shown, groups={**{key: group for key, (_, group) in self._past.items()}, **shown.groups})

    def take_folders(self, folders: StepFolders, now: float) -> None:
        """Learn which steps the job has."""
        self.watched = folders.watched
        self._steps |= folders.steps
        if self._doubted is None or (not self._steps and now < self._doubted_until):
            return
        former, self._doubted = self._doubted, None
        if is_same_life(former.steps, self._steps):
            self._base, self._reading = former.use, former.reading
            self._steps |= former.steps

    def read(self, now: float) -> bool:
        """Read everything; False when the counters belong to another cgroup than before."""
        return self._take(self._reading.read(self.job), now)

    def read_cgroup(self, now: float) -> bool:
        """Read the cgroups only; False when the counters belong to another cgroup than before."""
        use, last = self._reading.read_cgroup(self.job), self._last
        if use is not None and last is not None:
            use = replace(use, processes=last.processes, environment=last.environment)
        return self._take(use, now)

    @property
    def has_many_processes(self) -> bool:
        """Tell whether reading its processes takes too long in the moment in which the job may end."""
        processes = self._last.processes if self._last else None
        return processes is not None and processes.processes > MANY_PROCESSES

    def leaders(self) -> Collection[int]:
        """List the processes whose end is worth a look."""
        return self._reading.leaders(self.job)

    def forget_past(self, now: float, grace_seconds: float) -> None:
        """Stop serving steps that ended long ago."""
        for key in [key for key, (ended, _) in self._past.items() if ended + grace_seconds <= now]:
            del self._past[key]

    def former(self) -> EarlierSteps | None:
        """Give what to count on from; None when the job's cgroup cannot come back in the same life."""
        if not self._steps or not all(step.isdecimal() for step in self._steps):
            return None
        return EarlierSteps(use=replace(self.use, has_ended=True), steps=self._steps, reading=self._reading)

    def _take(self, use: JobUse | None, now: float) -> bool:
        if use is None:
            return True
        if self._last is not None:
            if has_restarted(self._last, use):
                return False
            if is_missing_something(self._last, use):
                use = completed(self._last, use)
            for key in self._last.groups.keys() - use.groups.keys():
                if len(self._past) < PAST_GROUP_LIMIT:
                    self._past[key] = (now, self._last.groups[key])
        self._last = use
        return True
