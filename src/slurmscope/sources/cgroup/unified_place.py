# SPDX-License-Identifier: Apache-2.0
"""Know where the parts of one job are in cgroup v2."""

from __future__ import annotations

from slurmscope.sources.cgroup.files import count_of
from slurmscope.sources.cgroup.kept import Folder
from slurmscope.sources.cgroup.members import Members, has_members, list_members, pick_by_folder
from slurmscope.sources.cgroup.names import USER_FOLDER
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.places import CgroupReader, TreeTools
from slurmscope.sources.cgroup.unified_group import UnifiedGroup


class UnifiedPlace:
    """Be the home of one job in cgroup v2: one folder."""

    def __init__(self, path: str, tools: TreeTools) -> None:
        """Take the job's folder."""
        self._path = path
        self._tools = tools
        self._node = CgroupFolder(path, tools)
        self._events = self._node.folder.open_file("cgroup.events")

    def open_group(self, relative: str, *, is_spare: bool) -> CgroupReader:
        """Return the group in a folder below the job's; the empty path is the job itself."""
        folder = Folder(f"{self._path}/{relative}".rstrip("/"), self._tools.budget, is_spare=is_spare)
        return UnifiedGroup(folder, self._path, self._tools)

    def steps(self) -> list[CgroupFolder]:
        """Return what is right below the job."""
        return self._node.children() if self._node.look() else []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        """Return the path from a step to its tasks, and what is there."""
        user = step.child(USER_FOLDER)
        return f"{USER_FOLDER}/", user.children() if user else []

    def members(self) -> Members:
        """List the processes."""
        return list_members(self._node, pick_by_folder)

    def has_processes(self) -> bool:
        """Tell whether there is any process; the kernel counts those of all folders below."""
        populated = count_of(self._events.read(), b"populated")
        return has_members(self._node) if populated is None else populated > 0

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""
        self._node.release()

    def close(self) -> None:
        """Close all descriptors for good."""
        self._node.close()
