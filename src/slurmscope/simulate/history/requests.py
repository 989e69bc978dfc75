# SPDX-License-Identifier: Apache-2.0
"""Draw what a simulated job of some kind asks for, how long it runs and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from slurmscope.simulate.history.workload_kinds import Kind

HOUR = 3600

SHARES: Mapping[Kind, float] = MappingProxyType(
    {
        Kind.GOOD: 56.0, Kind.TIME_OVER_ASKED: 6.0, Kind.GPU_GOOD: 9.0, Kind.FAILED: 3.0, Kind.CANCELLED: 2.0,
        Kind.MEMORY_OVER_ASKED: 4.0, Kind.IDLE: 3.0, Kind.SERIAL: 3.0, Kind.TIMED_OUT: 2.0, Kind.OUT_OF_MEMORY: 1.5,
        Kind.LEAKING: 1.0, Kind.NEAR_LIMIT: 1.0, Kind.STOPPED_EARLY: 1.0, Kind.TOO_SHORT: 2.5, Kind.BURSTY: 1.0,
        Kind.CORE_IMBALANCE: 1.0, Kind.NODE_IMBALANCE: 0.7, Kind.SPREAD: 0.7, Kind.SMALL_FILES: 0.8,
        Kind.TINY_REQUESTS: 0.5, Kind.SCRATCH_UNUSED: 1.5, Kind.MANY_THREADS: 1.0, Kind.GPU_LOW: 1.2,
        Kind.GPU_IDLE: 0.7, Kind.GPU_HELD: 0.6, Kind.NODE_FAILED: 0.3,
    }
)  # fmt: skip
"""How often each kind occurs among ended jobs: most are fair, about a quarter could do better."""

GPU_KINDS = frozenset({Kind.GPU_GOOD, Kind.GPU_IDLE, Kind.GPU_HELD, Kind.GPU_LOW})
SEVERAL_NODES = frozenset({Kind.NODE_IMBALANCE, Kind.SPREAD})
ENDINGS: Mapping[Kind, tuple[str, int, int]] = MappingProxyType(
    {
        Kind.OUT_OF_MEMORY: ("OUT_OF_MEMORY", 0, 125),
        Kind.TIMED_OUT: ("TIMEOUT", 0, 0),
        Kind.FAILED: ("FAILED", 1, 0),
        Kind.CANCELLED: ("CANCELLED", 0, 15),
        Kind.NODE_FAILED: ("NODE_FAIL", 0, 1),
    }
)
"""State, exit code and signal of jobs that do not end well."""

_MANY_CORES = frozenset({Kind.IDLE, Kind.SERIAL, Kind.CORE_IMBALANCE, Kind.MANY_THREADS, Kind.BURSTY})
_ONE_NODE = frozenset({*_MANY_CORES, Kind.TOO_SHORT, Kind.SMALL_FILES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold what a job asks for on each node, its time limit, and how long it runs."""

    nodes: int
    cpus: int
    memory_bytes: int
    gpus: int
    limit_seconds: int
    run_seconds: int

    @property
    def is_parallel(self) -> bool:
        """Tell whether the job has a task for each core rather than one with threads."""
        return self.nodes > 1


def draw_kind(random: Random, favourite: Kind) -> Kind:
    """Draw a kind; people repeat their habits, good or bad."""
    if random.random() < 0.12:
        return favourite
    return random.choices(list(SHARES), weights=list(SHARES.values()))[0]


def draw_request(random: Random, kind: Kind) -> Asked:
    """Draw what a job of this kind asks for."""
    run_seconds = _run_seconds(random, kind)
    nodes, cpus, gpus = _size(random, kind)
    memory_gib = cpus * random.choice((2, 2, 3, 4)) if not gpus else 48 * gpus
    if kind is Kind.MEMORY_OVER_ASKED:
        memory_gib = max(16, cpus * random.choice((8, 12, 16)))
    return Asked(
        nodes=nodes,
        cpus=cpus,
        memory_bytes=memory_gib << 30,
        gpus=gpus,
        limit_seconds=_limit_seconds(random, kind, run_seconds),
        run_seconds=run_seconds,
    )


def _size(random: Random, kind: Kind) -> tuple[int, int, int]:
    if kind in GPU_KINDS:
        gpus = random.choice((1, 1, 2, 4)) if kind is not Kind.GPU_HELD else random.choice((1, 2, 2, 4))
        return 1, 8 * gpus, gpus
    if kind is Kind.SPREAD:
        return random.choice((4, 6, 8)), random.choice((1, 2)), 0
    if kind is Kind.NODE_IMBALANCE:
        return random.choice((2, 3, 4)), random.choice((16, 32)), 0
    if kind in _MANY_CORES:
        return 1, random.choice((8, 8, 16, 16, 32)), 0
    nodes = random.choice((2, 4, 8)) if random.random() < 0.07 and kind not in _ONE_NODE else 1
    return nodes, 32 if nodes > 1 else random.choice((1, 1, 1, 2, 4, 4, 8, 16, 32)), 0


def _run_seconds(random: Random, kind: Kind) -> int:
    if kind is Kind.TOO_SHORT:
        return random.randrange(8, 55)
    drawn = int(random.lognormvariate(8.4, 0.9))
    shortest = {Kind.FAILED: 20, Kind.CANCELLED: 60, Kind.TIME_OVER_ASKED: HOUR, Kind.TINY_REQUESTS: HOUR}
    longest = {Kind.TIME_OVER_ASKED: 4 * HOUR}
    run_seconds = max(shortest.get(kind, 2 * HOUR // 3), min(drawn, longest.get(kind, 24 * HOUR)))
    return run_seconds // 60 * 60 if kind is Kind.TIMED_OUT else run_seconds


def _limit_seconds(random: Random, kind: Kind, run_seconds: int) -> int:
    """Draw the time limit; round numbers, as people type them."""
    if kind is Kind.TIMED_OUT:
        return run_seconds
    if kind is Kind.TIME_OVER_ASKED:
        return random.choice((24, 24, 48, 72)) * HOUR
    needed = run_seconds * random.uniform(1.05, 1.7)
    return _round_up(needed, (600, 1800, HOUR, 2 * HOUR))


def _round_up(seconds: float, steps: Sequence[int]) -> int:
    """Round up to the largest step that adds little."""
    step = max((step for step in steps if step <= seconds / 4), default=steps[0])
    return -int(-seconds // step) * step
