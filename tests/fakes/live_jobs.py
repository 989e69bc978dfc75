# SPDX-License-Identifier: Apache-2.0
"""Fake the jobs of a node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.core.errors import SourceError
from slurmscope.node.cgroup.folders import Members
from slurmscope.node.job_finder import JobFinder, JobMeter, LiveJob, StepFolders
from slurmscope.node.job_use import WHOLE_JOB, CgroupUse, CpuUse, GroupKey, JobKey, JobUse, MemoryUse, ProcessUse
from slurmscope.node.kept_totals import KeptJob
from slurmscope.node.procfs.process_totals import Kept


@dataclass(eq=False)
class FakeJob:
    """Fake one run of one job; tests set its values."""

    key: JobKey
    seconds: float | None = 0.0
    path: Path | None = None
    uid: int | None = 1001
    processes: int = 1
    steps: set[str] = field(default_factory=lambda: {"batch"})
    pids: list[int] = field(default_factory=list)
    peak_bytes: int | None = None
    reads: int = 0

    def read(self) -> CgroupUse | None:
        """Return the CPU time and the peak of memory."""
        if self.seconds is None:
            return None
        return CgroupUse(cpu=CpuUse(total_seconds=self.seconds), memory=MemoryUse(peak_bytes=self.peak_bytes))

    def read_groups(self, *, steps: bool, tasks: bool) -> Mapping[GroupKey, CgroupUse]:
        """Return a group for each step."""
        return {GroupKey(step=step): CgroupUse(cpu=CpuUse(total_seconds=1.0)) for step in self.steps} if steps else {}

    def members(self) -> Members:
        """Return the processes."""
        return Members(user=tuple(self.pids))


class FakeReader(JobMeter):
    """Read a fake job, and count how often it was read in full since it was made."""

    def __init__(self, *, has_steps: bool = False) -> None:
        self.has_steps = has_steps
        self.scans = 0

    @property
    def was_cut(self) -> bool:
        """Return that there is time."""
        return False

    def read(self, job: LiveJob, seconds: float = math.inf) -> JobUse | None:
        """Read everything; the I/O of the processes is the number of scans."""
        use = self.read_cgroup(job)
        assert isinstance(job, FakeJob)
        if use is None:
            return None
        self.scans += 1
        job.reads += 1
        processes = ProcessUse(processes=job.processes, minor_faults=self.scans)
        pids = frozenset(job.pids)
        return JobUse(key=job.key, uid=job.uid, groups=use.groups, processes=processes, pids=pids)

    def read_cgroup(self, job: LiveJob) -> JobUse | None:
        """Read the cgroup."""
        whole = job.read()
        if whole is None:
            return None
        groups = {WHOLE_JOB: whole, **job.read_groups(steps=self.has_steps, tasks=False)}
        return JobUse(key=job.key, uid=job.uid, groups=groups)

    def release(self) -> None:
        """Close nothing."""

    def keep(self, job: LiveJob) -> KeptJob:
        """Return the number of scans."""
        return KeptJob(key=job.key, totals={"scans": Kept(self.scans, 0)})

    def resume(self, job: LiveJob, kept: KeptJob) -> None:
        """Continue the number of scans."""
        self.scans = kept.totals["scans"].total

    def count_left(self, job: LiveJob) -> int | None:
        """Return 0 when no process is left."""
        return None if job.members().user else 0

    def leaders(self, job: LiveJob) -> list[int]:
        """Return all processes."""
        return list(job.members().user)


@dataclass
class FakeFinder(JobFinder):
    """Find the jobs that a test has added, below a directory that can be watched."""

    root: Path = Path("/nonexistent")
    jobs: dict[JobKey, FakeJob] = field(default_factory=dict)
    uses_processes: bool = False
    layout: str = "v1"
    stale_cgroups: int = 0
    fails: bool = False
    scans: int = 0

    def add(self, job: FakeJob) -> FakeJob:
        """Add a job."""
        self.jobs[job.key] = job
        return job

    def remove(self, job: FakeJob) -> None:
        """Remove a job."""
        del self.jobs[job.key]

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Return the jobs."""
        self.scans += 1
        if self.fails:
            raise SourceError("cannot list the cgroups of jobs")
        return dict(self.jobs)

    def is_quiet(self) -> bool:
        """Return that a job may have started."""
        return False

    def list_steps(self, job: LiveJob) -> StepFolders:
        """List the steps."""
        assert isinstance(job, FakeJob)
        return StepFolders(steps=frozenset(job.steps), watched=(job.path,) if job.path else ())

    def watch_paths(self) -> list[Path]:
        """Return the folder of the jobs, if there is one."""
        return [self.root] if self.root.is_dir() else []

    def watch_roots(self) -> list[Path]:
        """Return the same."""
        return [self.root] if self.root.is_dir() else []

    def watch_programs(self) -> list[Path] | None:
        """Return that the program is not known."""
        return None
