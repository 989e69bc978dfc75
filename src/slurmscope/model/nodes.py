# SPDX-License-Identifier: Apache-2.0
"""Hold all nodes known to the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BASE_STATES = ("allocated", "down", "error", "future", "idle", "mixed", "unknown")
"""Every base state of Slurm; a new one counts as ``unknown``."""

FLAGS = (
    "blocked", "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "external", "fail", "invalid_reg",
    "maintenance", "not_responding", "perfctrs", "planned", "power_down", "power_up", "powered_down", "powering_down",
    "powering_up", "reboot_issued", "reboot_requested", "reserved", "resume",
)  # fmt: skip
"""The flags of Slurm 22.05 to 26.05; a new one is exported as it is."""

_USABLE_STATES = frozenset({"allocated", "idle", "mixed"})
_UNUSABLE_FLAGS = frozenset(
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
# A node that is powered down or powering up does not respond either, but Slurm allocates it all the same.
_POWER_SAVING_FLAGS = frozenset({"powered_down", "powering_up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGres:
    """Hold one generic resource of a node; ``model`` is empty if the site configured none."""

    name: str
    model: str
    total: int
    used: int


class Node(NamedTuple):
    """Hold one node.

    ``base_state`` is one of :data:`BASE_STATES`. ``state_text`` is what ``sinfo --long`` shows: one word and at most
    one suffix, which hides most flags. The reason fields are set for down and drained nodes. ``gres`` is None if it
    could not be parsed.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Hold one snapshot of all nodes; each appears once, also if it is in several partitions.

    ``unreadable_rows`` counts rows that could not be parsed; their nodes are missing.
    """

    nodes: tuple[Node, ...]
    unreadable_rows: int = 0


def can_run_jobs(base_state: str, flags: frozenset[str]) -> bool:
    """Return whether Slurm can start jobs on the idle resources of a node in this state.

    It cannot if the node is down, drained, failing, blocked, in maintenance, about to reboot or to be powered down, or
    does not respond. It can if the node is powered down and will be resumed for the job, is planned for another job (a
    shorter one may run first), or is reserved (for users of the reservation).
    """
    if base_state not in _USABLE_STATES or not _UNUSABLE_FLAGS.isdisjoint(flags):
        return False
    return "not_responding" not in flags or not _POWER_SAVING_FLAGS.isdisjoint(flags)
