# SPDX-License-Identifier: Apache-2.0
"""Delete once a day what is older than its retention."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurmscope.errors import ArchiveError
from slurmscope.log import fields
from slurmscope.services.runtime.clock import Clock
from slurmscope.units import DAY_SECONDS, parse_seconds

logger = logging.getLogger(__name__)

RETRY_SECONDS = 3600
SHORTEST_KEEP_SECONDS = 7 * DAY_SECONDS


def parse_keep_seconds(given: object) -> float:
    """Parse a retention time: 0 for forever, or at least a week.

    365 without a unit would be six minutes, and deleted data cannot be restored. Accounting is also read again for a
    day, so jobs with a shorter retention would be archived again and again.
    """
    seconds = parse_seconds(given)
    if 0 < seconds < SHORTEST_KEEP_SECONDS:
        raise ValueError(f"{given!r} is less than the minimum of 7d; 0 keeps data forever")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionTask:
    """Delete old rows of one kind: ``delete`` deletes a part of what is older than a time, and returns how much."""

    name: str
    delete: Callable[[int], int]
    keep_seconds: float
    """Retention; 0 is for ever."""


class Retention:
    """Run the tasks of each day (UTC) in rounds, until a round deletes nothing; not thread-safe."""

    def __init__(self, tasks: Sequence[RetentionTask], clock: Clock) -> None:
        """Take the tasks; nothing is deleted yet."""
        self._tasks = [task for task in tasks if task.keep_seconds > 0]
        self._clock = clock
        self._done_day: int | None = None
        self._not_before = float("-inf")

    def work(self) -> None:
        """Do a round if one is due; failures are logged and retried in an hour."""
        today = int(self._clock.wall()) // DAY_SECONDS
        if today == self._done_day or self._clock.monotonic() < self._not_before:
            return
        try:
            counts = {task.name: task.delete(_limit(task, today)) for task in self._tasks}
        except ArchiveError as error:
            logger.warning("deleting old rows failed; retrying in an hour", extra=fields(reason=str(error)))
            self._not_before = self._clock.monotonic() + RETRY_SECONDS
            return
        if any(counts.values()):
            logger.info("old rows deleted", extra=fields(**counts))
        else:
            self._done_day = today


def _limit(task: RetentionTask, today: int) -> int:
    # By whole days: what expires during a day is deleted on the next.
    return today * DAY_SECONDS - int(task.keep_seconds)
