# SPDX-License-Identifier: Apache-2.0
"""Estimate from other runs of the same name what the next one needs: their 95th percentile, and their growth.

Only completed runs are evidence for a smaller request. A run that was killed at its limit needed more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, linear_regression
from typing import NamedTuple

from slurmscope.model.resubmission import OtherRun
from slurmscope.rules.suggestions import MEMORY_MARGIN, OOM_MARGIN

MIN_RUNS = 5
"""Completed runs from which on a smaller request may be based on them alone."""
GROWTH_RUNS = 8
"""Runs from which on their growth over time is extrapolated."""
PERCENTILE = 0.95


class PastNeed(NamedTuple):
    """Hold what the next run is expected to need, and the largest need of any run."""

    expected: float
    largest: float
    runs: int
    completed: int

    @property
    def is_proven(self) -> bool:
        """Return whether enough runs completed to request less."""
        return self.completed >= MIN_RUNS


def past_seconds(runs: Sequence[OtherRun]) -> PastNeed | None:
    """Return the run time that other runs needed."""
    return _past(runs, _needed_seconds)


def past_bytes(runs: Sequence[OtherRun]) -> PastNeed | None:
    """Return the memory per node that other runs needed."""
    return _past(runs, _needed_bytes)


def _needed_seconds(run: OtherRun) -> float | None:
    if run.state == "TIMEOUT":
        return run.limit_seconds
    return run.run_seconds if run.state == "COMPLETED" else None


def _needed_bytes(run: OtherRun) -> float | None:
    if run.state == "OUT_OF_MEMORY":
        # The margin of an OOM-killed job is larger: its real need is unknown.
        return run.requested_bytes and run.requested_bytes * OOM_MARGIN / MEMORY_MARGIN
    return run.peak_bytes


def _past(runs: Sequence[OtherRun], needed: Callable[[OtherRun], float | None]) -> PastNeed | None:
    ordered = sorted(runs, key=lambda run: run.start_seconds)
    known = [(run, need) for run in ordered if (need := needed(run)) is not None]
    if not known:
        return None
    needs = [need for _, need in known]
    completed = [need for run, need in known if run.state == "COMPLETED"]
    expected = max(_percentile(needs), _grown(completed))
    return PastNeed(expected, max(completed, default=0.0), len(known), len(completed))


def _percentile(needs: Sequence[float]) -> float:
    """Return the nearest rank: of up to 20 runs the largest."""
    return sorted(needs)[math.ceil(PERCENTILE * len(needs)) - 1]


def _grown(needs: Sequence[float]) -> float:
    """Return the need of the next run if runs keep growing, with the deviation seen so far; 0 if they do not."""
    count = len(needs)
    if count < GROWTH_RUNS:
        return 0.0
    slope, intercept = linear_regression(range(count), needs)
    # Less than this from the first run to the last is noise.
    if slope * count < 0.1 * fmean(needs):
        return 0.0
    deviation = max(need - (intercept + slope * index) for index, need in enumerate(needs))
    return intercept + slope * count + deviation
