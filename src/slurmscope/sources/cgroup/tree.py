# SPDX-License-Identifier: Apache-2.0
"""Keep the cgroups of all jobs of this node, from their first sight to their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurmscope.errors import SourceError
from slurmscope.model.job_use import JobKey
from slurmscope.sources.cgroup.controller_finder import ControllerFinder
from slurmscope.sources.cgroup.controller_place import ControllerPlace
from slurmscope.sources.cgroup.entry import Entry
from slurmscope.sources.cgroup.find import FolderFinder, FoundJob
from slurmscope.sources.cgroup.job import JobCgroup
from slurmscope.sources.cgroup.kept import DescriptorBudget
from slurmscope.sources.cgroup.layout import CgroupLayout
from slurmscope.sources.cgroup.limits import InheritedLimits
from slurmscope.sources.cgroup.owners import ProcessOwners
from slurmscope.sources.cgroup.places import Place, TreeTools
from slurmscope.sources.cgroup.unified_finder import UnifiedFinder
from slurmscope.sources.cgroup.unified_place import UnifiedPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeHealth:
    """Tell how the last scan went.

    ``scopes`` is the number of slurmd that have a place for jobs; ``stale`` cgroups have no process any more;
    ``unknown`` folders are beside jobs and none; ``unresolved`` are SLUIDs of which nobody told the number;
    ``duplicates`` are second folders of one job; ``refused`` counts since the start how often a folder or a process was
    closed to us.
    """

    scopes: int = 0
    stale: int = 0
    unknown: int = 0
    unresolved: int = 0
    duplicates: int = 0
    refused: int = 0
    kept_descriptors: int = 0


class CgroupTree:
    """Find jobs and keep what was opened of them between two scans. Not safe for two threads at once."""

    def __init__(
        self,
        layout: CgroupLayout,
        procfs_root: Path = Path("/proc"),
        *,
        descriptors: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take how many descriptors may stay open; what exceeds them is opened for each read."""
        self.layout = layout
        self.health = TreeHealth()
        self._clock = clock
        self._budget = DescriptorBudget(descriptors)
        self._owners = ProcessOwners(procfs_root)
        self._hierarchies = {name: str(path) for name, path in layout.hierarchies.items()}
        self._tools = TreeTools(
            budget=self._budget,
            keeps_processes=not self._hierarchies,
            limits=InheritedLimits(clock),
            owners=self._owners,
            clock=clock,
        )
        self._finder = self._open_finder()
        self._entries: dict[str, Entry] = {}
        self._is_first = True

    def scan(self) -> dict[JobKey, JobCgroup]:
        """Return the jobs that are here now; the same job is the same object at each scan.

        Those left behind without a process are not among them. Jobs that are gone are closed.
        """
        try:
            found = list(self._finder.find()) if self._finder else []
        except OSError as error:
            raise SourceError(f"the cgroups of jobs cannot be listed: {error}") from error
        self._renew(found)
        return self._sort()

    def watch_paths(self) -> list[Path]:
        """Return where changes happen: parents of jobs, jobs, and on v2 the files that tell of their last process."""
        jobs = [entry.found.path for entry in self._entries.values() if not entry.is_stale]
        events = [f"{path}/cgroup.events" for path in jobs] if isinstance(self._finder, UnifiedFinder) else []
        parents = self._finder.parents() if self._finder else []
        return [*parents, *map(Path, (*jobs, *events))]

    def measures(self) -> dict[str, bool]:
        """Tell what the cgroups of jobs can tell here: cpu, cpuset, memory, io, pids, pressure."""
        return self._finder.measures() if self._finder else {}

    def close(self) -> None:
        """Close all jobs."""
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()

    def _open_finder(self) -> FolderFinder | None:
        if self._hierarchies:
            return ControllerFinder(self._hierarchies, self._clock)
        return UnifiedFinder(self.layout.unified, self._clock) if self.layout.unified else None

    def _renew(self, found: list[FoundJob]) -> None:
        before, self._entries = self._entries, {}
        for job in found:
            entry = before.pop(job.relative, None)
            if entry and not entry.is_same(job):
                entry.close()
                entry = None
            if entry is None:
                is_old = self._is_first or job.is_stray
                entry = Entry(job, self._open_place(job), self._owners, self._clock, is_old=is_old)
            self._entries[job.relative] = entry
        for entry in before.values():
            entry.close()
        self._is_first = False

    def _open_place(self, found: FoundJob) -> Place:
        if self._hierarchies:
            return ControllerPlace(self._hierarchies, found.relative, self._tools)
        return UnifiedPlace(found.path, self._tools)

    def _sort(self) -> dict[JobKey, JobCgroup]:
        jobs: dict[JobKey, JobCgroup] = {}
        stale = unresolved = duplicates = 0
        for entry in self._entries.values():
            entry.renew()
            if entry.is_stale:
                stale += 1
            elif entry.job is None:
                unresolved += 1
            elif entry.job.key in jobs:
                duplicates += 1
            else:
                jobs[entry.job.key] = entry.job
        self.health = TreeHealth(
            scopes=self._finder.scopes if self._finder else 0,
            stale=stale,
            unknown=self._finder.folders.unknown if self._finder else 0,
            unresolved=unresolved,
            duplicates=duplicates,
            refused=self._owners.refused + (self._finder.folders.refused if self._finder else 0),
            kept_descriptors=self._budget.taken,
        )
        return jobs
