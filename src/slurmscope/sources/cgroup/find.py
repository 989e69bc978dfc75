# SPDX-License-Identifier: Apache-2.0
"""List the folders of jobs without walking the whole tree at each scan.

The folders that contain jobs are searched for once a minute and cached; a scan lists only those.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurmscope.log import fields
from slurmscope.sources.cgroup.folders import subfolders
from slurmscope.sources.cgroup.kept_files import TEMPORARY_ERRORS
from slurmscope.sources.cgroup.names import NOT_JOBS, JobName, parse_job

logger = logging.getLogger(__name__)

SEARCH_SECONDS = 60.0
# While no slurmd has a folder for jobs: it may be starting.
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """Hold a job's folder; ``relative`` is its path below the root of its hierarchy, the same in all of v1.

    ``is_stray`` marks one that is not in the hierarchy where its processes are tracked: usually a leftover.
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
    """Hold a folder that contains jobs; the fields have the same meaning as those of a job."""

    path: str
    relative: str
    node_name: str
    uid: int | None = None
    is_stray: bool = False


class KnownFolders:
    """List job folders and cache them: at most scans, most of them are already known."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self.unknown = 0
        self.refused = 0
        self._known: dict[str, FoundJob] = {}
        self._seen: dict[str, FoundJob] = {}

    def begin(self) -> None:
        """Begin a scan; folders that it does not find are dropped from the cache at the next one."""
        self.unknown = 0
        self._known, self._seen = self._seen, {}

    def jobs_in(self, parent: JobParent) -> Iterator[FoundJob]:
        """Yield the jobs in a folder; count folders that are neither a job nor one of Slurm's own."""
        for name, inode in self.list_folder(parent.path).items():
            path = f"{parent.path}/{name}"
            job = self._known.get(path)
            if job is None or job.inode != inode or job.is_stray != parent.is_stray:
                job = self._parse(name, path, inode, parent)
            if job:
                self._seen[path] = job
                yield job

    def list_folder(self, path: str) -> dict[str, int]:
        """List a folder; count one that we may not read, but raise when descriptors run out: that is not "no jobs"."""
        try:
            return subfolders(path)
        except OSError as error:
            if error.errno in TEMPORARY_ERRORS:
                raise
            if not self.refused:
                logger.warning("cannot list a folder of cgroups", extra=fields(path=path, error=error.strerror))
            self.refused += 1
            return {}

    def _parse(self, name: str, path: str, inode: int, parent: JobParent) -> FoundJob | None:
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
        """Yield the folder of every job."""

    def parents(self) -> list[Path]:
        """Return the folders in which job folders, or parents of job folders, appear and vanish."""

    def measures(self) -> dict[str, bool]:
        """Return which measurements are available: cpu, cpuset, memory, io, pids, pressure."""

    @property
    def scopes(self) -> int:
        """Return the number of slurmd daemons with a folder for jobs."""


def trusted_links(path: str) -> int:
    """Return the link count of a folder that root or we own; 0 for others.

    Users may own parts of the tree and give folders there any name.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_nlink if found.st_uid in (0, os.geteuid()) else 0
