# SPDX-License-Identifier: Apache-2.0
"""Read one job's cgroup: the whole job, its steps and tasks, its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from slurmscope.model.job_use import CgroupUse, GroupKey, JobKey
from slurmscope.sources.cgroup.members import Members
from slurmscope.sources.cgroup.names import parse_step, parse_task
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.places import CgroupReader, Place

MOST_GROUPS = 10_000


class JobCgroup:
    """Be one life of one job on this node.

    The tree that found it closes it when its folder is gone. Not safe for two threads at once.
    """

    def __init__(self, key: JobKey, path: Path, place: Place, uid: int | None) -> None:
        """Take the job's name, its folder (the main one of cgroup v1) and its user where that is known."""
        self.key = key
        self.path = path
        self.uid = uid
        self._place = place
        self._top = place.open_group("", is_spare=False)
        self._groups: dict[GroupKey, tuple[CgroupFolder, CgroupReader]] = {}

    def read(self) -> CgroupUse | None:
        """Read the whole job now; None when its cgroup is gone, or there is none yet that could be read."""
        return self._top.read()

    def read_groups(self, *, steps: bool, tasks: bool) -> dict[GroupKey, CgroupUse]:
        """Read the steps, the tasks or both, as many as there are now; a group that just went is left out."""
        before, self._groups = self._groups, {}
        uses: dict[GroupKey, CgroupUse] = {}
        for key, relative, node in self._list_groups(tasks=tasks):
            if (not key.task and not steps) or len(self._groups) >= MOST_GROUPS:
                continue
            known, group = before.pop(key, (None, None))
            if group is None or known is not node:
                if group:
                    group.close()
                group = self._place.open_group(relative, is_spare=True)
            self._groups[key] = (node, group)
            use = group.read()
            if use is None:
                node.look()  # it is gone: let its parent know
            else:
                uses[key] = use
        for _, group in before.values():
            group.close()
        return uses

    def members(self) -> Members:
        """List the processes, those of the user apart from slurmstepd, in one pass."""
        return self._place.members()

    def pids(self) -> list[int]:
        """List all processes, slurmstepd too."""
        members = self.members()
        return sorted((*members.stepd, *members.user))

    def user_pids(self) -> list[int]:
        """List the processes of the user; the sleep of the extern step is among them."""
        return list(self.members().user)

    def stepd_pids(self) -> list[int]:
        """List Slurm's own processes, one per step."""
        return list(self.members().stepd)

    def has_processes(self) -> bool:
        """Tell whether any process is left."""
        return self._place.has_processes()

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""
        self._place.release()
        for group in self._open_groups():
            group.release()

    def close(self) -> None:
        """Close all descriptors for good; what is read afterwards is gone."""
        self._place.close()
        for group in self._open_groups():
            group.close()
        self._groups.clear()

    def _open_groups(self) -> Iterator[CgroupReader]:
        yield self._top
        yield from (group for _, group in self._groups.values())

    def _list_groups(self, *, tasks: bool) -> Iterator[tuple[GroupKey, str, CgroupFolder]]:
        for step_node in self._place.steps():
            step = parse_step(step_node.name)
            if step is None:
                continue
            yield GroupKey(step=step), step_node.name, step_node
            if tasks:
                path, task_nodes = self._place.tasks(step_node)
                for node in task_nodes:
                    if (task := parse_task(node.name)) is not None:
                        yield GroupKey(step=step, task=task), f"{step_node.name}/{path}{node.name}", node
