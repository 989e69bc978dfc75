# SPDX-License-Identifier: Apache-2.0
"""Compare how long jobs of two sizes waited, where enough jobs of both are known."""

from __future__ import annotations

from slurmscope.analysis.pending.smaller_request import MIN_JOBS, WaitsByShape
from slurmscope.model.resubmission import ExpectedWait, RequestedSize
from slurmscope.model.waiting_times import WaitingTime, find_cores_class, find_limit_class


def find_wait(waits: WaitsByShape, size: RequestedSize) -> WaitingTime | None:
    """Return how long jobs of this size waited; None with too few of them."""
    found = waits.get((find_cores_class(size.cpus), find_limit_class(size.limit_seconds)))
    return found if found and found.jobs >= MIN_JOBS else None


def compare_waits(waits: WaitsByShape, submitted: RequestedSize, suggested: RequestedSize) -> ExpectedWait | None:
    """Return both waiting times; None where one is unknown, or both sizes count as the same shape."""
    before, after = find_wait(waits, submitted), find_wait(waits, suggested)
    if before is None or after is None or before is after:
        return None
    return ExpectedWait(
        submitted_seconds=before.median_seconds,
        suggested_seconds=after.median_seconds,
        jobs=min(before.jobs, after.jobs),
    )
