# SPDX-License-Identifier: Apache-2.0
"""Define the job states, and which of them are pending and which have ended."""

from __future__ import annotations

PENDING = "PENDING"
RUNNING = "RUNNING"
SUSPENDED = "SUSPENDED"
REQUEUED = "REQUEUED"
REVOKED = "REVOKED"

BASE_STATES = (
    PENDING, RUNNING, SUSPENDED, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""The states that Slurm numbers from 0, in that order; all others are flags on one of these."""

ENDED_STATES = frozenset({*BASE_STATES, REVOKED} - {PENDING, RUNNING, SUSPENDED})
"""States in which a job neither holds nor requests resources."""

WAITING_STATES = frozenset({PENDING, REQUEUED, "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", REVOKED, "SPECIAL_EXIT"})
"""States in which squeue shows a job that has not started, or has to start again."""
