# SPDX-License-Identifier: Apache-2.0
"""Count what could not be read of jobs: a fault costs a value, a process or its job, never another job."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from slurmscope.log import fields

logger = logging.getLogger(__name__)

WHOLE_JOB = "job"


class ReadErrors:
    """Count failed reads by kind, and log the first of each kind."""

    def __init__(self) -> None:
        """Count failures of whole jobs from the start, so that the first one shows as an increase."""
        self._counts: Counter[str] = Counter({WHOLE_JOB: 0})
        self._others: dict[str, Mapping[str, int]] = {}

    def include(self, prefix: str, counts: Mapping[str, int]) -> None:
        """Add failures that are counted elsewhere to the totals, under a prefix."""
        self._others[prefix] = counts

    def totals(self) -> dict[str, int]:
        """Return all failures since the start."""
        others = {f"{prefix}_{what}": n for prefix, counts in self._others.items() for what, n in counts.items()}
        return {**self._counts, **others}

    def add(self, what: str, error: str, *, job_id: int) -> None:
        """Count one failure."""
        if not self._counts[what]:
            logger.warning("cannot read a job completely", extra=fields(what, what=what, job=job_id, error=error))
        self._counts[what] += 1
