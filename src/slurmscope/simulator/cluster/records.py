# SPDX-License-Identifier: Apache-2.0
"""Describe the things a simulated cluster is made of."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.slurm import states

# Jobs in these states hold CPUs of their nodes. A suspended job keeps its memory and GPUs but gives its CPUs back.
CPU_HOLDING_STATES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})
ENDED_STATES = states.ENDED_STATES - {states.REVOKED} | {"STAGE_OUT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Describe how large a simulated cluster is; the same shape gives the same cluster.

    ``jobs`` counts rows of ``squeue -r``: each task of an array is a job. ``gpus`` counts devices, four to a node.
    """

    seed: int = 1
    jobs: int = 500
    nodes: int = 64
    users: int = 25
    accounts: int = 8
    partitions: int = 4
    gpus: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Name a person, a number and the accounts the person may use, the default first."""

    name: str
    uid: int
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Group nodes under a name with a time limit (None: no limit)."""

    name: str
    time_limit_seconds: int | None
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """Count devices of one type on a node; an empty type is what sites without ``Type=`` have."""

    type: str
    total: int
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One node: what it has, what of it is taken, in which state it is.

    ``dialect`` picks one of the ways in which sites spell generic resources. None means that the node did not report.
    """

    name: str
    cpus: int
    memory_bytes: int
    partitions: tuple[str, ...]
    base: str = "idle"
    flags: tuple[str, ...] = ()
    cpus_allocated: int = 0
    memory_allocated_bytes: int = 0
    memory_free_bytes: int | None = None
    cpu_load: float | None = None
    gpus: tuple[GpuPool, ...] = ()
    dialect: int = 0
    features: str | None = None
    weight: int = 1
    reason: str | None = None
    reason_user: User | None = None
    reason_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """One record of squeue; a pending array is one record that stands for all its waiting tasks.

    Amounts are per node; totals are properties. Times are seconds since 1970.
    """

    id: int
    name: str
    user: User
    account: str | None
    partitions: tuple[str, ...]
    qos: str
    state: str
    submit_time: int
    reason: str = "None"
    array_id: int | None = None
    tasks: tuple[int, ...] = ()
    task_limit: int | None = None
    het_id: int | None = None
    het_offset: int | None = None
    nodes: int = 1
    cpus_per_node: int = 1
    memory_per_node_bytes: int = 0
    gpus_per_node: int = 0
    gpu_type: str = ""
    dialect: int = 0
    node_names: tuple[str, ...] = ()
    start_time: int | None = None
    end_time: int | None = None
    time_limit_seconds: int | None = None
    priority: int = 0
    features: str | None = None
    licenses: str | None = None
    dependency: str | None = None
    restarts: int = 0

    @property
    def rows(self) -> int:
        """Count the rows of ``squeue -r``."""
        return max(1, len(self.tasks))

    @property
    def cpus(self) -> int:
        return self.nodes * self.cpus_per_node

    @property
    def memory_bytes(self) -> int:
        return self.nodes * self.memory_per_node_bytes

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """A whole cluster at one moment; ``jobs`` are in the order of squeue, ``nodes`` by name."""

    name: str
    now: int
    jobs: tuple[SimulatedJob, ...]
    nodes: tuple[SimulatedNode, ...]
    partitions: tuple[Partition, ...]
    users: tuple[User, ...]
    accounts: tuple[str, ...]
    qos: tuple[str, ...]
