# SPDX-License-Identifier: Apache-2.0
"""Say what a home of a job can be asked, whichever version of cgroups it is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from slurmscope.model.job_use import CgroupUse
from slurmscope.sources.cgroup.kept import DescriptorBudget
from slurmscope.sources.cgroup.limits import InheritedLimits
from slurmscope.sources.cgroup.members import Members
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.owners import ProcessOwners


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTools:
    """Hold what all jobs of a tree share; ``keeps_processes`` is for v2 only."""

    budget: DescriptorBudget
    keeps_processes: bool
    limits: InheritedLimits
    owners: ProcessOwners
    clock: Callable[[], float]


class CgroupReader(Protocol):
    """Be a job, a step or a task that can be read."""

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone."""

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""

    def close(self) -> None:
        """Close all descriptors for good."""


class Place(Protocol):
    """Be the home of one job."""

    def open_group(self, relative: str, *, is_spare: bool) -> CgroupReader:
        """Return the group in a folder below the job's; the empty path is the job itself."""

    def steps(self) -> list[CgroupFolder]:
        """Return what is right below the job."""

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        """Return the path from a step to its tasks, and what is there."""

    def members(self) -> Members:
        """List the processes."""

    def has_processes(self) -> bool:
        """Tell whether there is any process."""

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""

    def close(self) -> None:
        """Close all descriptors for good."""
