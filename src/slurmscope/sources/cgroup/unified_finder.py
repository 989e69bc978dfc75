# SPDX-License-Identifier: Apache-2.0
"""Find the folders of jobs in cgroup v2."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmscope.sources.cgroup.find import (
    SEARCH_SECONDS,
    WAIT_SECONDS,
    FoundJob,
    JobParent,
    KnownFolders,
    trusted_links,
)
from slurmscope.sources.cgroup.names import parse_scope

# slurmd in a container has its scope below that of the container, which may be below a pod's.
MOST_LEVELS = 7
MOST_FOLDERS = 5_000


class UnifiedFinder:
    """Find jobs in cgroup v2: in scopes of slurmstepd, wherever they are."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        """Take the root of the tree and a monotonic clock."""
        self.folders = KnownFolders()
        self._root = str(root)
        self._clock = clock
        self._search_at = -1.0
        self._scopes: dict[str, str] = {}

    @property
    def scopes(self) -> int:
        """Return how many slurmd have a place for jobs here."""
        return len(self._scopes)

    def find(self) -> Iterator[FoundJob]:
        """Give every job's folder, in the order of paths."""
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
        """Tell what the cgroups of jobs can tell here."""
        enabled: set[str] = set()
        has_pressure = False
        for scope in map(Path, self._scopes):
            try:
                enabled.update((scope / "cgroup.subtree_control").read_text("ascii").split())
            except (OSError, UnicodeDecodeError):
                continue
            has_pressure = has_pressure or (scope / "cpu.pressure").exists()
        # The CPU time of v2 needs no controller.
        known = {name: name in enabled for name in ("cpuset", "memory", "io", "pids")}
        return {"cpu": bool(self._scopes), **known, "pressure": has_pressure}

    def _search(self) -> None:
        found: dict[str, str] = {}
        waiting = deque([(self._root, 0)])  # the shallow ones first: there may be more than we want to see
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
