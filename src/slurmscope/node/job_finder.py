# SPDX-License-Identifier: Apache-2.0
"""Find the jobs of this node by their cgroups, or by their processes if Slurm creates no cgroups, and read each of
them.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.cgroup.names import parse_step
from slurmscope.node.cgroup.tree import CgroupTree, LayoutKind, in_hierarchy
from slurmscope.node.job_use import WHOLE_JOB, CgroupUse, GroupKey, JobKey, JobUse, ProcessUse
from slurmscope.node.kept_totals import WITNESSES, KeptJob
from slurmscope.node.kernel_files import Hanging, Missing
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.job_scan import ProcessDetail
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdJob, StepdTree

# A process has the environment of its job only a moment after it was created.
ENVIRONMENT_TRIES = 8
ENVIRONMENT_PROCESSES = 3
# Task leaders that are watched at once; when one of them ends, others are watched.
LEADER_LIMIT = 16
# Processes that may be left when the last task has ended: those of the extern step, and zombies.
IDLE_LIMIT = 4
IDLE_COMMAND = "sleep"


class LiveJob(Protocol):
    """A job that can be read, found by cgroup or by processes."""

    @property
    def key(self) -> JobKey: ...

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

    def __init__(
        self, processes: ProcessReader, options: ReadingOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = processes
        self._options = options
        self._clock = clock
        self._processes = JobProcesses(processes, options.detail, clock=clock)
        self._environment: dict[str, str] = {}
        self._environment_tries = 0
        self._hanging: threading.Thread | None = None
        self._was_cut = False
        self._pids: frozenset[int] = frozenset()

    @property
    def was_cut(self) -> bool:
        """Return whether the processes took too long at the last reading, and keep their values."""
        return self._was_cut

    def read(self, job: LiveJob, seconds: float = math.inf) -> JobUse | None:
        """Read everything; None if there is nothing to read (yet). The processes may take so many seconds."""
        # Cgroups first: Slurm removes them milliseconds after the last process ends.
        use = self.read_cgroup(job)
        cpu_seconds = _exact_cpu_seconds(job, use)
        if self._processes.has_slept(cpu_seconds):
            processes, pids, self._was_cut = self._processes.go_on_sleeping(), self._pids, False
            is_complete = True
        else:
            members = job.members()
            if use is None and not members.user and not members.stepd:
                return None
            pids, is_complete = _all_pids(members), members.is_complete
            read = partial(self._read_members, members, seconds, cpu_seconds)
            # Those that could not be listed would count as ended, and once more at the next reading.
            processes = self._read_processes(job, read) if is_complete else self._processes.last
            self._pids = pids if is_complete else self._pids
        return JobUse(
            key=job.key,
            uid=job.uid,
            groups=use.groups if use else {},
            processes=processes,
            are_processes_read=is_complete and not self._was_cut,
            pids=pids,
            environment=self._environment,
            cgroup=str(job.path or ""),
        )

    def read_cgroup(self, job: LiveJob) -> JobUse | None:
        """Read the cgroups only, which takes the same time for any number of processes."""
        whole = job.read()
        if whole is None:
            return None
        groups = {WHOLE_JOB: whole}
        if self._options.has_steps or self._options.has_tasks:
            groups.update(job.read_groups(steps=self._options.has_steps, tasks=self._options.has_tasks))
        return JobUse(key=job.key, uid=job.uid, groups=groups, cgroup=str(job.path or ""))

    def keep(self, job: LiveJob) -> KeptJob:
        """Return what a new agent needs to continue the totals of a job."""
        own = job.keep() if isinstance(job, StepdJob) else {}
        return KeptJob(
            key=job.key, witnesses=tuple(self._processes.oldest(WITNESSES)), totals={**self._processes.keep(), **own}
        )

    def resume(self, job: LiveJob, kept: KeptJob) -> None:
        """Continue the totals of an agent that ran before, if it is the same run of the job."""
        members = _all_pids(job.members())
        found = self._reader.read([pid for pid, _ in kept.witnesses if pid in members], owner=job.uid)
        if not {(sample.pid, sample.start_ticks) for sample in found} & set(kept.witnesses):
            return
        self._processes.resume(kept.totals)
        if isinstance(job, StepdJob):
            job.resume(kept.totals)

    def release(self) -> None:
        """Close all descriptors of processes."""
        self._processes.release()

    def leaders(self, job: LiveJob) -> list[int]:
        """List processes that slurmstepd started itself: when one of them ends, a task has ended."""
        members = job.members()
        samples = self._reader.read(members.user[: 4 * LEADER_LIMIT], owner=job.uid)
        stepd, others = set(members.stepd), set(members.user)
        leaders = [s.pid for s in samples if (s.parent_id in stepd if stepd else s.parent_id not in others)]
        return leaders[:LEADER_LIMIT]

    def count_left(self, job: LiveJob) -> int | None:
        """Return how many processes are left in a job whose tasks have ended; None if one of them may need memory.

        The extern step has a process ``sleep`` until Slurm ends the job.
        """
        members = job.members()
        pids = members.user
        if len(pids) > IDLE_LIMIT or not members.is_complete:
            return None
        samples = self._reader.read(pids, owner=job.uid)
        guard = self._reader.guard
        if len(samples) < len(pids) and (self._reader.hides_processes() or (guard and any(map(guard.skips, pids)))):
            return None
        return None if any(s.state != "Z" and s.command != IDLE_COMMAND for s in samples) else len(pids)

    def _read_processes(
        self, job: LiveJob, read: Callable[[Callable[[], Members]], ProcessUse | None]
    ) -> ProcessUse | None:
        """Read the processes; their last values while files of one hang, or too many of the user's do."""
        guard = self._reader.guard
        if guard is None:
            return read(job.members)
        self._was_cut = True
        if (self._hanging is None or not self._hanging.is_alive()) and not guard.skips_user(job.uid):
            try:
                return guard.run(lambda: read(lambda: guard.run(job.members)), owner=job.uid)
            except Hanging as hanging:
                self._hanging = hanging.thread
        return self._processes.last

    def _read_members(
        self, members: Members, seconds: float, cpu_seconds: float | None, list_again: Callable[[], Members]
    ) -> ProcessUse | None:
        until = self._clock() + seconds
        self._read_environment(members.user, until)
        use = self._processes.read(
            members.user,
            members.stepd,
            list_again=lambda: _all_pids(list_again()),
            seconds=until - self._clock(),
            cpu_seconds=cpu_seconds,
        )
        self._was_cut = self._processes.was_cut
        return use

    def _read_environment(self, pids: Iterable[int], until: float) -> None:
        """Read the first processes; a user may make that slow, by memory of a file system that the user serves."""
        if self._environment or not self._options.environment or self._environment_tries >= ENVIRONMENT_TRIES:
            return
        candidates = list(pids)[:ENVIRONMENT_PROCESSES]
        self._environment_tries += bool(candidates)
        for pid in candidates:
            if self._clock() >= until:
                return
            if self._reader.guard is not None:
                self._reader.guard.at(pid)
            with self._reader.process(pid) as process:
                found = process if isinstance(process, Missing) else process.environment(self._options.environment)
            if not isinstance(found, Missing):
                # Adopted processes have fewer variables than those that Slurm started.
                self._environment = {**found, **self._environment}


def _exact_cpu_seconds(job: LiveJob, use: JobUse | None) -> float | None:
    """Return the CPU time of the cgroup of a job; without one, it is counted in clock ticks."""
    return use.groups[WHOLE_JOB].cpu.total_seconds if use and job.path is not None else None


def _all_pids(members: Members) -> frozenset[int]:
    return frozenset((*members.user, *members.stepd))


BY_PROCESSES = "processes"
# Steps of one job whose directories are watched; no ordinary job runs more at a time.
STEP_LIMIT = 64
MIRROR_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFolders:
    """The steps of a job, and the directories in which something is removed when one of its tasks ends."""

    steps: frozenset[str] = frozenset()
    watched: tuple[Path, ...] = field(default=())


class JobFinder:
    """Find jobs by cgroups or by processes, chosen at each scan: slurmd may be started or reconfigured at any time."""

    def __init__(self, cgroups: CgroupTree, stepds: StepdTree) -> None:
        self._cgroups = cgroups
        self._stepds = stepds
        self._mirrored: dict[Path, Path | None] = {}
        self._has_seen_stepd = False
        self.uses_processes = False

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Return the current jobs; the same job is the same object at each scan."""
        jobs = self._cgroups.scan()
        # A slurmd that uses cgroups creates its scope before the first job.
        self.uses_processes = self._cgroups.scopes == 0
        if not self.uses_processes:
            return jobs
        by_processes = self._stepds.scan()
        self._has_seen_stepd = self._has_seen_stepd or bool(by_processes)
        return by_processes

    def is_quiet(self) -> bool:
        """Return whether a scan for processes would find no job."""
        return self.uses_processes and self._stepds.is_quiet()

    def watch_programs(self) -> list[Path] | None:
        """Return the files of which one is opened when a step starts; None if they are not all known."""
        return self._stepds.programs() if self.uses_processes else None

    @property
    def layout(self) -> str:
        """Return how jobs are found, as in ``NodeJobs.layout``."""
        if not self.uses_processes:
            return self._cgroups.layout.kind.value
        return BY_PROCESSES if self._has_seen_stepd else LayoutKind.UNSUPPORTED.value

    @property
    def stale_cgroups(self) -> int | None:
        """Return the number of leftover cgroups of ended jobs; None where they cannot be told from those of jobs."""
        return self._cgroups.stale

    def watch_paths(self) -> list[Path]:
        """Return the directories in which job cgroups are created and removed."""
        return self._mirrored_too(self._cgroups.watch_paths())

    def watch_roots(self) -> list[Path]:
        """Return those of them above jobs, which slurmd may remove and create again."""
        return self._mirrored_too(self._cgroups.watch_roots())

    def _mirrored_too(self, paths: list[Path]) -> list[Path]:
        return [*paths, *filter(None, map(self._in_accounting, paths))]

    def list_steps(self, job: LiveJob) -> StepFolders:
        """List the steps of a job and the directories to watch."""
        if job.path is None:
            return StepFolders(steps=job.steps if isinstance(job, StepdJob) else frozenset())
        steps = _step_folders(job.path)
        if self._cgroups.layout.kind is LayoutKind.V2:
            return StepFolders(steps=frozenset(steps), watched=(job.path,))
        accounting = self._in_accounting(job.path) or job.path
        folders = [accounting / folder for folder in steps.values()]
        return StepFolders(steps=frozenset(steps), watched=(accounting, *folders[-STEP_LIMIT:]))

    def _in_accounting(self, path: Path) -> Path | None:
        """Return the same directory in the v1 cpuacct hierarchy.

        When a step ends, its directories are removed there first, task by task: v1 gives no other warning.
        """
        if path not in self._mirrored:
            if len(self._mirrored) >= MIRROR_LIMIT:
                self._mirrored.clear()
            self._mirrored[path] = self._mirror(path)
        return self._mirrored[path]

    def _mirror(self, path: Path) -> Path | None:
        mirrored = in_hierarchy(self._cgroups.layout, path, "cpuacct")
        return mirrored if mirrored != path else None


def _step_folders(path: Path) -> dict[str, str]:
    """Return the directory names of steps by step; empty if the job is gone."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in itertools.islice(entries, 20_000)]
    except OSError:
        return {}
    # By number, the newest last, then the named steps, which last as long as the job.
    names.sort(key=lambda name: (len(name), name))
    return {step: name for name in names if (step := parse_step(name)) is not None}
