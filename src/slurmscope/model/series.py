# SPDX-License-Identifier: Apache-2.0
"""Hold curves and totals of jobs over time, and say what a source of them can be asked."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

JOB_LABEL = "slurm_job"
NODE_LABEL = "slurm_node"


class Aggregation(enum.StrEnum):
    """Say what is made of the samples within one step, or within the whole run."""

    RATE = "rate"
    """Growth of a counter per second, over resets."""
    MEAN = "mean"
    MAX = "max"
    """The highest sample; of a counter that starts with the job and never falls, its total."""
    TOTAL = "total"
    """The total of a counter that starts with the job, over falls; of one step, its last sample.

    It falls when an agent that is started anew has forgotten processes that ended. What it then shows are the processes
    that are there, and most of that was counted before. So only what it grows afterwards is added; a rate would add
    everything that it shows.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """Ask for one metric of jobs.

    ``each`` names the labels that tell the series of one job apart: where two servers hold the same series, the higher
    one counts. ``by`` names those of them that are kept; over the others it is summed up. ``where`` narrows by label
    values.
    """

    metric: str
    how: Aggregation
    each: tuple[str, ...] = (NODE_LABEL,)
    by: tuple[str, ...] = (NODE_LABEL,)
    where: tuple[tuple[str, str], ...] = ()


class JobSpan(NamedTuple):
    """Name one run of a job: a requeued job has the same number and another start."""

    job_id: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Series:
    """Hold the points of one curve; what was not measured is not there.

    ``labels`` are the values of the labels that were asked for with ``by``, in that order.
    """

    labels: tuple[str, ...]
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Hold what was answered for several jobs; a job of which nothing is known is not in it."""

    by_job: Mapping[int, tuple[Series, ...]] = field(default_factory=dict)
    is_partial: bool = False
    """Whether the source left something out."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold one number for each series of several jobs, by the values of its labels."""

    by_job: Mapping[int, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    is_partial: bool = False


def total_of_rises(values: Sequence[float]) -> float:
    """Add up what a counter grew, from 0 at the start of the job; a fall adds nothing.

    An agent that was started anew has mostly forgotten little: to take a fall for a new beginning would count the rest
    twice.
    """
    return values[0] + math.fsum(max(0.0, after - before) for before, after in pairwise(values))


class SeriesSource(Protocol):
    """Answer questions about the past; ``until`` is a monotonic time. What goes wrong is a ``SourceError``."""

    @property
    def questions_at_once(self) -> int:
        """Return how many threads may ask before the next one only makes the others wait."""
        ...

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most so many points each, one question for all jobs where that can be."""
        ...

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> Totals:
        """Return one number per series, over the whole span of each job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Gather what was measured of one job, by the names of the questions in ``analysis.wanted``."""

    curves: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences about what could not be asked."""
