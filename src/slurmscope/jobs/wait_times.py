# SPDX-License-Identifier: Apache-2.0
"""Sum up how long jobs waited, by their shape: cores and time limit.

A job waits from the time it was eligible to start, or else from its submission, until it started. Waiting times are
counted in classes whose bounds grow by the square root of 2, so that a quantile is right within a fifth.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass

from slurmscope.core.units import DAY_SECONDS, HOUR_SECONDS

CORES_BOUNDS = (1, 4, 16, 64, 256)
"""The most cores of each class; larger jobs are a class of their own."""
LIMIT_BOUNDS_SECONDS = (
    HOUR_SECONDS, 4 * HOUR_SECONDS, 12 * HOUR_SECONDS, DAY_SECONDS, 3 * DAY_SECONDS, 7 * DAY_SECONDS,
)  # fmt: skip
"""The longest time limit of each class; longer ones, and jobs without a limit, are a class of their own."""
MAX_WAIT_CLASS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTime:
    """How long jobs of one shape waited in one partition; the classes are numbered from 0."""

    partition: str
    cores_class: int
    limit_class: int
    jobs: int
    median_seconds: float
    p90_seconds: float


def find_cores_class(cpus: int) -> int:
    """Return the number of the class of jobs with so many cores."""
    return bisect.bisect_left(CORES_BOUNDS, cpus)


def find_limit_class(time_limit_seconds: float | None) -> int:
    """Return the number of the class of jobs with this time limit; None is no limit."""
    return bisect.bisect_left(LIMIT_BOUNDS_SECONDS, math.inf if time_limit_seconds is None else time_limit_seconds)


def find_wait_class(wait_seconds: float) -> int:
    """Return the number of the class of this waiting time: 0 is less than a second."""
    return 0 if wait_seconds < 1 else min(1 + math.floor(2 * math.log2(wait_seconds)), MAX_WAIT_CLASS)


def find_quantile(jobs_by_class: Mapping[int, int], share: float) -> float:
    """Return the waiting time that this share of the jobs did not exceed; 0 without jobs."""
    rank = share * sum(jobs_by_class.values())
    passed = 0.0
    for wait_class, jobs in sorted(jobs_by_class.items()):
        if jobs > 0 and passed + jobs >= rank:
            low, high = _wait_bounds(wait_class)
            return low + (high - low) * (rank - passed) / jobs
        passed += jobs
    return 0.0


def make_waiting_time(
    partition: str, cores_class: int, limit_class: int, jobs_by_class: Mapping[int, int]
) -> WaitingTime:
    """Sum up the jobs of one shape, given by the class of their waiting time."""
    return WaitingTime(
        partition=partition,
        cores_class=cores_class,
        limit_class=limit_class,
        jobs=sum(jobs_by_class.values()),
        median_seconds=find_quantile(jobs_by_class, 0.5),
        p90_seconds=find_quantile(jobs_by_class, 0.9),
    )


def label_cores(cores_class: int) -> str:
    lower = 1 if cores_class == 0 else CORES_BOUNDS[cores_class - 1] + 1
    if cores_class >= len(CORES_BOUNDS):
        return f"{lower}+"
    upper = CORES_BOUNDS[cores_class]
    return str(upper) if lower == upper else f"{lower}-{upper}"


def label_limit(limit_class: int) -> str:
    """Return the time limits of a class: ``up to 4 h``, ``more than 7 d``."""
    if limit_class >= len(LIMIT_BOUNDS_SECONDS):
        return f"more than {_label_time(LIMIT_BOUNDS_SECONDS[-1])}"
    return f"up to {_label_time(LIMIT_BOUNDS_SECONDS[limit_class])}"


def _label_time(seconds: int) -> str:
    return f"{seconds // HOUR_SECONDS} h" if seconds <= DAY_SECONDS else f"{seconds // DAY_SECONDS} d"


def _wait_bounds(wait_class: int) -> tuple[float, float]:
    return (0.0, 1.0) if wait_class == 0 else (2 ** ((wait_class - 1) / 2), 2 ** (wait_class / 2))
