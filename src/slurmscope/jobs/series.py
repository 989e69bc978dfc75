# SPDX-License-Identifier: Apache-2.0
"""Hold curves and totals of jobs, and define the interface of their sources."""

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
    """How samples within one step, or within the whole run, are aggregated."""

    RATE = "rate"
    """Rate of a counter per second, with resets."""
    MEAN = "mean"
    MAX = "max"
    """The highest sample; for a counter that starts with the job and never decreases, its total."""
    TOTAL = "total"
    """The total of a counter that starts with the job, over decreases; within one step, its last sample.

    It decreases when a restarted agent no longer counts processes that ended. What remains are running processes, most
    of which was counted before. So only later increases are added; a rate would add the whole remaining value.
    """


class DerivedLabel(NamedTuple):
    """Derive a label from another one: the first group of a pattern that matches its whole value."""

    name: str
    source: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """Query one metric of jobs.

    ``each`` names the labels that distinguish the series of one job: where two servers have the same series, the higher
    value counts. ``by`` names the labels to keep; values are summed over the others. ``where`` selects label values,
    and ``among`` several values of a label. ``job_label`` has the job ID.
    """

    metric: str
    how: Aggregation
    each: tuple[str, ...] = (NODE_LABEL,)
    by: tuple[str, ...] = (NODE_LABEL,)
    where: tuple[tuple[str, str], ...] = ()
    job_label: str = JOB_LABEL
    derived: tuple[DerivedLabel, ...] = ()
    among: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_foreign: bool = False
    """Whether the metric comes from an exporter of others: there, more may follow the job ID after a colon."""
    may_fall: bool = False
    """Whether a fall of the counter is a loss, as described at ``TOTAL``: a curve shows no rate there."""
    cluster: str = ""
    """The cluster of the jobs. Job IDs and node names repeat in others, whose series a source may have as well."""


class JobSpan(NamedTuple):
    """Identify one run of a job: a requeued job has the same id and another start."""

    job_id: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Series:
    """The measured points of one curve.

    ``labels`` are the values of the labels in ``by`` of the query, in that order.
    """

    labels: tuple[str, ...]
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of several jobs; jobs without data are left out."""

    by_job: Mapping[int, tuple[Series, ...]] = field(default_factory=dict)
    lost_jobs: frozenset[int] = frozenset()
    """Jobs of which the source returned only a part, or nothing."""

    @property
    def is_partial(self) -> bool:
        """Return whether the source returned partial results."""
        return bool(self.lost_jobs)


@dataclass(frozen=True, slots=True)
class JobTotals:
    """One value per series of several jobs, by the values of its labels."""

    by_job: Mapping[int, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    lost_jobs: frozenset[int] = frozenset()
    """Jobs without totals because the source did not return all of them."""

    @property
    def is_partial(self) -> bool:
        """Return whether the source returned partial results."""
        return bool(self.lost_jobs)


def total_of_rises(values: Sequence[float]) -> float:
    """Add up the increases of a counter, from 0 at the start of the job; a decrease adds nothing.

    A restarted agent has mostly lost little: treating a decrease as a reset would count the rest twice.
    """
    return values[0] + math.fsum(max(0.0, after - before) for before, after in pairwise(values))


class SeriesSource(Protocol):
    """Read time series of jobs; ``until`` is a monotonic time. Raises ``SourceError``."""

    @property
    def max_concurrent_queries(self) -> int:
        """Return how many queries should run concurrently."""
        ...

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most ``points`` points each, with one query for all jobs where possible."""
        ...

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one value per series, over the whole span of each job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of one job, by the names of the queries in ``analysis.queries``."""

    curves: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences about queries that failed."""
