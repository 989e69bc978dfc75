# SPDX-License-Identifier: Apache-2.0
"""Find the jobs of this node by their cgroups, or by their processes where Slurm makes no cgroups."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slurmscope.model.job_use import JobKey
from slurmscope.services.node.job_reading import LiveJob
from slurmscope.sources.cgroup import CgroupLayout, JobCgroup, LayoutKind, TreeHealth
from slurmscope.sources.cgroup.names import parse_step
from slurmscope.sources.procfs.stepd_jobs import StepdJob

BY_PROCESSES = "processes"
# Steps of one job whose folders are watched; more at a time are the work of somebody who tries how far he gets.
STEP_LIMIT = 64
MIRROR_LIMIT = 10_000


class Cgroups(Protocol):
    """Be a tree of cgroups with jobs in it."""

    @property
    def layout(self) -> CgroupLayout:
        """Tell which hierarchies there are."""
        ...

    @property
    def health(self) -> TreeHealth:
        """Tell how the last scan went."""
        ...

    def scan(self) -> Mapping[JobKey, JobCgroup]:
        """Return the jobs that are here now."""
        ...

    def watch_paths(self) -> list[Path]:
        """Return where jobs come and go."""
        ...


class Stepds(Protocol):
    """Be the processes of slurmstepd with all below them."""

    def scan(self) -> Mapping[JobKey, StepdJob]:
        """Return the jobs that are here now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFolders:
    """Hold the names of a job's steps, and folders in which something is removed when a task of it has ended."""

    steps: frozenset[str] = frozenset()
    watched: tuple[Path, ...] = field(default=())


class JobFinder:
    """Choose between the two ways at each scan: slurmd may be started, or configured anew, at any time."""

    def __init__(self, cgroups: Cgroups, stepds: Stepds) -> None:
        self._cgroups = cgroups
        self._stepds = stepds
        self._mirrored: dict[Path, Path | None] = {}
        self._has_seen_stepd = False
        self.uses_processes = False

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Return the jobs that are here now; the same job is the same object at each scan."""
        jobs = self._cgroups.scan()
        # A slurmd that uses cgroups has made a place for jobs before the first one comes.
        self.uses_processes = self._cgroups.health.scopes == 0
        if not self.uses_processes:
            return jobs
        by_processes = self._stepds.scan()
        self._has_seen_stepd = self._has_seen_stepd or bool(by_processes)
        return by_processes

    @property
    def layout(self) -> str:
        """Tell how jobs are found, in the words of ``NodeJobs.layout``."""
        if not self.uses_processes:
            return self._cgroups.layout.kind.value
        return BY_PROCESSES if self._has_seen_stepd else LayoutKind.UNSUPPORTED.value

    @property
    def stale_cgroups(self) -> int:
        """Tell how many cgroups of ended jobs were left behind."""
        return self._cgroups.health.stale

    def watch_paths(self) -> list[Path]:
        """Return where jobs come and go, in each hierarchy that tells it."""
        paths = self._cgroups.watch_paths()
        return [*paths, *filter(None, map(self._in_accounting, paths))]

    def look_into(self, job: LiveJob) -> StepFolders:
        """List the steps of a job."""
        if job.path is None:
            return StepFolders(steps=job.steps if isinstance(job, StepdJob) else frozenset())
        steps = _step_folders(job.path)
        if self._cgroups.layout.kind is LayoutKind.V2:
            return StepFolders(steps=frozenset(steps), watched=(job.path,))
        accounting = self._in_accounting(job.path) or job.path
        folders = [accounting / folder for folder in steps.values()]
        return StepFolders(steps=frozenset(steps), watched=(accounting, *folders[-STEP_LIMIT:]))

    def _in_accounting(self, path: Path) -> Path | None:
        """Find a folder again in the v1 hierarchy that counts CPU time.

        At the end of a step its folder goes there first, and task by task: it is the only warning that v1 gives.
        """
        if path not in self._mirrored:
            if len(self._mirrored) >= MIRROR_LIMIT:
                self._mirrored.clear()
            self._mirrored[path] = self._mirror(path)
        return self._mirrored[path]

    def _mirror(self, path: Path) -> Path | None:
        hierarchies = self._cgroups.layout.hierarchies
        accounting = hierarchies.get("cpuacct")
        for root in set(hierarchies.values()):
            if accounting is not None and root != accounting and path.is_relative_to(root):
                return accounting / path.relative_to(root)
        return None


def _step_folders(path: Path) -> dict[str, str]:
    """Return the folders of steps by the step; none when the job is gone."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in itertools.islice(entries, 20_000)]
    except OSError:
        return {}
    # By number, the newest last; those with a name, which last as long as the job, come after them.
    names.sort(key=lambda name: (len(name), name))
    return {step: name for name in names if (step := parse_step(name)) is not None}
