# SPDX-License-Identifier: Apache-2.0
"""Say how the folders of jobs are found without walking the whole tree each time.

The folders that hold jobs are searched for now and then, and remembered; only they are listed at each scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurmscope.sources.cgroup.kept import PASSING
from slurmscope.sources.cgroup.names import NOT_JOBS, JobName, parse_job
from slurmscope.sources.cgroup.nodes import subfolders

SEARCH_SECONDS = 60.0
# While no slurmd has a place for jobs here: it may be starting just now.
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """Hold a job's folder; ``relative`` is its path below the root of its hierarchy, the same in all of v1.

    ``is_stray`` marks one that is not in the hierarchy where its processes are tracked: mostly a leftover.
    """

    name: JobName
    path: str
    relative: str
    inode: int
    node_name: str = ""
    uid: int | None = None
    is_stray: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParent:
    """Hold a folder in which jobs are; the fields mean what they mean for a job."""

    path: str
    relative: str
    node_name: str
    uid: int | None = None
    is_stray: bool = False


class KnownFolders:
    """List job folders and remember those that are known, which is most of them at each scan."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.unknown = 0
        self.refused = 0
        self._known: dict[str, FoundJob] = {}
        self._seen: dict[str, FoundJob] = {}

    def begin(self) -> None:
        """Begin a scan: what it does not come across is forgotten with the next one."""
        self.unknown = 0
        self._known, self._seen = self._seen, {}

    def jobs_in(self, parent: JobParent) -> Iterator[FoundJob]:
        """Give the jobs in a folder; what is neither a job nor a known neighbour is counted."""
        for name, inode in self.list_folder(parent.path).items():
            path = f"{parent.path}/{name}"
            job = self._known.get(path)
            if job is None or job.inode != inode or job.is_stray != parent.is_stray:
                job = self._recognise(name, path, inode, parent)
            if job:
                self._seen[path] = job
                yield job

    def list_folder(self, path: str) -> dict[str, int]:
        """List a folder; one that is closed to us is counted, but a lack of descriptors must not look like no jobs."""
        try:
            return subfolders(path)
        except OSError as error:
            if error.errno in PASSING:
                raise
            self.refused += 1
            return {}

    def _recognise(self, name: str, path: str, inode: int, parent: JobParent) -> FoundJob | None:
        job = parse_job(name)
        if job is None:
            self.unknown += name not in NOT_JOBS
            return None
        return FoundJob(
            name=job,
            path=path,
            relative=f"{parent.relative}/{name}",
            inode=inode,
            node_name=parent.node_name,
            uid=parent.uid,
            is_stray=parent.is_stray,
        )


class FolderFinder(Protocol):
    """Find the folders of jobs in one layout."""

    folders: KnownFolders

    def find(self) -> Iterator[FoundJob]:
        """Give every job's folder."""

    def parents(self) -> list[Path]:
        """Return the folders in which job folders, or such folders themselves, appear and vanish."""

    def measures(self) -> dict[str, bool]:
        """Tell what the cgroups of jobs can tell here: cpu, cpuset, memory, io, pids, pressure."""

    @property
    def scopes(self) -> int:
        """Return how many slurmd have a place for jobs here."""


def trusted_links(path: str) -> int:
    """Return the link count of a folder of root's or our own; 0 for others.

    Users may own parts of the tree, and call a folder there what they like.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_nlink if found.st_uid in (0, os.geteuid()) else 0
