# SPDX-License-Identifier: Apache-2.0
"""Read one running job: its cgroup, its processes and its environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slurmscope.model.job_totals import WHOLE_JOB
from slurmscope.model.job_use import CgroupUse, GroupKey, JobKey, JobUse
from slurmscope.sources.cgroup import Members
from slurmscope.sources.procfs.job_processes import JobProcesses, ProcessDetail
from slurmscope.sources.procfs.process import Missing
from slurmscope.sources.procfs.reader import ProcessReader

# A process has the environment of its job only a moment after it was created.
ENVIRONMENT_TRIES = 8
ENVIRONMENT_PROCESSES = 3
# Task leaders that are watched at once; when one of them ends, others are watched.
LEADER_LIMIT = 16


class LiveJob(Protocol):
    """A job that can be read, found by cgroup or by processes."""

    @property
    def key(self) -> JobKey:
        """Return the key of the job."""
        ...

    @property
    def path(self) -> Path | None:
        """Return the job's cgroup directory; None if it has none."""
        ...

    @property
    def uid(self) -> int | None:
        """Return the job's user; None if it is not known yet."""
        ...

    def read(self) -> CgroupUse | None:
        """Read the whole job; None if there is nothing to read (yet)."""
        ...

    def read_groups(self, *, steps: bool, tasks: bool) -> Mapping[GroupKey, CgroupUse]:
        """Read the steps, the tasks or both of them."""
        ...

    def members(self) -> Members:
        """List the processes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """What is read of each job."""

    has_steps: bool = False
    has_tasks: bool = False
    detail: ProcessDetail = field(default_factory=ProcessDetail)
    environment: tuple[str, ...] = ()


class JobMeter:
    """Read one job repeatedly; keeps totals of its ended processes, so there is one meter per job."""

    def __init__(self, processes: ProcessReader, options: ReadingOptions) -> None:
        self._reader = processes
        self._options = options
        self._processes = JobProcesses(processes, options.detail)
        self._environment: dict[str, str] = {}
        self._environment_tries = 0

    def read(self, job: LiveJob) -> JobUse | None:
        """Read everything; None if there is nothing to read (yet)."""
        # Cgroups first: Slurm removes them milliseconds after the last process ends.
        use = self.read_cgroup(job)
        members = job.members()
        if use is None and not members.user and not members.stepd:
            return None
        self._read_environment(members.user)
        return JobUse(
            key=job.key,
            uid=job.uid,
            groups=use.groups if use else {},
            processes=self._processes.read(members.user, members.stepd, list_again=lambda: _all_pids(job.members())),
            pids=_all_pids(members),
            environment=self._environment,
        )

    def read_cgroup(self, job: LiveJob) -> JobUse | None:
        """Read the cgroups only, which takes the same time for any number of processes."""
        whole = job.read()
        if whole is None:
            return None
        groups = {WHOLE_JOB: whole}
        if self._options.has_steps or self._options.has_tasks:
            groups.update(job.read_groups(steps=self._options.has_steps, tasks=self._options.has_tasks))
        return JobUse(key=job.key, uid=job.uid, groups=groups)

    def leaders(self, job: LiveJob) -> list[int]:
        """List processes that slurmstepd started itself: when one of them ends, a task has ended."""
        members = job.members()
        samples = self._reader.read(members.user[: 4 * LEADER_LIMIT])
        stepd, others = set(members.stepd), set(members.user)
        leaders = [s.pid for s in samples if (s.parent_id in stepd if stepd else s.parent_id not in others)]
        return leaders[:LEADER_LIMIT]

    def _read_environment(self, pids: Iterable[int]) -> None:
        if self._environment or not self._options.environment or self._environment_tries >= ENVIRONMENT_TRIES:
            return
        candidates = list(pids)[:ENVIRONMENT_PROCESSES]
        self._environment_tries += bool(candidates)
        for pid in candidates:
            with self._reader.process(pid) as process:
                found = process if isinstance(process, Missing) else process.environment(self._options.environment)
            if not isinstance(found, Missing):
                # Adopted processes have fewer variables than those that Slurm started.
                self._environment = {**found, **self._environment}


def _all_pids(members: Members) -> frozenset[int]:
    return frozenset((*members.user, *members.stepd))
