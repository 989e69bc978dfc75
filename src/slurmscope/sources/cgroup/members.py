# SPDX-License-Identifier: Apache-2.0
"""List the processes of a job, those of the user apart from Slurm's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurmscope.sources.cgroup.names import STEPD_FOLDER
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.owners import ProcessOwners


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Hold the process ids of a job: slurmstepd, one per step, and all others."""

    stepd: tuple[int, ...] = ()
    user: tuple[int, ...] = ()


# Takes the path below the job's folder and tells which of the processes there are slurmstepd.
PickStepd = Callable[[str, list[int]], list[int]]


def list_members(top: CgroupFolder, pick: PickStepd) -> Members:
    """Read the processes of a job's folder and of all below it."""
    stepd: list[int] = []
    user: list[int] = []
    for node, pids in _read_pids(top):
        picked = pick(node.folder.path[len(top.folder.path) :], pids)
        stepd += picked
        user += [pid for pid in pids if pid not in picked] if picked else pids
    return Members(stepd=tuple(sorted(stepd)), user=tuple(sorted(user)))


def has_members(top: CgroupFolder) -> bool:
    """Tell whether any process is in a job's folder or below."""
    # slurmstepd is mostly right here, and then nothing else needs to be looked at.
    return bool(top.pids()) or bool(_read_pids(top))


def _read_pids(top: CgroupFolder) -> list[tuple[CgroupFolder, list[int]]]:
    for _ in range(2):
        if not top.look():
            return []
        nodes = list(top.walk())
        found = [(node, pids) for node in nodes if (pids := node.pids())]
        # A step that ended meanwhile may have been followed by another: look once more.
        if not any(node.folder.is_gone for node in nodes):
            break
    return found


def pick_by_folder(relative: str, pids: list[int]) -> list[int]:
    """Pick in cgroup v2: slurmstepd has a folder of its own in each step."""
    parts = relative.split("/")
    return pids if len(parts) > 2 and parts[2] == STEPD_FOLDER else []


def pick_by_level(relative: str, pids: list[int]) -> list[int]:
    """Pick in the v1 freezer: slurmstepd stays above its step, so that it can freeze and thaw it."""
    return [] if relative else pids


def pick_by_title(owners: ProcessOwners) -> PickStepd:
    """Pick in the other v1 hierarchies: slurmstepd shares the folder of its step with the user's processes.

    Tasks, where they have folders, are the user's alone.
    """

    def pick(relative: str, pids: list[int]) -> list[int]:
        stepd = owners.find_stepd(pids) if relative.count("/") <= 1 else None
        return [] if stepd is None else [stepd]

    return pick
