# SPDX-License-Identifier: Apache-2.0
"""Decide when to take the next sample: often at the start, so that short commands are measured, then rarely."""

from __future__ import annotations

SHORTEST_SECONDS = 0.02
GROWTH = 0.1
"""The interval grows by this share of the run time so far, up to the sample rate."""
FREE_SECONDS = 0.02
"""CPU time of sampling that every command may cost."""
LEAST_REST = 500.0
"""Beyond that we rest this many times as long as a sample took: 0.2 % of one core at most."""


def next_interval(elapsed_seconds: float, sample_rate: float, *, cost_seconds: float, spent_seconds: float) -> float:
    """Return the time until the next sample; the last one cost some CPU time, and all of them what was spent."""
    wanted = min(sample_rate, max(SHORTEST_SECONDS, GROWTH * elapsed_seconds))
    return max(wanted, LEAST_REST * cost_seconds) if spent_seconds > FREE_SECONDS else wanted
