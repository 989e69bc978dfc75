# SPDX-License-Identifier: Apache-2.0
"""Find the folders of jobs, and of their steps and tasks, in cgroup v2."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmscope.sources.cgroup.files import count_of, parse_pressure
from slurmscope.sources.cgroup.find import (
    SEARCH_SECONDS,
    WAIT_SECONDS,
    FoundJob,
    JobParent,
    KnownFolders,
    trusted_links,
)
from slurmscope.sources.cgroup.folders import CgroupFolder, Members, has_members, list_members, pick_by_folder
from slurmscope.sources.cgroup.job import CgroupReader
from slurmscope.sources.cgroup.kept_files import PAGE, Folder
from slurmscope.sources.cgroup.names import USER_FOLDER, parse_scope
from slurmscope.sources.cgroup.shared import SharedState
from slurmscope.sources.cgroup.v2_group import V2Group

# slurmd in a container has its scope below that of the container, which may be below a pod's.
MOST_LEVELS = 7
MOST_FOLDERS = 5_000


class V2Finder:
    """Find jobs in cgroup v2: in scopes of slurmstepd, anywhere in the tree."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        """Set the root of the tree and a monotonic clock."""
        self.folders = KnownFolders()
        self._root = str(root)
        self._clock = clock
        self._search_at = -1.0
        self._scopes: dict[str, str] = {}

    @property
    def scopes(self) -> int:
        """Return the number of slurmd daemons with a folder for jobs."""
        return len(self._scopes)

    def find(self) -> Iterator[FoundJob]:
        """Yield the folder of every job, ordered by path."""
        if self._clock() >= self._search_at:
            self._search()
        self.folders.begin()
        for scope, node_name in self._scopes.items():
            jobs = list(self.folders.jobs_in(self._parent(scope, node_name)))
            if not jobs and not trusted_links(scope):  # slurmd has left it
                self._search_at = -1.0
            yield from jobs

    def parents(self) -> list[Path]:
        """Return the scopes and the slices they are in."""
        return sorted({path for scope in self._scopes for path in (Path(scope), Path(scope).parent)})

    def measures(self) -> dict[str, bool]:
        """Return which measurements are available."""
        enabled: set[str] = set()
        has_pressure = False
        for scope in map(Path, self._scopes):
            try:
                enabled.update((scope / "cgroup.subtree_control").read_text("ascii").split())
            except (OSError, UnicodeDecodeError):
                continue
            has_pressure = has_pressure or _has_pressure(scope / "cpu.pressure")
        # The CPU time of v2 needs no controller.
        known = {name: name in enabled for name in ("cpuset", "memory", "io", "pids")}
        return {"cpu": bool(self._scopes), **known, "pressure": has_pressure}

    def _search(self) -> None:
        found: dict[str, str] = {}
        waiting = deque([(self._root, 0)])  # breadth first: the tree may have more folders than the limit
        for _ in range(MOST_FOLDERS):
            if not waiting:
                break
            path, level = waiting.popleft()
            for name in self.folders.list_folder(path):
                below = f"{path}/{name}"
                node_name = parse_scope(name)
                links = trusted_links(below)
                if node_name is not None and links:
                    found[below] = node_name
                elif links not in (0, 2) and level < MOST_LEVELS:  # 2: nothing is below
                    waiting.append((below, level + 1))
        self._scopes = dict(sorted(found.items()))
        self._search_at = self._clock() + (SEARCH_SECONDS if found else WAIT_SECONDS)

    def _parent(self, scope: str, node_name: str) -> JobParent:
        return JobParent(path=scope, relative=scope.removeprefix(f"{self._root}/"), node_name=node_name)


def _has_pressure(file: Path) -> bool:
    """Return whether the kernel measures pressure: with psi=0 the file may exist, but reading it fails."""
    try:
        with file.open("rb", buffering=0) as opened:
            return bool(parse_pressure(opened.read(PAGE) or b""))
    except OSError:
        return False


class V2JobFolders:
    """Access the folder of one job in cgroup v2."""

    def __init__(self, path: str, shared: SharedState) -> None:
        """Set the job's folder."""
        self._path = path
        self._shared = shared
        self._cgroup = CgroupFolder(path, shared)
        self._events = self._cgroup.folder.open_file("cgroup.events")

    def open_group(self, relative: str, *, is_optional: bool) -> CgroupReader:
        """Return the reader of a folder below the job's; the empty path is the job itself."""
        folder = Folder(f"{self._path}/{relative}".rstrip("/"), self._shared.budget, is_optional=is_optional)
        return V2Group(folder, self._path, self._shared)

    def steps(self) -> list[CgroupFolder]:
        """Return the folders directly below the job."""
        return self._cgroup.children() if self._cgroup.refresh() else []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        """Return the path from a step to its tasks, and the folders there."""
        user = step.child(USER_FOLDER)
        return f"{USER_FOLDER}/", user.children() if user else []

    def members(self) -> Members:
        """Return the processes."""
        return list_members(self._cgroup, pick_by_folder)

    def has_processes(self) -> bool:
        """Return whether there is any process; the kernel counts those of all folders below."""
        populated = count_of(self._events.read(), b"populated")
        return has_members(self._cgroup) if populated is None else populated > 0

    def release(self) -> None:
        """Close all descriptors; the files stay readable."""
        self._cgroup.release()

    def close(self) -> None:
        """Close all descriptors permanently."""
        self._cgroup.close()
