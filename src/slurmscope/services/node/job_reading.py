# SPDX-License-Identifier: Apache-2.0
"""Read one live job: its cgroup, its processes, and what its environment tells."""

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

# A process gets the environment of its job a moment after it is there.
ENVIRONMENT_TRIES = 8
ENVIRONMENT_PROCESSES = 3
# Leaders of tasks that are asked for at once; when one of them ends, others are asked for.
LEADER_LIMIT = 16


class LiveJob(Protocol):
    """Be a job that can be read, however it was found."""

    @property
    def key(self) -> JobKey:
        """Name the job."""
        ...

    @property
    def path(self) -> Path | None:
        """Give the job's folder; None where it has none."""
        ...

    @property
    def uid(self) -> int | None:
        """Give the job's user, where that is known by now."""
        ...

    def read(self) -> CgroupUse | None:
        """Read the whole job; None when there is nothing to read, or not yet."""
        ...

    def read_groups(self, *, steps: bool, tasks: bool) -> Mapping[GroupKey, CgroupUse]:
        """Read the steps, the tasks or both."""
        ...

    def members(self) -> Members:
        """List the processes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """Say what is read of each job."""

    has_steps: bool = False
    has_tasks: bool = False
    detail: ProcessDetail = field(default_factory=ProcessDetail)
    environment: tuple[str, ...] = ()


class JobMeter:
    """Read one job again and again; remembers what its processes did, so it lives as long as the job."""

    def __init__(self, processes: ProcessReader, options: ReadingOptions) -> None:
        self._reader = processes
        self._options = options
        self._processes = JobProcesses(processes, options.detail)
        self._environment: dict[str, str] = {}
        self._environment_tries = 0

    def read(self, job: LiveJob) -> JobUse | None:
        """Read everything; None when there is nothing to read, or not yet."""
        # First what goes away first: Slurm removes cgroups milliseconds after the last process.
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
        """Read the cgroups only, which costs the same however many processes there are."""
        whole = job.read()
        if whole is None:
            return None
        groups = {WHOLE_JOB: whole}
        if self._options.has_steps or self._options.has_tasks:
            groups.update(job.read_groups(steps=self._options.has_steps, tasks=self._options.has_tasks))
        return JobUse(key=job.key, uid=job.uid, groups=groups)

    def leaders(self, job: LiveJob) -> list[int]:
        """List processes that slurmstepd started itself: when such a one ends, a task has ended."""
        members = job.members()
        samples = self._reader.read(members.user[: 4 * LEADER_LIMIT])
        stepd, others = set(members.stepd), set(members.user)
        leaders = [s.pid for s in samples if (s.parent_id in stepd if stepd else s.parent_id not in others)]
        return leaders[:LEADER_LIMIT]

    def _read_environment(self, pids: Iterable[int]) -> None:
        if self._environment or not self._options.environment or self._environment_tries >= ENVIRONMENT_TRIES:
            return
        asked = list(pids)[:ENVIRONMENT_PROCESSES]
        self._environment_tries += bool(asked)
        for pid in asked:
            with self._reader.process(pid) as process:
                found = process if isinstance(process, Missing) else process.environment(self._options.environment)
            if not isinstance(found, Missing):
                # Processes that were adopted into the job know less than those that Slurm started.
                self._environment = {**found, **self._environment}


def _all_pids(members: Members) -> frozenset[int]:
    return frozenset((*members.user, *members.stepd))
