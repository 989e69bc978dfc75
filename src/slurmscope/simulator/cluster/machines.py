# SPDX-License-Identifier: Apache-2.0
"""Track the free resources of each simulated node and place jobs on them.

This is first fit with a cursor per partition, not a scheduler: it packs nodes one after the other, at a cost per job
that does not grow with the cluster.

A node gets a condition: a base state that excludes jobs (down, unknown ...), flags, or shares of its CPUs that one job
each must fill, so that every word and suffix that sinfo can print occurs on a cluster of 64 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, GpuPool, Partition, Shape, User

GPUS_PER_NODE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """Describe the state that a node is brought into.

    ``base`` empty: as its jobs make it. ``fills``: state and share of the CPUs of the jobs that must run there. A node
    that is not open takes no further jobs.
    """

    flags: tuple[str, ...] = ()
    base: str = ""
    fills: tuple[tuple[str, float], ...] = ()
    is_open: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware of a node and the condition it is to be in."""

    name: str
    cpus: int
    memory_bytes: int
    gpus: tuple[GpuPool, ...]
    dialect: int
    features: str
    weight: int
    condition: NodeCondition
    reason_user: User | None = None
    reason_age_seconds: int = 0


_HALF = (("RUNNING", 0.5),)
_FULL = (("RUNNING", 1.0),)

OPEN = NodeCondition(is_open=True)

# The first 31 cover each base state and each suffix; a cluster takes as many as half its nodes.
CONDITIONS = (
    NodeCondition(base="down", reason="Not responding", flags=("not_responding",)),
    NodeCondition(flags=("drain",), reason="bad DIMM, slot 3|vendor case 4711"),
    NodeCondition(flags=("drain",), fills=_HALF, reason="Kill task failed"),
    NodeCondition(flags=("cloud", "powered_down")),
    NodeCondition(flags=("cloud", "not_responding", "powering_up"), fills=(("CONFIGURING", 0.5),)),
    NodeCondition(flags=("cloud", "powering_down")),
    NodeCondition(flags=("cloud", "power_down")),
    NodeCondition(flags=("reboot_requested",), fills=_HALF, reason="reboot ASAP"),
    NodeCondition(flags=("reboot_issued",), fills=_FULL, reason="reboot issued"),
    NodeCondition(flags=("maintenance",), fills=_HALF),
    NodeCondition(flags=("planned",), fills=_HALF),
    NodeCondition(flags=("completing",), fills=(("RUNNING", 0.5), ("COMPLETING", 0.5))),
    NodeCondition(flags=("completing",), fills=(("COMPLETING", 0.25),)),
    NodeCondition(flags=("not_responding",)),
    NodeCondition(flags=("maintenance",)),
    NodeCondition(flags=("reserved",)),
    NodeCondition(flags=("planned",)),
    NodeCondition(flags=("reboot_requested",), reason="kernel update"),
    NodeCondition(flags=("reboot_issued",), base="down", reason="reboot issued"),
    NodeCondition(flags=("fail",), reason="fan speed low"),
    NodeCondition(flags=("fail",), fills=_FULL, reason='disk "sda" failing\nsee ticket'),
    NodeCondition(
        flags=("drain",), fills=_FULL, reason="Low RealMemory (reported:128000 < 100.00% of configured:256000)"
    ),
    NodeCondition(flags=("invalid_reg", "drain"), reason="gres/gpu count reported lower than configured (3 < 4)"),
    NodeCondition(base="down", reason="Node unexpectedly rebooted"),
    NodeCondition(base="unknown"),
    NodeCondition(base="future"),
    NodeCondition(base="error"),
    NodeCondition(flags=("not_responding",), fills=_HALF),
    NodeCondition(flags=("maintenance",), base="down", reason="water leak, row 7"),
    NodeCondition(flags=("drain", "not_responding"), reason="NHC: check_fs_mount: /scratch is not mounted"),
    NodeCondition(flags=("cloud", "powered_down"), base="down", reason="ResumeTimeout reached"),
    NodeCondition(flags=("perfctrs",)),
    NodeCondition(flags=("dynamic_norm",)),
    NodeCondition(flags=("reserved",), fills=_HALF),
    NodeCondition(flags=("drain",), base="down", reason="\x1b[1mescape\x1b[0m " + "very long reason " * 20),
    NodeCondition(flags=("not_responding",), fills=_FULL),
    NodeCondition(flags=("drain", "maintenance"), fills=_HALF, reason="firmware"),
)

# On a large cluster a few more nodes are out of order, at random.
_COMMON_TROUBLE = (CONDITIONS[0], CONDITIONS[1], CONDITIONS[2], CONDITIONS[23], CONDITIONS[29])
_TROUBLE_SHARE = 0.02

# CPUs and memory as real nodes register them: rarely a round number.
_CPU_KINDS = ((64, 257_000), (128, 515_072), (32, 191_000), (96, 385_500), (128, 2_063_000))
_GPU_TYPES = ("a100", "", "h100", "l40s", "t4")


def make_machines(random: Random, shape: Shape, users: tuple[User, ...]) -> tuple[Machine, ...]:
    """Return the nodes by name: first those without GPUs, then those with."""
    gpu_nodes = min(shape.nodes, -(-shape.gpus // GPUS_PER_NODE))
    conditions = _deal_conditions(random, shape.nodes)
    machines = []
    for number in range(shape.nodes):
        first_gpu = number - (shape.nodes - gpu_nodes)
        condition = conditions.get(number, OPEN)
        kind = _gpu_hardware(first_gpu, shape) if first_gpu >= 0 else _cpu_hardware(number, shape)
        name, cpus, memory_mib, gpus, features = kind
        machines.append(
            Machine(
                name=name,
                cpus=cpus,
                memory_bytes=memory_mib * MIB,
                gpus=gpus,
                dialect=max(0, first_gpu) % len(_GPU_TYPES),
                features=features,
                weight=1 + 9 * bool(gpus),
                condition=condition,
                reason_user=random.choice((None, *users[:3])) if condition.reason else None,
                reason_age_seconds=random.randrange(60, 30 * 86_400),
            )
        )
    return tuple(sorted(machines, key=lambda machine: machine.name))


def make_partitions(random: Random, shape: Shape, machines: tuple[Machine, ...]) -> tuple[Partition, ...]:
    """Return the partitions; the first is the default, and every node is in one at least."""
    plain = tuple(machine.name for machine in machines if not machine.gpus)
    with_gpus = tuple(machine.name for machine in machines if machine.gpus)
    every = plain + with_gpus
    # One name needs all the nodes; with more names the default leaves the GPUs to the others.
    first = every if shape.partitions == 1 or not with_gpus else plain or every
    members: list[tuple[str, int | None, tuple[str, ...]]] = [("standard", 86_400, first)]
    if with_gpus:
        members.append(("gpu", 2 * 86_400, with_gpus))
    members += [("short", 4 * 3_600, every), ("long", 14 * 86_400, plain or every), ("debug", None, every[:2])]
    for number in range(len(members), shape.partitions):
        start = random.randrange(len(every)) if every else 0
        members.append((f"part{number:03}", 3 * 86_400, every[start : start + 40] or every[:1]))
    return tuple(
        Partition(name=name, time_limit_seconds=limit, node_names=nodes)
        for name, limit, nodes in members[: shape.partitions]
    )


def _deal_conditions(random: Random, nodes: int) -> dict[int, NodeCondition]:
    """Choose the nodes that are in a special condition, by number."""
    count = min(len(CONDITIONS), nodes // 2)
    chosen = random.sample(range(nodes), k=count + int(nodes * _TROUBLE_SHARE if nodes > 200 else 0))
    extra = (random.choice(_COMMON_TROUBLE) for _ in chosen[count:])
    return dict(zip(chosen, (*CONDITIONS[:count], *extra), strict=True))


def _cpu_hardware(number: int, shape: Shape) -> tuple[str, int, int, tuple[GpuPool, ...], str]:
    cpus, memory_mib = _CPU_KINDS[number * len(_CPU_KINDS) // max(1, shape.nodes) % len(_CPU_KINDS)]
    features = "avx512,ib" if cpus >= 64 else "avx2"
    return f"node{number + 1:0{len(str(shape.nodes))}}", cpus, memory_mib, (), features


def _gpu_hardware(number: int, shape: Shape) -> tuple[str, int, int, tuple[GpuPool, ...], str]:
    devices = min(GPUS_PER_NODE, shape.gpus - number * GPUS_PER_NODE)
    kind = _GPU_TYPES[number % len(_GPU_TYPES)]
    pools: tuple[GpuPool, ...] = (GpuPool(type=kind, total=devices),)
    if kind == "h100" and devices > 1:
        # A node with sliced devices has two types, and the type of a slice has a dot in it.
        pools = (GpuPool(type=kind, total=devices - 1), GpuPool(type="h100_3g.40gb", total=1))
    return f"gpu{number + 1:0{len(str(shape.nodes))}}", 64, 1_031_000, pools, f"nvme,{kind or 'any'}"


# How many nodes are tried for one job before it has to wait.
_LOOK_AHEAD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
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


class FreeMachines:
    """All nodes with what they have free; placing a job changes it."""

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
