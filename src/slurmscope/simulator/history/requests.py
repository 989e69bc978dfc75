# SPDX-License-Identifier: Apache-2.0
"""Draw what a simulated job of some kind requests, how long it runs and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from slurmscope.simulator.history.workload_kinds import WorkloadKind

HOUR = 3600

SHARES: Mapping[WorkloadKind, float] = MappingProxyType(
    {
        WorkloadKind.GOOD: 56.0,
        WorkloadKind.TIME_OVER_REQUESTED: 6.0,
        WorkloadKind.GPU_GOOD: 9.0,
        WorkloadKind.FAILED: 3.0,
        WorkloadKind.CANCELLED: 2.0,
        WorkloadKind.MEMORY_OVER_REQUESTED: 4.0,
        WorkloadKind.IDLE: 3.0,
        WorkloadKind.SERIAL: 3.0,
        WorkloadKind.TIMED_OUT: 2.0,
        WorkloadKind.OUT_OF_MEMORY: 1.5,
        WorkloadKind.LEAKING: 1.0,
        WorkloadKind.NEAR_LIMIT: 1.0,
        WorkloadKind.STOPPED_EARLY: 1.0,
        WorkloadKind.TOO_SHORT: 2.5,
        WorkloadKind.BURSTY: 1.0,
        WorkloadKind.CORE_IMBALANCE: 1.0,
        WorkloadKind.NODE_IMBALANCE: 0.7,
        WorkloadKind.SPREAD: 0.7,
        WorkloadKind.SMALL_FILES: 0.8,
        WorkloadKind.TINY_REQUESTS: 0.5,
        WorkloadKind.SCRATCH_UNUSED: 1.5,
        WorkloadKind.MANY_THREADS: 1.0,
        WorkloadKind.GPU_LOW: 1.2,
        WorkloadKind.GPU_IDLE: 0.7,
        WorkloadKind.GPU_HELD: 0.6,
        WorkloadKind.NODE_FAILED: 0.3,
    }
)
"""How often each kind occurs among ended jobs: most are fair, about a quarter could do better."""

GPU_KINDS = frozenset({WorkloadKind.GPU_GOOD, WorkloadKind.GPU_IDLE, WorkloadKind.GPU_HELD, WorkloadKind.GPU_LOW})
SEVERAL_NODES = frozenset({WorkloadKind.NODE_IMBALANCE, WorkloadKind.SPREAD})
ENDINGS: Mapping[WorkloadKind, tuple[str, int, int]] = MappingProxyType(
    {
        WorkloadKind.OUT_OF_MEMORY: ("OUT_OF_MEMORY", 0, 125),
        WorkloadKind.TIMED_OUT: ("TIMEOUT", 0, 0),
        WorkloadKind.FAILED: ("FAILED", 1, 0),
        WorkloadKind.CANCELLED: ("CANCELLED", 0, 15),
        WorkloadKind.NODE_FAILED: ("NODE_FAIL", 0, 1),
    }
)
"""State, exit code and signal of jobs that do not end well."""
FAILURES = ((1, 0), (1, 0), (2, 0), (127, 0), (126, 0), (0, 11), (0, 11), (0, 6), (0, 7))
"""Exit code and signal of failed jobs: errors, commands that are not found, crashes."""

_MANY_CORES = frozenset(
    {
        WorkloadKind.IDLE,
        WorkloadKind.SERIAL,
        WorkloadKind.CORE_IMBALANCE,
        WorkloadKind.MANY_THREADS,
        WorkloadKind.BURSTY,
    }
)
_ONE_NODE = frozenset({*_MANY_CORES, WorkloadKind.TOO_SHORT, WorkloadKind.SMALL_FILES})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """What a job requests on each node, its time limit, and how long it runs."""

    nodes: int
    cpus: int
    memory_bytes: int
    gpus: int
    limit_seconds: int
    run_seconds: int

    @property
    def is_parallel(self) -> bool:
        """Return whether the job has one task per core rather than one task with threads."""
        return self.nodes > 1


def draw_kind(random: Random, favourite: WorkloadKind) -> WorkloadKind:
    """Draw a kind; people repeat their habits, good or bad."""
    if random.random() < 0.12:
        return favourite
    return random.choices(list(SHARES), weights=list(SHARES.values()))[0]


def draw_request(random: Random, kind: WorkloadKind) -> SimulatedRequest:
    """Draw what a job of this kind requests."""
    run_seconds = _run_seconds(random, kind)
    nodes, cpus, gpus = _size(random, kind)
    memory_gib = cpus * random.choice((2, 2, 3, 4)) if not gpus else 48 * gpus
    if kind is WorkloadKind.MEMORY_OVER_REQUESTED:
        memory_gib = max(16, cpus * random.choice((8, 12, 16)))
    return SimulatedRequest(
        nodes=nodes,
        cpus=cpus,
        memory_bytes=memory_gib << 30,
        gpus=gpus,
        limit_seconds=_limit_seconds(random, kind, run_seconds),
        run_seconds=run_seconds,
    )


def _size(random: Random, kind: WorkloadKind) -> tuple[int, int, int]:
    if kind in GPU_KINDS:
        gpus = random.choice((1, 1, 2, 4)) if kind is not WorkloadKind.GPU_HELD else random.choice((1, 2, 2, 4))
        return 1, 8 * gpus, gpus
    if kind is WorkloadKind.SPREAD:
        return random.choice((4, 6, 8)), random.choice((1, 2)), 0
    if kind is WorkloadKind.NODE_IMBALANCE:
        return random.choice((2, 3, 4)), random.choice((16, 32)), 0
    if kind in _MANY_CORES:
        return 1, random.choice((8, 8, 16, 16, 32)), 0
    nodes = random.choice((2, 4, 8)) if random.random() < 0.07 and kind not in _ONE_NODE else 1
    return nodes, 32 if nodes > 1 else random.choice((1, 1, 1, 2, 4, 4, 8, 16, 32)), 0


def _run_seconds(random: Random, kind: WorkloadKind) -> int:
    if kind is WorkloadKind.TOO_SHORT:
        return random.randrange(8, 55)
    drawn = int(random.lognormvariate(8.4, 0.9))
    shortest = {
        WorkloadKind.FAILED: 20,
        WorkloadKind.CANCELLED: 60,
        WorkloadKind.TIME_OVER_REQUESTED: HOUR,
        WorkloadKind.TINY_REQUESTS: HOUR,
    }
    longest = {WorkloadKind.TIME_OVER_REQUESTED: 4 * HOUR}
    run_seconds = max(shortest.get(kind, 2 * HOUR // 3), min(drawn, longest.get(kind, 24 * HOUR)))
    return run_seconds // 60 * 60 if kind is WorkloadKind.TIMED_OUT else run_seconds


def _limit_seconds(random: Random, kind: WorkloadKind, run_seconds: int) -> int:
    """Draw the time limit; round numbers, as people type them."""
    if kind is WorkloadKind.TIMED_OUT:
        return run_seconds
    if kind is WorkloadKind.TIME_OVER_REQUESTED:
        return random.choice((24, 24, 48, 72)) * HOUR
    needed = run_seconds * random.uniform(1.05, 1.7)
    return _round_up(needed, (600, 1800, HOUR, 2 * HOUR))


def _round_up(seconds: float, steps: Sequence[int]) -> int:
    step = max((step for step in steps if step <= seconds / 4), default=steps[0])
    return -int(-seconds // step) * step
