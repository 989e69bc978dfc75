# SPDX-License-Identifier: Apache-2.0
"""Hold what the controller knows of its nodes at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BASE_STATES = ("allocated", "down", "error", "future", "idle", "mixed", "unknown")
"""Every base state of Slurm; one that we do not know counts as ``unknown``."""

FLAGS = (
    "blocked", "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "external", "fail", "invalid_reg",
    "maintenance", "not_responding", "perfctrs", "planned", "power_down", "power_up", "powered_down", "powering_down",
    "powering_up", "reboot_issued", "reboot_requested", "reserved", "resume",
)  # fmt: skip
"""The flags of Slurm 22.05 to 26.05; another one is kept as it is."""

_WORKING_STATES = frozenset({"allocated", "idle", "mixed"})
_BARRING_FLAGS = frozenset(
    {
        "blocked",
        "drain",
        "external",
        "fail",
        "invalid_reg",
        "maintenance",
        "power_down",
        "powering_down",
        "reboot_issued",
    }
)
# A node that sleeps or wakes up does not answer either, and still Slurm gives it work.
_SLEEPING_FLAGS = frozenset({"powered_down", "powering_up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGres:
    """Count one generic resource of a node; ``model`` is empty where the site names none."""

    name: str
    model: str
    total: int
    used: int


class Node(NamedTuple):
    """Hold one node.

    ``base_state`` is one of :data:`BASE_STATES`. ``state_text`` is what ``sinfo --long`` shows: one word
    and at most one suffix, which hides most flags. Reason, user and time say why, by whom and since when
    a node is down or drained. ``gres`` is None when its text could not be read.

    A named tuple, because a large cluster has ten thousand nodes at every reading and a frozen dataclass takes five
    times as long to make.
    """

    name: str
    base_state: str
    flags: frozenset[str]
    state_text: str
    partitions: tuple[str, ...]
    cpus_total: int
    cpus_allocated: int
    cpus_idle: int
    memory_bytes: int
    allocated_memory_bytes: int
    weight: int
    free_memory_bytes: int | None = None
    load: float | None = None
    gres: tuple[NodeGres, ...] | None = ()
    reason: str | None = None
    reason_user: str | None = None
    reason_since_seconds: int | None = None

    @property
    def cpus_other(self) -> int:
        """Count the CPUs that are neither allocated nor idle in sinfo's eyes: those of down and drained nodes."""
        return self.cpus_total - self.cpus_allocated - self.cpus_idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Hold one snapshot of all nodes, each once, whatever the number of its partitions.

    ``unreadable_rows`` counts rows that did not have the expected columns; they are in no node.
    """

    nodes: tuple[Node, ...]
    unreadable_rows: int = 0


def can_run_jobs(base_state: str, flags: frozenset[str]) -> bool:
    """Tell whether Slurm may start a job on a node in this state, as far as its idle resources go.

    It may not when the node is down, drained, failing, blocked, in maintenance, about to boot or to be switched off,
    or when it does not answer. It may when the node sleeps and will be woken up for the job, when it is planned for
    another job (a shorter one may go first), and when it is reserved (for those who hold the reservation).
    """
    if base_state not in _WORKING_STATES or not _BARRING_FLAGS.isdisjoint(flags):
        return False
    return "not_responding" not in flags or not _SLEEPING_FLAGS.isdisjoint(flags)
