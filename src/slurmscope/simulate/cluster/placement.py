# SPDX-License-Identifier: Apache-2.0
"""Track the free resources of each simulated node and place jobs on them.

This is first fit with a cursor per partition, not a scheduler: it packs nodes one after the other, at a cost per job
that does not grow with the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmscope.simulate.cluster.job_states import CPU_HOLDING_STATES
from slurmscope.simulate.cluster.machines import Machine
from slurmscope.simulate.cluster.records import Partition

# How many nodes are tried for one job before it has to wait.
_LOOK_AHEAD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """Hold what one job requests on each of its nodes."""

    nodes: int = 1
    cpus: int = 1
    memory_bytes: int = 0
    gpus: int = 0


@dataclass(slots=True, kw_only=True)
class Room:
    """Count what a node has left; GPUs of its first pool only."""

    machine: Machine
    cpus: int
    memory_bytes: int
    gpus: int

    def fits(self, request: ResourceRequest) -> bool:
        """Return whether one node's part of the request fits here."""
        return self.cpus >= request.cpus and self.memory_bytes >= request.memory_bytes and self.gpus >= request.gpus

    def take(self, request: ResourceRequest, state: str) -> None:
        """Subtract one node's part; a state that holds no CPUs takes memory and GPUs only."""
        self.cpus -= request.cpus if state in CPU_HOLDING_STATES else 0
        self.memory_bytes -= request.memory_bytes
        self.gpus -= request.gpus


class FreeResources:
    """Hold all nodes with what they have free; placing a job changes it."""

    def __init__(self, machines: Sequence[Machine], partitions: Sequence[Partition]) -> None:
        self.rooms = {
            machine.name: Room(
                machine=machine,
                cpus=machine.cpus,
                memory_bytes=machine.memory_bytes,
                gpus=machine.gpus[0].total if machine.gpus else 0,
            )
            for machine in machines
        }
        self._open = {
            partition.name: [name for name in partition.node_names if self.rooms[name].machine.condition.is_open]
            for partition in partitions
        }
        self._cursors = dict.fromkeys(self._open, 0)

    def place(self, partition: str, request: ResourceRequest, state: str) -> tuple[str, ...] | None:
        """Place a job on open nodes of a partition and return their names, or None when there is no room."""
        found: list[str] = []
        for position, name in self._candidates(partition, _LOOK_AHEAD * request.nodes):
            if self.rooms[name].fits(request):
                found.append(name)
                if len(found) == request.nodes:
                    self._cursors[partition] = position
                    for taken in found:
                        self.rooms[taken].take(request, state)
                    return tuple(sorted(found))
        return None

    def _candidates(self, partition: str, count: int) -> Iterator[tuple[int, str]]:
        names = self._open[partition]
        start = self._cursors[partition]
        for step in range(min(count, len(names))):
            position = (start + step) % len(names)
            yield position, names[position]
