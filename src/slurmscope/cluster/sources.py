# SPDX-License-Identifier: Apache-2.0
"""What the readings of the cluster exporter are made from; each names in its file what it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs, StartWindow

T = TypeVar("T")


class Backend(Protocol):
    """Read jobs and nodes from Slurm; every failure is a SourceError. Safe to use from several threads."""

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        """Return all jobs, and those that started in the window; ``now_seconds`` is the time to put on them.

        ``with_owners`` also returns the owner of each job by its ID.
        """

    def read_nodes(self) -> Nodes:
        """Return all nodes."""


class FindSettings(Protocol):
    """Return the settings of one type, as configured."""

    def __call__(self, type_: type[T]) -> T: ...


@dataclass(slots=True, kw_only=True)
class Sources:
    """Run commands of Slurm and read jobs and nodes, for all readings of one configuration.

    ``require_all_jobs`` raises CommandRefused if Slurm hides jobs of others from this user. ``with_owners`` is set by
    features that need the owner of each job, which costs another column.
    """

    run: Callable[[str, Sequence[str]], bytes]
    backend: Backend
    settings: FindSettings
    wall_clock: Callable[[], float]
    require_all_jobs: Callable[[], None]
    with_owners: bool = False
