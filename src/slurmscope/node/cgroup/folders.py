# SPDX-License-Identifier: Apache-2.0
"""Follow the folders of a job and list the processes in them."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.node.cgroup.files import parse_cores, parse_limit, parse_pids
from slurmscope.node.cgroup.kept_files import MISSING_ERRORS, PAGE, DescriptorBudget, Folder
from slurmscope.node.cgroup.names import STEPD_FOLDER, ProcessOwners
from slurmscope.node.kernel_files import read_bytes

LIFETIME_SECONDS = 60.0
MOST_NUMA_NODES = 64
NUMA_FILE = "memory.numa_stat"


class InheritedLimits:
    """Cache the limits of folders above jobs, which all jobs below them inherit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, int | None] = {}
        self._expires_at = 0.0

    def effective(self, own: bytes, folder: str, top: str, name: str) -> int | None:
        """Return the limit in force for a folder whose own file content is known; None where there is none.

        ``top`` is the folder of its job. Without an own file the controller is off, and a limit further up does not
        apply to this cgroup. The root of a hierarchy has no such file (v2), or no limit in it (v1).
        """
        limit = parse_limit(own) if own else None
        # A young job's limits are still being written: they are read again for its steps and tasks.
        while own and limit is None and len(folder) > len(top):
            folder = folder.rpartition("/")[0]
            limit = parse_limit(_read(f"{folder}/{name}"))
        return self._limit_above(top, name) if own and limit is None else limit

    def _limit_above(self, folder: str, name: str) -> int | None:
        """Return the nearest limit above a folder, from the cache where possible."""
        now = self._clock()
        if now >= self._expires_at:
            self._known.clear()
            self._expires_at = now + LIFETIME_SECONDS
        parent = folder.rpartition("/")[0]
        path = f"{parent}/{name}"
        if path not in self._known:
            text = _read(path)
            limit = parse_limit(text)
            self._known[path] = self._limit_above(parent, name) if text and limit is None else limit
        return self._known[path]


def _read(path: str) -> bytes:
    return read_bytes(Path(path), PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """What all jobs of a tree share.

    ``keeps_processes`` allows open descriptors of cgroup.procs (v2 only); ``unneeded`` files are never read.
    ``numa_nodes`` are by core, empty if there is only one. ``shows_jobs`` returns whether
    processes of jobs are visible.
    """

    budget: DescriptorBudget
    keeps_processes: bool
    limits: InheritedLimits
    owners: ProcessOwners
    clock: Callable[[], float]
    unneeded: frozenset[str] = frozenset()
    numa_nodes: Mapping[int, int] = field(default_factory=dict)
    shows_jobs: Callable[[], bool] = lambda: True

    @property
    def has_numa(self) -> bool:
        """Return whether memory is read by NUMA node."""
        return bool(self.numa_nodes) and NUMA_FILE not in self.unneeded

    def split_memory(self, bytes_of: Mapping[int, int], cores: Collection[int] | None) -> dict[str, int]:
        """Split the memory on NUMA nodes into that of the nodes of some cores (local) and the rest (remote)."""
        near = {self.numa_nodes.get(core, -1) for core in cores or ()}
        if not bytes_of or not near or -1 in near:
            return {}
        local = sum(size for node, size in bytes_of.items() if node in near)
        return {"local": local, "remote": sum(bytes_of.values()) - local}


def read_numa_nodes(sysfs: Path) -> dict[int, int]:
    """Read the NUMA nodes by core; none if there is only one."""
    nodes: dict[int, int] = {}
    for number in range(MOST_NUMA_NODES):
        cores = parse_cores(_read(f"{sysfs}/devices/system/node/node{number}/cpulist"))
        nodes.update(dict.fromkeys(cores or (), number))
    return nodes if len(set(nodes.values())) > 1 else {}


# Slurm needs four levels below a job; users and container runtimes may create more.
MOST_LEVELS = 8
MOST_CHILDREN = 20_000
# Longest interval between two checks of an old folder for new subfolders.
FOLDER_SECONDS = 120.0
# Shortest and longest interval between two reads of a file that seldom changes.
FIRST_SECONDS = 0.02
SLOWEST_SECONDS = 60.0


class CgroupFolder:
    """Track one cgroup folder and its subfolders.

    Listing a folder costs ten times as much as reading its link count, which is the number of subfolders plus 2, and
    even that is not free: it is done for the top at each pass and for the rest less often, since Slurm creates the
    folders of a step all at once. That a folder is gone is noticed at no extra cost when a file in it is read.
    """

    __slots__ = ("_children", "_links", "_links_now", "_procs", "_shared", "_timer", "folder", "name")

    def __init__(self, path: str, shared: SharedState) -> None:
        """Open the folder; subfolders are listed when they are needed."""
        self.name = path.rpartition("/")[2]
        self.folder = Folder(path, shared.budget, is_optional=True)
        # On v1, an open descriptor returns the list of its last read for a second, and for ever if it is read more
        # often than that.
        open_procs = self.folder.open_file if shared.keeps_processes else self.folder.fresh_file
        self._procs = open_procs("cgroup.procs")
        self._shared = shared
        self._timer = RereadTimer(shared.clock, path, FOLDER_SECONDS)
        self._children: dict[str, CgroupFolder] = {}
        self._links = 0
        self._links_now = 0

    def refresh(self) -> bool:
        """Read the link count; return whether the folder still exists."""
        self._links_now = self.folder.count_links()
        return self._links_now > 0

    def look_again(self) -> None:
        """Read the link counts here and below now, whenever they were due."""
        self.refresh()
        for child in self._children.values():
            child.look_again()

    def is_settled(self) -> bool:
        """Return whether the folder exists and has as many subfolders as when they were listed."""
        return self.refresh() and self._links_now == self._links and self._links_now >= 2

    def children(self) -> list[CgroupFolder]:
        """Return the subfolders, ordered by name."""
        if self._timer.is_due():
            self.refresh()
        # Where links are not counted (1, as on btrfs) the folder has to be listed.
        is_known = self._links_now == self._links and self._links_now >= 2
        if not is_known or any(child.folder.is_gone for child in self._children.values()):
            self._list()
        return list(self._children.values())

    def child(self, name: str) -> CgroupFolder | None:
        return next((child for child in self.children() if child.name == name), None)

    def walk(self, levels: int = MOST_LEVELS) -> Iterator[CgroupFolder]:
        """Yield this folder and all below it, from the top down."""
        yield self
        if levels > 0:
            for child in self.children():
                yield from child.walk(levels - 1)

    def pids(self) -> list[int]:
        """Return the processes in this folder, without those in subfolders."""
        return parse_pids(self._procs.read_list())

    def is_unlisted(self) -> bool:
        """Return whether the processes could not be listed this time, such as without descriptors left."""
        return self._procs.name in self.folder.unreadable and not self._procs.is_skipped

    def release(self) -> None:
        """Close all descriptors, here and below; the files stay readable."""
        self.folder.release()
        for child in self._children.values():
            child.release()

    def close(self) -> None:
        """Close all descriptors permanently, here and below."""
        self.folder.close()
        for child in self._children.values():
            child.close()

    def _list(self) -> None:
        try:
            names = sorted(subfolders(self.folder.path))
        except OSError:  # no descriptors left, or no permission: keep the subfolders known so far
            return
        before, self._children = self._children, {}
        for name in names:
            child = before.pop(name, None)
            if child is None or not child.refresh():
                if child:
                    child.close()
                child = CgroupFolder(f"{self.folder.path}/{name}", self._shared)
            self._children[name] = child
        for child in before.values():
            child.close()
        self._links = self._links_now


def subfolders(path: str) -> dict[str, int]:
    """Return the subfolders of a path and their inodes; none when the folder is gone."""
    try:
        with os.scandir(path) as entries:
            folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
            return {entry.name: entry.inode() for entry in itertools.islice(folders, MOST_CHILDREN)}
    except OSError as error:
        if error.errno in MISSING_ERRORS:
            return {}
        raise


class RereadTimer:
    """Decide when to read a seldom-changing file again: at once, then less and less often.

    A cgroup gets its limits a moment after it is created, so files of a new one are soon read again. The name spreads
    the due times of many cgroups, so that they do not all fall into the same scrape.
    """

    __slots__ = ("_clock", "_due_at", "_since", "_slowest_seconds", "_spread")

    def __init__(self, clock: Callable[[], float], name: str, slowest_seconds: float = SLOWEST_SECONDS) -> None:
        """Set a monotonic clock; the age counts from the first call of ``is_due``."""
        self._clock = clock
        self._slowest_seconds = slowest_seconds
        self._spread = 0.75 + zlib.crc32(name.encode("utf-8", "replace")) % 512 / 1024
        self._since: float | None = None
        self._due_at = 0.0

    def is_due(self) -> bool:
        """Return whether it is time to read again; if so, set the next time."""
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now < self._due_at:
            return False
        wait = min(max(now - self._since, FIRST_SECONDS), self._slowest_seconds)
        self._due_at = now + wait * self._spread
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The process ids of a job: slurmstepd, one per step, and all others, unless some could not be listed now."""

    stepd: tuple[int, ...] = ()
    user: tuple[int, ...] = ()
    is_complete: bool = True


# Takes the path below the job's folder and the processes there; returns those that are slurmstepd.
PickStepd = Callable[[str, list[int]], list[int]]


def list_members(top: CgroupFolder, pick: PickStepd, shows_jobs: Callable[[], bool]) -> Members:
    """Return the processes of a job's folder and of all below it; not complete if they would not be visible."""
    stepd: list[int] = []
    user: list[int] = []
    is_complete = True
    for cgroup, pids in _read_pids(top):
        is_complete = is_complete and not cgroup.is_unlisted()
        picked = pick(cgroup.folder.path[len(top.folder.path) :], pids)
        stepd += picked
        user += [pid for pid in pids if pid not in picked] if picked else pids
    is_complete = is_complete and bool(stepd or user or shows_jobs())
    return Members(stepd=tuple(sorted(stepd)), user=tuple(sorted(user)), is_complete=is_complete)


def has_members(top: CgroupFolder, shows_jobs: Callable[[], bool]) -> bool:
    """Return whether any process is in a job's folder or below; True if that cannot be read, or would not be visible.

    A job that we may not read is not a leftover: its unreadable files are reported.
    """
    # slurmstepd is usually in the top folder, and then no other has to be read.
    if top.pids() or any(pids for _, pids in _read_pids(top)):
        return True
    return bool(top.folder.unreadable) or not shows_jobs()


def _read_pids(top: CgroupFolder) -> list[tuple[CgroupFolder, list[int]]]:
    """Return the folders with processes, and those in which something cannot be read."""
    for _ in range(2):
        if not top.refresh():
            return []
        cgroups = list(top.walk())
        found = [(cgroup, pids) for cgroup in cgroups if (pids := cgroup.pids()) or cgroup.folder.unreadable]
        # A step that ended meanwhile may have been followed by another: read once more.
        if not any(cgroup.folder.is_gone for cgroup in cgroups):
            break
    return found


def pick_by_folder(relative: str, pids: list[int]) -> list[int]:
    """Return slurmstepd in cgroup v2, where each step has a folder for it."""
    parts = relative.split("/")
    return pids if len(parts) > 2 and parts[2] == STEPD_FOLDER else []


def pick_by_level(relative: str, pids: list[int]) -> list[int]:
    """Return slurmstepd in the v1 freezer, where it stays above its step to freeze and thaw it."""
    return [] if relative else pids


def pick_by_title(owners: ProcessOwners) -> PickStepd:
    """Return a picker for the other v1 hierarchies, where slurmstepd shares the folder of its step with user processes.

    Folders of tasks contain user processes only.
    """

    def pick(relative: str, pids: list[int]) -> list[int]:
        stepd = owners.find_stepd(pids) if relative.count("/") <= 1 else None
        return [] if stepd is None else [stepd]

    return pick
