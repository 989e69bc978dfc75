# SPDX-License-Identifier: Apache-2.0
"""Delete once a day what is older than its retention.

One wrong clock must not empty the archive. The age of a row is counted from the newest archived job as well, whose time
comes from Slurm; a day deletes at most what two more weeks contain; and the next day begins when a day has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurmscope.errors import ArchiveError
from slurmscope.log import fields
from slurmscope.model.report import MAX_CHART_POINTS
from slurmscope.services.runtime.clock import Clock
from slurmscope.settings import parse_count
from slurmscope.units import DAY_SECONDS, parse_seconds

logger = logging.getLogger(__name__)

RETRY_SECONDS = 3600
DAY_BEGINS_SECONDS = 20 * 3600
"""Shortest time between the work of two days, by the monotonic clock."""
MAX_STEP_SECONDS = 14 * DAY_SECONDS
"""How much older rows than those of the day before may be deleted on one day."""
SHORTEST_KEEP_SECONDS = 7 * DAY_SECONDS
FEWEST_POINTS = 10


def parse_keep_seconds(given: object) -> float:
    """Parse a retention time: 0 for forever, or at least a week.

    365 without a unit would be six minutes, and deleted data cannot be restored. Accounting is also read again for a
    day, so jobs with a shorter retention would be archived again and again.
    """
    seconds = parse_seconds(given)
    if 0 < seconds < SHORTEST_KEEP_SECONDS:
        raise ValueError(f"{given!r} is less than the minimum of 7d; 0 keeps data forever")
    return seconds


def parse_points(given: object) -> int:
    """Parse the number of points of a thinned curve."""
    points = parse_count(given)
    if not FEWEST_POINTS <= points <= MAX_CHART_POINTS:
        raise ValueError(f"{given!r} is not a number of points from {FEWEST_POINTS} to {MAX_CHART_POINTS}")
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionTask:
    """Delete old rows of one kind: ``delete`` deletes a part of what is older than a time, and returns how much."""

    name: str
    delete: Callable[[int], int]
    keep_seconds: float
    """Retention; 0 is for ever."""


class ReporterCheckpoints(Protocol):
    """Store texts by name in the archive."""

    def read_checkpoint(self, name: str) -> str | None:
        """Return the stored text; None if there is none."""
        ...

    def write_checkpoint(self, name: str, text: str) -> None:
        """Store a text."""
        ...


@dataclass(slots=True)
class _Schedule:
    """Say when a task is due."""

    done_day: int | None = None
    not_before: float = float("-inf")


class Retention:
    """Run each task of each day (UTC) in rounds, until a round deletes nothing; not thread-safe."""

    def __init__(
        self,
        tasks: Sequence[RetentionTask],
        clock: Clock,
        *,
        checkpoints: ReporterCheckpoints,
        newest: Callable[[], int | None],
    ) -> None:
        """Take the tasks, and the function that returns when the newest archived job was submitted."""
        self._schedules = [(task, _Schedule()) for task in tasks if task.keep_seconds > 0]
        self._clock = clock
        self._checkpoints = checkpoints
        self._newest = newest

    def work(self) -> None:
        """Do a round of the tasks that are due; one that fails is logged and retried in an hour."""
        today, monotonic = int(self._clock.wall()) // DAY_SECONDS, self._clock.monotonic()
        counts = {
            task.name: self._work(task, schedule, today)
            for task, schedule in self._schedules
            if today != schedule.done_day and monotonic >= schedule.not_before
        }
        if any(counts.values()):
            logger.info("old rows deleted or thinned", extra=fields(**counts))

    def _work(self, task: RetentionTask, schedule: _Schedule, today: int) -> int:
        """Do a round of one task; return how much was deleted."""
        try:
            count = self._delete(task, today)
        except ArchiveError as error:
            reason = fields(task=task.name, reason=str(error))
            logger.warning("deleting old rows failed; retrying in an hour", extra=reason)
            schedule.not_before = self._clock.monotonic() + RETRY_SECONDS
            return 0
        if count == 0:
            schedule.done_day = today
            schedule.not_before = self._clock.monotonic() + DAY_BEGINS_SECONDS
        return count or 0

    def _delete(self, task: RetentionTask, today: int) -> int | None:
        """Return how much was deleted; None for an archive without jobs, whose day begins with the first of them.

        The archive makes partitions for new jobs by the way, and those of the first day need them too.
        """
        newest = self._newest()
        if newest is None:
            return None
        # By whole days: what expires during a day is deleted on the next.
        limit = self._find_limit(task, min(today, newest // DAY_SECONDS + 1) * DAY_SECONDS)
        count = task.delete(limit)
        if not count:
            self._checkpoints.write_checkpoint(_checkpoint(task), str(limit))
        return count

    def _find_limit(self, task: RetentionTask, now: int) -> int:
        limit = now - int(task.keep_seconds)
        reached = self._checkpoints.read_checkpoint(_checkpoint(task)) or ""
        return min(limit, int(reached) + MAX_STEP_SECONDS) if reached.isdecimal() else limit


def _checkpoint(task: RetentionTask) -> str:
    return f"{task.name} deleted until"
