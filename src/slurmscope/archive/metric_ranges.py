# SPDX-License-Identifier: Apache-2.0
"""Define the numbers of a job by which lists are filtered and counted in histograms."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ValueKind(enum.StrEnum):
    """How a number is written: as a share, a duration, a count, or core-hours."""

    RATIO = "ratio"
    SECONDS = "seconds"
    COUNT = "count"
    CORE_SECONDS = "core_seconds"


class JobMetric(enum.StrEnum):
    """A number of a job, by its name in ``JobRow``."""

    CPU = "cpu_ratio"
    MEMORY = "memory_ratio"
    GPU = "gpu_ratio"
    TIME = "time_ratio"
    WAIT = "wait_seconds"
    RUN = "run_seconds"
    CORES = "cpus"
    NODES = "nodes"
    GPUS = "gpus"
    CORE_TIME = "core_seconds"

    @property
    def key(self) -> str:
        return self.name.lower()

    @property
    def label(self) -> str:
        """Return the name for people."""
        return _SHOWN[self][0]

    @property
    def kind(self) -> ValueKind:
        """Return how the number is written."""
        return _SHOWN[self][1]

    @property
    def edges(self) -> tuple[float, ...]:
        """Return the bounds between the classes of a histogram; the first and the last class are open."""
        return _EDGES[self.kind]


_SHOWN = {
    JobMetric.CPU: ("CPU use", ValueKind.RATIO),
    JobMetric.MEMORY: ("Memory use", ValueKind.RATIO),
    JobMetric.GPU: ("GPU use", ValueKind.RATIO),
    JobMetric.TIME: ("Used share of the time limit", ValueKind.RATIO),
    JobMetric.WAIT: ("Waiting time", ValueKind.SECONDS),
    JobMetric.RUN: ("Run time", ValueKind.SECONDS),
    JobMetric.CORES: ("Cores", ValueKind.COUNT),
    JobMetric.NODES: ("Nodes", ValueKind.COUNT),
    JobMetric.GPUS: ("GPUs", ValueKind.COUNT),
    JobMetric.CORE_TIME: ("Core-hours", ValueKind.CORE_SECONDS),
}
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_EDGES = {
    ValueKind.RATIO: tuple(tenth / 10 for tenth in range(1, 11)),
    ValueKind.SECONDS: (
        _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY,
    ),
    ValueKind.COUNT: (2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 129.0, 257.0, 513.0),
    ValueKind.CORE_SECONDS: tuple(_HOUR * 10**power for power in range(6)),
}  # fmt: skip


class MetricRange(NamedTuple):
    """Select jobs whose number is known, at least ``low``, and less than ``high``; None is without bound."""

    metric: JobMetric
    low: float | None
    high: float | None

    def contains(self, number: float | None) -> bool:
        """Return whether a number is in the range; one that is unknown is not."""
        if number is None:
            return False
        return (self.low is None or number >= self.low) and (self.high is None or number < self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistogram:
    """How many jobs are in each class of a metric, of the newest ones."""

    metric: JobMetric
    counts: tuple[int, ...]
    """One more than the metric has edges."""
    unknown: int
    """Jobs for which the number is not known."""
    is_cut: bool
    """Whether older jobs were left out."""
    since_seconds: int | None
    """When the oldest of these jobs was submitted; None without jobs."""

    @property
    def ranges(self) -> Sequence[MetricRange]:
        edges = self.metric.edges
        return [MetricRange(self.metric, low, high) for low, high in zip((None, *edges), (*edges, None), strict=True)]
