# SPDX-License-Identifier: Apache-2.0
"""Hold the samples that Slurm's own accounting plugins took of steps and tasks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class ProfileSeries(enum.Enum):
    """What a sample is about, as Slurm names it."""

    TASKS = "Tasks"
    ENERGY = "Energy"
    FILESYSTEM = "Filesystem"
    NETWORK = "Network"


class EventKind(enum.Enum):
    """What happened to a step."""

    STEP_START = "step_start"
    DATASET = "dataset"
    SAMPLE = "sample"
    TASK_END = "task_end"
    STEP_END = "step_end"


@dataclass(frozen=True, slots=True)
class StepKey:
    """Identify a step on a node; ``step`` is a number or batch, extern, interactive, unknown."""

    job_id: int
    step: str
    node: str


@dataclass(frozen=True, slots=True)
class SampledField:
    """Hold a field of a sample in Slurm's unit, and the sum of all its values since the step started.

    Where the sender does not add them up, ``total`` is the value itself until the agent has done so.
    """

    value: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Hold one sample; ``task`` is empty unless the series is about tasks.

    ``sampler`` is the Slurm plugin that took it. ``has_gpus`` is whether Slurm accounts GPUs; if not, its GPU
    fields are uninitialised memory.
    """

    series: ProfileSeries
    task: str = ""
    time_seconds: int = 0
    sampler: str = ""
    has_gpus: bool = False
    fields: Mapping[str, SampledField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent:
    """Hold one event of a step.

    ``start_seconds`` distinguishes two runs of the same step: a requeued job keeps its id. Events are numbered from 1;
    ``lost`` of the previous ones could not be sent.
    """

    kind: EventKind
    key: StepKey
    uid: int
    start_seconds: int
    number: int
    lost: int
    sample: Sample | None = None


Measured = Mapping[tuple[str, str], float]
"""Numbers in base units, by quantity and by task or sensor (else empty)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """Hold the current numbers of a step; ``samples`` has the last sample of each series and task."""

    key: StepKey
    has_ended: bool = False
    last_sample_seconds: int | None = None
    measured: Measured = field(default_factory=dict)
    samples: Mapping[tuple[ProfileSeries, str], Sample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Hold all profiled steps of this node, and what was received since the start; empty if profiling is off.

    ``push_errors`` counts failed pushes and deletions; None if nothing is pushed.
    """

    steps: tuple[ProfiledStep, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    lost: int | None = None
    push_errors: int | None = None
