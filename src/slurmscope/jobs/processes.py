# SPDX-License-Identifier: Apache-2.0
"""Hold what single processes, tasks, steps and slow parts of a job used; None means not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class HeldTask(NamedTuple):
    """A process that was stopped, or waited for a disk, for so long; ``task`` is its rank, empty where not known.

    ``is_over`` is whether it did so before the end of the run, or before now, and no more.
    """

    node: str
    pid: str
    program: str
    task: str
    state: str
    seconds: float
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSummary:
    """What one traced process used, with its descendants; ``rank`` and ``step`` are empty where not known."""

    node: str
    step: str
    rank: str
    pid: str
    command: str
    cpu_seconds: float | None = None
    peak_memory_bytes: float | None = None
    """Highest sampled resident memory."""
    peak_threads: float | None = None
    read_bytes: float | None = None
    """What storage delivered; ``write_bytes`` is what was sent to storage."""
    write_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDifference:
    """A number that the traced processes and the node agents disagree on.

    ``quantity`` is ``cpu_seconds`` or ``memory_bytes``.
    """

    quantity: str
    traced: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The traced processes with the most CPU time, and where they disagree with the node agents."""

    processes: tuple[ProcessSummary, ...] = ()
    others: int = 0
    """Number of further traced processes."""
    differences: tuple[TraceDifference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProfile:
    """What Slurm's own samples say about one task of a step; ``cpu_seconds`` counts from its first sample."""

    node: str
    step: str
    task: str
    cpu_seconds: float | None = None
    peak_memory_bytes: float | None = None
    read_bytes: float | None = None
    """Bytes of system calls, from any file system or pipe."""
    write_bytes: float | None = None
    mean_gpus: float | None = None
    """Mean utilization; 1 is one GPU fully used."""
    peak_gpu_memory_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """What Slurm's own samples say about one step: sums over its tasks, and of its nodes while it ran.

    Power, Lustre and network are those of the whole nodes.
    """

    step: str
    tasks: int = 0
    nodes: tuple[str, ...] = ()
    cpu_seconds: float | None = None
    peak_task_memory_bytes: float | None = None
    """Highest memory of its largest task."""
    read_bytes: float | None = None
    write_bytes: float | None = None
    mean_gpus: float | None = None
    peak_gpu_memory_bytes: float | None = None
    """Sum of the peaks of its tasks."""
    mean_power_watts: Mapping[str, float] = field(default_factory=dict)
    """Sums over nodes by sensor."""
    lustre_read_bytes: float | None = None
    lustre_write_bytes: float | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileComparison:
    """A number from Slurm's own samples, and the one of the node agents, over the nodes that have both.

    ``quantity`` is ``cpu_seconds``, ``memory_bytes``, ``read_bytes`` or ``write_bytes``.
    """

    quantity: str
    sampled: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """Slurm's own samples: the steps and tasks with the most CPU time, together with what the node agents measured."""

    steps: tuple[StepProfile, ...] = ()
    other_steps: int = 0
    tasks: tuple[TaskProfile, ...] = ()
    """Tasks of these steps."""
    other_tasks: int = 0
    comparisons: tuple[ProfileComparison, ...] = ()


class SlowPart(NamedTuple):
    """A node, or one of its GPUs, that was slower than the median of the others; ratios are 0 to 1.

    Of a node they are the share of the time in which its processes could run and were not held back; of a GPU, that in
    which it was busy.
    """

    node: str
    gpu: str
    """Index of the GPU; empty for a whole node."""
    own_ratio: float
    others_ratio: float
    since_seconds: float
    seconds: float

    @property
    def factor(self) -> float:
        """Return how many times as long the same work took."""
        return self.others_ratio / self.own_ratio

    def covers(self, at_seconds: float) -> bool:
        return 0 < at_seconds - self.since_seconds <= self.seconds


class SilentPart(NamedTuple):
    """A node, or one of its GPUs, that had worked and then did nothing for so long, while the others went on."""

    node: str
    gpu: str
    seconds: float
