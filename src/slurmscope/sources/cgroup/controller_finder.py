# SPDX-License-Identifier: Apache-2.0
"""Find the folders of jobs in cgroup v1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurmscope.sources.cgroup.controller_place import TRACKING_ORDER
from slurmscope.sources.cgroup.find import (
    SEARCH_SECONDS,
    WAIT_SECONDS,
    FoundJob,
    JobParent,
    KnownFolders,
    trusted_links,
)
from slurmscope.sources.cgroup.names import NOT_JOBS, parse_slurm_folder, parse_uid

# Leftovers stay until somebody removes them, and listing every hierarchy costs as much as reading many jobs.
STRAY_SECONDS = 300.0
# How soon we notice that somebody did.
STRAY_LOOK_SECONDS = 5.0


class ControllerFinder:
    """Find jobs in cgroup v1: in the folders of slurmd at the top of each hierarchy.

    At each scan only one hierarchy is listed, that in which processes are tracked. The others are looked at now
    and then, for jobs that are in no better place and for what Slurm left behind.
    """

    def __init__(self, hierarchies: Mapping[str, str], clock: Callable[[], float]) -> None:
        """Take the roots by controller and a monotonic clock."""
        self.folders = KnownFolders()
        self._hierarchies = hierarchies
        self._clock = clock
        self._search_at = self._stray_at = self._stray_look_at = -1.0
        self._tops: dict[str, str] = {}
        self._used: set[str] = set()
        self._strays: list[FoundJob] = []
        self._uid_folders: list[str] = []

    @property
    def scopes(self) -> int:
        """Return how many slurmd have a place for jobs here."""
        return len(self._tops)

    def find(self) -> Iterator[FoundJob]:
        """Give every job's folder, those that are only in a lesser hierarchy last."""
        if self._clock() >= self._search_at:
            self._search()
        self.folders.begin()
        self._uid_folders = []
        found: set[str] = set()
        for name, controller in self._tops.items():
            for job in self._jobs_in(controller, name):
                found.add(job.relative)
                yield job
        self._renew_strays(found)
        yield from (job for job in self._strays if job.relative not in found)

    def parents(self) -> list[Path]:
        """Return the tracking hierarchy's root, the folders of slurmd in it and those of users."""
        tops = {f"{self._hierarchies[controller]}/{name}" for name, controller in self._tops.items()}
        roots = {self._hierarchies[controller] for controller in self._tops.values()}
        return sorted(map(Path, (*roots, *tops, *self._uid_folders)))

    def measures(self) -> dict[str, bool]:
        """Tell what the cgroups of jobs can tell here."""
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

    def _renew_strays(self, found: set[str]) -> None:
        now = self._clock()
        if now >= self._stray_at:
            self._strays = [*self._find_strays(found)]
            self._stray_at = now + STRAY_SECONDS
        elif now >= self._stray_look_at:
            self._strays = [job for job in self._strays if trusted_links(job.path)]
        else:
            return
        self._stray_look_at = now + STRAY_LOOK_SECONDS

    def _find_strays(self, found: set[str]) -> Iterator[FoundJob]:
        unknown = self.folders.unknown
        seen = set(found)
        for name, main in self._tops.items():
            for controller in sorted(self._used - {main}, key=TRACKING_ORDER.index):
                for job in self._jobs_in(controller, name, is_stray=True):
                    if job.relative not in seen:
                        seen.add(job.relative)
                        yield job
        # Each folder counts once, not once in each hierarchy.
        self.folders.unknown = unknown

    def _jobs_in(self, controller: str, top: str, *, is_stray: bool = False) -> Iterator[FoundJob]:
        root = self._hierarchies[controller]
        node_name = parse_slurm_folder(top) or ""
        for user in self.folders.list_folder(f"{root}/{top}"):
            uid = parse_uid(user)
            if uid is None:
                self.folders.unknown += user not in NOT_JOBS
                continue
            path, relative = f"{root}/{top}/{user}", f"{top}/{user}"
            if not is_stray:
                self._uid_folders.append(path)
            yield from self.folders.jobs_in(
                JobParent(path=path, relative=relative, node_name=node_name, uid=uid, is_stray=is_stray)
            )
