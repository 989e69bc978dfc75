# SPDX-License-Identifier: Apache-2.0
"""Find the folders of jobs, and of their steps and tasks, in cgroup v1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from slurmscope.node.cgroup.folders import (
    CgroupFolder,
    Members,
    RereadTimer,
    SharedState,
    has_members,
    list_members,
    pick_by_level,
    pick_by_title,
)
from slurmscope.node.cgroup.job import (
    SEARCH_SECONDS,
    WAIT_SECONDS,
    CgroupReader,
    FoundJob,
    JobParent,
    KnownFolders,
    trusted_links,
)
from slurmscope.node.cgroup.names import parse_slurm_folder, parse_uid
from slurmscope.node.cgroup.v1_group import V1Group

# The hierarchy of proctrack first; then those that Slurm may use without it.
TRACKING_ORDER = ("freezer", "cpuacct", "memory", "devices", "cpuset", "cpu", "blkio", "pids")
# Only the hierarchies of jobacct_gather and devices have folders for tasks.
STRUCTURE_ORDER = ("cpuacct", "memory", "devices", "cpuset", "freezer", "cpu", "blkio", "pids")
# Leftovers stay until an administrator removes them, and listing every hierarchy costs as much as reading many jobs.
STRAY_SECONDS = 300.0
# How soon their removal is noticed.
STRAY_CHECK_SECONDS = 5.0


class V1Finder:
    """Find jobs in cgroup v1: in the folders of slurmd at the top of each hierarchy.

    Each scan lists only the hierarchy in which processes are tracked. The others are listed every five minutes, for
    jobs that are not in the tracking hierarchy and for leftovers of Slurm.
    """

    def __init__(self, hierarchies: Mapping[str, str], clock: Callable[[], float]) -> None:
        """Set the roots by controller and a monotonic clock."""
        self.folders = KnownFolders()
        self._hierarchies = hierarchies
        self._clock = clock
        self._search_at = self._stray_at = self._stray_check_at = -1.0
        self._tops: dict[str, str] = {}
        self._used: set[str] = set()
        self._strays: list[FoundJob] = []
        self._uid_folders: list[str] = []

    @property
    def scopes(self) -> int:
        return len(self._tops)

    def find(self) -> Iterator[FoundJob]:
        """Yield the folder of every job, those that are not in the tracking hierarchy last."""
        if self._clock() >= self._search_at:
            self._search()
        self.folders.begin()
        self._uid_folders = []
        found: set[str] = set()
        for name, controller in self._tops.items():
            for job in self._jobs_in(controller, name):
                found.add(job.relative)
                yield job
        self._update_strays(found)
        yield from (job for job in self._strays if job.relative not in found)

    def parents(self) -> list[Path]:
        """Return the tracking hierarchy's root, the folders of slurmd in it and those of users."""
        tops = {f"{self._hierarchies[controller]}/{name}" for name, controller in self._tops.items()}
        roots = {self._hierarchies[controller] for controller in self._tops.values()}
        return sorted(map(Path, (*roots, *tops, *self._uid_folders)))

    def measures(self) -> dict[str, bool]:
        names = {"cpu": "cpuacct", "cpuset": "cpuset", "memory": "memory", "io": "blkio", "pids": "pids"}
        return {name: controller in self._used for name, controller in names.items()} | {"pressure": False}

    def _search(self) -> None:
        self._tops, self._used = {}, set()
        for controller in TRACKING_ORDER:
            root = self._hierarchies.get(controller)
            for name in sorted(self.folders.list_folder(root)) if root else ():
                if parse_slurm_folder(name) is not None and trusted_links(f"{root}/{name}"):
                    self._used.add(controller)
                    self._tops.setdefault(name, controller)
        self._search_at = self._clock() + (SEARCH_SECONDS if self._tops else WAIT_SECONDS)

    def _update_strays(self, found: set[str]) -> None:
        now = self._clock()
        if now >= self._stray_at:
            self._strays = [*self._find_strays(found)]
            self._stray_at = now + STRAY_SECONDS
        elif now >= self._stray_check_at:
            self._strays = [job for job in self._strays if trusted_links(job.path)]
        else:
            return
        self._stray_check_at = now + STRAY_CHECK_SECONDS

    def _find_strays(self, found: set[str]) -> Iterator[FoundJob]:
        seen = set(found)
        for name, main in self._tops.items():
            for controller in sorted(self._used - {main}, key=TRACKING_ORDER.index):
                for job in self._jobs_in(controller, name, is_stray=True):
                    if job.relative not in seen:
                        seen.add(job.relative)
                        yield job

    def _jobs_in(self, controller: str, top: str, *, is_stray: bool = False) -> Iterator[FoundJob]:
        root = self._hierarchies[controller]
        node_name = parse_slurm_folder(top) or ""
        for user in self.folders.list_folder(f"{root}/{top}"):
            uid = parse_uid(user)
            if uid is None:
                continue
            path, relative = f"{root}/{top}/{user}", f"{top}/{user}"
            if not is_stray:
                self._uid_folders.append(path)
            yield from self.folders.jobs_in(
                JobParent(path=path, relative=relative, node_name=node_name, uid=uid, is_stray=is_stray)
            )


class V1JobFolders:
    """Access the folders of one job in cgroup v1: one in each hierarchy that Slurm uses."""

    def __init__(self, hierarchies: Mapping[str, str], relative: str, shared: SharedState) -> None:
        """Set the roots by controller and the path of the job below each of them."""
        self._hierarchies = hierarchies
        self._relative = relative
        self._shared = shared
        self._tracking = _BestHierarchy(TRACKING_ORDER, hierarchies, relative, shared)
        self._structure = _BestHierarchy(STRUCTURE_ORDER, hierarchies, relative, shared)

    def open_group(self, relative: str, *, is_optional: bool) -> CgroupReader:
        return V1Group(self._hierarchies, self._relative, relative, self._shared, is_optional=is_optional)

    def steps(self) -> list[CgroupFolder]:
        cgroup = self._structure.cgroup()
        return cgroup.children() if cgroup and cgroup.refresh() else []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        return "", step.children()

    def members(self) -> Members:
        cgroup = self._tracking.cgroup()
        if cgroup is None:
            return Members()
        is_frozen = self._tracking.controller == "freezer"
        pick = pick_by_level if is_frozen else pick_by_title(self._shared.owners)
        return list_members(cgroup, pick, self._shared.shows_jobs)

    def has_processes(self) -> bool:
        cgroup = self._tracking.cgroup()
        return cgroup is not None and has_members(cgroup, self._shared.shows_jobs)

    def release(self) -> None:
        self._tracking.release()
        self._structure.release()

    def close(self) -> None:
        self._tracking.close()
        self._structure.close()


class _BestHierarchy:
    """Choose the first hierarchy in which a job has a folder; a young job gets them one after the other."""

    def __init__(
        self, order: Sequence[str], hierarchies: Mapping[str, str], relative: str, shared: SharedState
    ) -> None:
        self.controller = ""
        self._order = [controller for controller in order if controller in hierarchies]
        self._hierarchies = hierarchies
        self._relative = relative
        self._shared = shared
        self._timer = RereadTimer(shared.clock, relative)
        self._cgroup: CgroupFolder | None = None
        self._is_closed = False

    def cgroup(self) -> CgroupFolder | None:
        if not self._is_closed and self._timer.is_due():
            self._choose()
        return self._cgroup

    def release(self) -> None:
        if self._cgroup:
            self._cgroup.release()

    def close(self) -> None:
        self._is_closed = True
        if self._cgroup:
            self._cgroup.close()

    def _choose(self) -> None:
        for controller in self._order:
            if controller == self.controller:
                return
            cgroup = CgroupFolder(f"{self._hierarchies[controller]}/{self._relative}", self._shared)
            if cgroup.refresh():
                if self._cgroup:
                    self._cgroup.close()
                self.controller, self._cgroup = controller, cgroup
                return
