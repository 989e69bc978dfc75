# SPDX-License-Identifier: Apache-2.0
"""Track the cgroups of all jobs on this node."""

from __future__ import annotations

import enum
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slurmscope.core.errors import SourceError
from slurmscope.node.cgroup.folders import InheritedLimits, SharedState
from slurmscope.node.cgroup.job import FoundJob, JobCgroup, JobEntry, JobFolders
from slurmscope.node.cgroup.kept_files import DescriptorBudget
from slurmscope.node.cgroup.names import ProcessOwners
from slurmscope.node.cgroup.v1 import V1Finder, V1JobFolders
from slurmscope.node.cgroup.v2 import V2Finder, V2JobFolders
from slurmscope.node.job_use import JobKey
from slurmscope.node.kernel_files import HangGuard

STANDARD_ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = frozenset({"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"})
# Controllers that a hierarchy needs for jobs; on a hybrid machine the v2 one usually has no controller at all.
MAIN_CONTROLLERS = frozenset({"cpu", "memory"})
MOST_MOUNT_BYTES = 4 << 20


class LayoutKind(enum.Enum):
    """Name the cgroup version that contains the jobs; the values are those of ``NodeJobs.layout``."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLayout:
    """The trees that may contain jobs: ``unified`` is the v2 tree, ``hierarchies`` the v1 trees by controller.

    On a hybrid machine jobs are in the v1 trees, since Slurm's v2 plugin does not start there.
    """

    kind: LayoutKind
    unified: Path | None = None
    hierarchies: Mapping[str, Path] = field(default_factory=dict)


def in_hierarchy(layout: CgroupLayout, path: Path, controller: str) -> Path | None:
    """Return the same folder in the v1 hierarchy of another controller; None if there is none."""
    wanted = layout.hierarchies.get(controller)
    for root in set(layout.hierarchies.values()):
        if wanted is not None and path.is_relative_to(root):
            return wanted / path.relative_to(root)
    return None


def detect_layout(cgroup_root: Path, procfs_root: Path) -> CgroupLayout:
    """Detect the layout from the mount table or, where it does not list this root, from the names of its folders."""
    hierarchies = dict(_mounted_hierarchies(cgroup_root, procfs_root)) or dict(_named_hierarchies(cgroup_root))
    for unified in (cgroup_root, cgroup_root / "unified"):
        controllers = _read(unified / "cgroup.controllers")
        if controllers is None:
            continue
        # A v2 tree that has the controllers is used, whatever else is mounted.
        if unified == cgroup_root or MAIN_CONTROLLERS.issubset(controllers.split()):
            return CgroupLayout(kind=LayoutKind.V2, unified=unified)
        if hierarchies:
            return CgroupLayout(kind=LayoutKind.HYBRID, unified=unified, hierarchies=hierarchies)
        return CgroupLayout(kind=LayoutKind.UNSUPPORTED, unified=unified)
    if hierarchies:
        return CgroupLayout(kind=LayoutKind.V1, hierarchies=hierarchies)
    return CgroupLayout(kind=LayoutKind.UNSUPPORTED)


def _mounted_hierarchies(cgroup_root: Path, procfs_root: Path) -> Iterator[tuple[str, Path]]:
    # Not "mounts": that is a link to "self", which a copied or a foreign /proc may lack.
    table = _read(procfs_root / "self" / "mounts") or _read(procfs_root / "mounts") or ""
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 4 or fields[2] != "cgroup":
            continue
        folder = _moved(Path(fields[1].replace("\\040", " ")), cgroup_root)
        if folder is not None and folder.is_dir():
            yield from ((controller, folder) for controller in CONTROLLERS.intersection(fields[3].split(",")))


def _moved(mounted: Path, cgroup_root: Path) -> Path | None:
    """Return a mount point below our root, which may be a copy or another mount of the standard one."""
    if mounted.is_relative_to(cgroup_root):
        return mounted
    if mounted.is_relative_to(STANDARD_ROOT):
        return cgroup_root / mounted.relative_to(STANDARD_ROOT)
    return None


def _named_hierarchies(cgroup_root: Path) -> Iterator[tuple[str, Path]]:
    try:
        folders = sorted(path for path in cgroup_root.iterdir() if (path / "cgroup.procs").exists())
    except OSError:
        return
    for folder in folders:
        # Mounted together: "cpu,cpuacct", often with a link for each name.
        yield from ((controller, folder) for controller in CONTROLLERS.intersection(folder.name.split(",")))


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MOST_MOUNT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


class CgroupTree:
    """Find jobs and keep their files open between scans. Not thread-safe."""

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        layout: CgroupLayout,
        procfs_root: Path = Path("/proc"),
        *,
        descriptors: int = 0,
        unneeded: frozenset[str] = frozenset(),
        numa_nodes: Mapping[int, int] = MappingProxyType({}),
        shows_jobs: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        guard: HangGuard | None = None,
    ) -> None:
        """Set how many descriptors may stay open, other files are opened for each read; files never to read,
        the NUMA nodes by core, none if there is only one; and what returns whether processes of jobs are visible.

        ``stale`` is the number of cgroups without a process at the last scan; None if it cannot be known.
        """
        self.layout = layout
        self.stale: int | None = 0
        self._clock = clock
        self._budget = DescriptorBudget(descriptors)
        self._owners = ProcessOwners(procfs_root, guard)
        self._hierarchies = {name: str(path) for name, path in layout.hierarchies.items()}
        self._shared = SharedState(
            budget=self._budget,
            keeps_processes=not self._hierarchies,
            limits=InheritedLimits(clock),
            owners=self._owners,
            clock=clock,
            unneeded=unneeded,
            numa_nodes=numa_nodes,
            shows_jobs=shows_jobs,
        )
        self._finder = self._open_finder()
        self._entries: dict[str, JobEntry] = {}
        self._is_first = True
        self._refusals: dict[str, int] = {}

    def scan(self) -> dict[JobKey, JobCgroup]:
        """Return the current jobs; the same job is the same object at each scan.

        Stale cgroups, which have no process, are left out. Jobs that are gone are closed.
        """
        try:
            found = list(self._finder.find()) if self._finder else []
        except OSError as error:
            raise SourceError(f"cannot list the cgroups of jobs: {error}") from error
        if self._finder and self._finder.folders.refused:
            self._refusals["folder"] = self._finder.folders.refused
        self._update(found)
        return self._identify()

    def watch_paths(self) -> list[Path]:
        """Return the paths to watch: parents of jobs, jobs, and on v2 the files that report their last process."""
        jobs = (entry.watched for entry in self._entries.values() if not entry.is_stale)
        return [*self.watch_roots(), *itertools.chain.from_iterable(jobs)]

    def watch_roots(self) -> list[Path]:
        """Return the parents of jobs."""
        return self._finder.parents() if self._finder else []

    def measures(self) -> dict[str, bool]:
        """Return which measurements are available: cpu, cpuset, memory, io, pids, pressure."""
        return self._finder.measures() if self._finder else {}

    @property
    def scopes(self) -> int:
        """Return the number of slurmd daemons with a folder for jobs, at the last scan."""
        return self._finder.scopes if self._finder else 0

    @property
    def refusals(self) -> Mapping[str, int]:
        """Return how many folders could not be listed since the start."""
        return self._refusals

    def close(self) -> None:
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()

    def _open_finder(self) -> V1Finder | V2Finder | None:
        if self._hierarchies:
            return V1Finder(self._hierarchies, self._clock)
        return V2Finder(self.layout.unified, self._clock) if self.layout.unified else None

    def _update(self, found: list[FoundJob]) -> None:
        before, self._entries = self._entries, {}
        for job in found:
            entry = before.pop(job.relative, None)
            if entry and not entry.is_same(job):
                entry.close()
                entry = None
            if entry is None:
                is_old = self._is_first or job.is_stray
                entry = JobEntry(job, self._open_folders(job), self._owners, self._clock, is_old=is_old)
                entry.watched = self._watched(job)
            self._entries[job.relative] = entry
        for entry in before.values():
            entry.close()
        self._is_first = False

    def _open_folders(self, found: FoundJob) -> JobFolders:
        if self._hierarchies:
            return V1JobFolders(self._hierarchies, found.relative, self._shared)
        return V2JobFolders(found.path, self._shared)

    def _watched(self, found: FoundJob) -> tuple[Path, ...]:
        folder = Path(found.path)
        return (folder, folder / "cgroup.events") if isinstance(self._finder, V2Finder) else (folder,)

    def _identify(self) -> dict[JobKey, JobCgroup]:
        jobs: dict[JobKey, JobCgroup] = {}
        stale = 0
        for entry in self._entries.values():
            entry.refresh()
            if entry.is_stale:
                stale += 1
            elif entry.job is not None:  # else a SLUID whose job ID is not known yet
                jobs.setdefault(entry.job.key, entry.job)
        # In version 2 the kernel counts processes that are not visible, too.
        self.stale = stale if not self._hierarchies or self._shared.shows_jobs() else None
        return jobs
