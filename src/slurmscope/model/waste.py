# SPDX-License-Identifier: Apache-2.0
"""Attribute each lost core-hour and GPU-hour to one cause.

All time of a job that failed or reached its time limit is lost to that, however busy it was. Of other jobs, the idle
time is lost, as far as it was measured, and cores that no other job could use because the job requested memory that it
did not need.
"""

from __future__ import annotations

import enum

FAILED_STATES = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
"""Ended before their end; whether the job, its node or the scheduler is at fault."""
TIMEOUT_STATES = frozenset({"TIMEOUT", "DEADLINE"})
LOST_STATES = FAILED_STATES | TIMEOUT_STATES


class LossCause(enum.StrEnum):
    """Why time was lost."""

    FAILED = "failed"
    TIMEOUT = "timeout"
    IDLE = "idle"
    MEMORY = "memory"

    @property
    def label(self) -> str:
        """Return the cause as a heading."""
        return _LABELS[self]


_LABELS = {
    LossCause.FAILED: "Failed jobs",
    LossCause.TIMEOUT: "Time limit reached",
    LossCause.IDLE: "Idle cores and GPUs",
    LossCause.MEMORY: "Cores blocked by unused memory",
}


def find_state_cause(state: str) -> LossCause | None:
    """Return why all time of a job in this state is lost; None if it is not."""
    if state in FAILED_STATES:
        return LossCause.FAILED
    return LossCause.TIMEOUT if state in TIMEOUT_STATES else None
