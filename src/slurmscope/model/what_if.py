# SPDX-License-Identifier: Apache-2.0
"""Hold what a run would have done with another request, as far as its measurements answer that."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRequest:
    """Hold another request for a run; None is as submitted. Memory is per node, as ``--mem``."""

    cpus: int | None = None
    memory_bytes: float | None = None
    limit_seconds: float | None = None


class Verdict(enum.StrEnum):
    """Whether a request would have been enough."""

    ENOUGH = "enough"
    TOO_LITTLE = "too little"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome:
    """Hold when the run would have been OOM-killed, in seconds after its start; None is unknown."""

    verdict: Verdict
    needed_bytes: float | None = None
    """The highest known need of any node."""
    killed_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutcome:
    """Hold how long the run would have taken at least, None if that is unknown, and whether the limit is enough."""

    verdict: Verdict
    run_seconds: float | None = None
    cut_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """Hold the outcome of another request, and how long jobs of its size waited."""

    request: OtherRequest
    memory: MemoryOutcome
    time: TimeOutcome
    wait_seconds: float | None = None
    """Median waiting time of jobs of this size; None with too few of them."""
    submitted_wait_seconds: float | None = None
