# SPDX-License-Identifier: Apache-2.0
"""Know where the parts of one job are in cgroup v1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmscope.sources.cgroup.controller_group import ControllerGroup
from slurmscope.sources.cgroup.members import Members, has_members, list_members, pick_by_level, pick_by_title
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.pace import Pace
from slurmscope.sources.cgroup.places import CgroupReader, TreeTools

# Where proctrack keeps a job first of all; then the hierarchies that Slurm may use without it.
TRACKING_ORDER = ("freezer", "cpuacct", "memory", "devices", "cpuset", "cpu", "blkio", "pids")
# Only the hierarchies of jobacct_gather and devices have folders for tasks.
STRUCTURE_ORDER = ("cpuacct", "memory", "devices", "cpuset", "freezer", "cpu", "blkio", "pids")


class ControllerPlace:
    """Be the home of one job in cgroup v1: a folder in each hierarchy that Slurm uses."""

    def __init__(self, hierarchies: Mapping[str, str], relative: str, tools: TreeTools) -> None:
        """Take the roots by controller and the path of the job below each of them."""
        self._hierarchies = hierarchies
        self._relative = relative
        self._tools = tools
        self._tracking = _BestHierarchy(TRACKING_ORDER, hierarchies, relative, tools)
        self._structure = _BestHierarchy(STRUCTURE_ORDER, hierarchies, relative, tools)

    def open_group(self, relative: str, *, is_spare: bool) -> CgroupReader:
        """Return the group in the folders below the job's; the empty path is the job itself."""
        return ControllerGroup(self._hierarchies, self._relative, relative, self._tools, is_spare=is_spare)

    def steps(self) -> list[CgroupFolder]:
        """Return what is right below the job."""
        node = self._structure.node()
        return node.children() if node and node.look() else []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        """Return the path from a step to its tasks, and what is there."""
        return "", step.children()

    def members(self) -> Members:
        """List the processes."""
        node = self._tracking.node()
        if node is None:
            return Members()
        is_frozen = self._tracking.controller == "freezer"
        return list_members(node, pick_by_level if is_frozen else pick_by_title(self._tools.owners))

    def has_processes(self) -> bool:
        """Tell whether there is any process."""
        node = self._tracking.node()
        return node is not None and has_members(node)

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""
        self._tracking.release()
        self._structure.release()

    def close(self) -> None:
        """Close all descriptors for good."""
        self._tracking.close()
        self._structure.close()


class _BestHierarchy:
    """Choose the first hierarchy in which a job has a folder; a young job gets them one after the other."""

    def __init__(self, order: Sequence[str], hierarchies: Mapping[str, str], relative: str, tools: TreeTools) -> None:
        self.controller = ""
        self._order = [controller for controller in order if controller in hierarchies]
        self._hierarchies = hierarchies
        self._relative = relative
        self._tools = tools
        self._pace = Pace(tools.clock, relative)
        self._node: CgroupFolder | None = None
        self._is_closed = False

    def node(self) -> CgroupFolder | None:
        if not self._is_closed and self._pace.is_due():
            self._choose()
        return self._node

    def release(self) -> None:
        if self._node:
            self._node.release()

    def close(self) -> None:
        self._is_closed = True
        if self._node:
            self._node.close()

    def _choose(self) -> None:
        for controller in self._order:
            if controller == self.controller:
                return
            node = CgroupFolder(f"{self._hierarchies[controller]}/{self._relative}", self._tools)
            if node.look():
                if self._node:
                    self._node.close()
                self.controller, self._node = controller, node
                return
