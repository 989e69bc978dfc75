# SPDX-License-Identifier: Apache-2.0
"""Remember which folders are below a cgroup folder, and notice cheaply when that changes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from slurmscope.sources.cgroup.files import parse_pids
from slurmscope.sources.cgroup.kept import NOT_THERE, DescriptorBudget, Folder
from slurmscope.sources.cgroup.pace import Pace

# Slurm needs four levels below a job; users and container programs may make more.
MOST_LEVELS = 8
MOST_CHILDREN = 20_000
# How seldom an old folder below a job is looked at for folders that came later.
SLOWEST_SECONDS = 120.0


class NodeTools(Protocol):
    """Hold what all folders of a tree share."""

    @property
    def budget(self) -> DescriptorBudget:
        """Return how many descriptors may stay open."""

    @property
    def keeps_processes(self) -> bool:
        """Tell whether lists of processes may be read from kept descriptors."""

    @property
    def clock(self) -> Callable[[], float]:
        """Return a monotonic clock."""


class CgroupFolder:
    """Be one folder of a tree of cgroups.

    Listing a folder costs ten times as much as looking at its link count, which tells how many folders are below, and
    even that is not free: it is done for the top at each pass and for the rest at a slower pace, since Slurm makes the
    folders of a step all at once. That a folder is gone is noticed for nothing when a file in it is read.
    """

    __slots__ = ("_children", "_links", "_links_now", "_pace", "_procs", "_tools", "folder", "name")

    def __init__(self, path: str, tools: NodeTools) -> None:
        """Look at the folder; those below are found when they are asked for."""
        self.name = path.rpartition("/")[2]
        self.folder = Folder(path, tools.budget, is_spare=True)
        # A kept descriptor of v1 gives the list of its last reading again for a second, and for ever if it is read more
        # often than that.
        open_procs = self.folder.open_file if tools.keeps_processes else self.folder.fresh_file
        self._procs = open_procs("cgroup.procs")
        self._tools = tools
        self._pace = Pace(tools.clock, path, SLOWEST_SECONDS)
        self._children: dict[str, CgroupFolder] = {}
        self._links = 0
        self._links_now = 0

    def look(self) -> bool:
        """Tell whether the folder is still there."""
        self._links_now = self.folder.count_links()
        return self._links_now > 0

    def is_settled(self) -> bool:
        """Tell whether the folder is there and has as many folders below it as when they were listed."""
        return self.look() and self._links_now == self._links and self._links_now >= 2

    def children(self) -> list[CgroupFolder]:
        """Return the folders right below, in the order of their names."""
        if self._pace.is_due():
            self.look()
        # Where links are not counted (1, as on btrfs) only listing tells.
        is_known = self._links_now == self._links and self._links_now >= 2
        if not is_known or any(child.folder.is_gone for child in self._children.values()):
            self._list()
        return list(self._children.values())

    def child(self, name: str) -> CgroupFolder | None:
        """Return the folder of this name right below."""
        return next((child for child in self.children() if child.name == name), None)

    def walk(self, levels: int = MOST_LEVELS) -> Iterator[CgroupFolder]:
        """Give this folder and all below it, from the top down."""
        yield self
        if levels > 0:
            for child in self.children():
                yield from child.walk(levels - 1)

    def pids(self) -> list[int]:
        """Return the processes that are in this very folder."""
        return parse_pids(self._procs.read_list())

    def release(self) -> None:
        """Close all descriptors, here and below; everything stays readable."""
        self.folder.release()
        for child in self._children.values():
            child.release()

    def close(self) -> None:
        """Close all descriptors for good, here and below."""
        self.folder.close()
        for child in self._children.values():
            child.close()

    def _list(self) -> None:
        try:
            names = sorted(subfolders(self.folder.path))
        except OSError:  # short of descriptors, or closed to us: what was known is better than nothing
            return
        before, self._children = self._children, {}
        for name in names:
            child = before.pop(name, None)
            if child is None or not child.look():
                if child:
                    child.close()
                child = CgroupFolder(f"{self.folder.path}/{name}", self._tools)
            self._children[name] = child
        for child in before.values():
            child.close()
        self._links = self._links_now


def subfolders(path: str) -> dict[str, int]:
    """List the folders right below one with their inodes; a folder that is gone has none."""
    try:
        with os.scandir(path) as entries:
            folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
            return {entry.name: entry.inode() for entry in itertools.islice(folders, MOST_CHILDREN)}
    except OSError as error:
        if error.errno in NOT_THERE:
            return {}
        raise
