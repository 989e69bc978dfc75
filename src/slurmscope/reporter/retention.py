# SPDX-License-Identifier: Apache-2.0
"""Delete once a day what is older than its retention, as configured, after partitions for new rows were made.

One wrong clock must not empty the archive. The age of a row is counted from the newest archived job as well, whose time
comes from Slurm; a day deletes at most what two more weeks contain; and the next day begins when a day has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, ConfigError
from slurmscope.core.log import fields
from slurmscope.core.settings import duration, setting
from slurmscope.core.units import DAY_SECONDS, format_duration, parse_seconds

logger = logging.getLogger(__name__)


RETRY_SECONDS = 3600
DAY_BEGINS_SECONDS = 20 * 3600
"""Shortest time between the work of two days, by the monotonic clock."""
MAX_STEP_SECONDS = 14 * DAY_SECONDS
"""How much older rows than those of the day before may be deleted on one day."""
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


class ReporterCheckpoints(Protocol):
    """Store texts by name in the archive."""

    def read_checkpoint(self, name: str) -> str | None:
        """Return the stored text; None if there is none."""
        ...

    def write_checkpoint(self, name: str, text: str) -> None: ...


@dataclass(slots=True)
class _DailyWork:
    """Do a part of the work of each day (UTC), given the day and when the newest job was submitted."""

    name: str
    do: Callable[[int, int], int]
    """Return 0 when the work of the day is done."""
    done_day: int | None = None
    not_before: float = float("-inf")


class Retention:
    """Do the work of each day in rounds, each task until a round deletes nothing; not thread-safe."""

    def __init__(
        self,
        tasks: Sequence[RetentionTask],
        clock: Clock,
        *,
        prepare: Callable[[], None],
        checkpoints: ReporterCheckpoints,
        newest: Callable[[], int | None],
    ) -> None:
        """Take the tasks, what makes partitions, and what returns when the newest archived job was submitted."""
        self._prepare = prepare
        self._works = [_DailyWork("partitions", self._make_partitions)]
        self._works += [_DailyWork(task.name, partial(self._delete, task)) for task in tasks if task.keep_seconds > 0]
        self._clock = clock
        self._checkpoints = checkpoints
        self._newest = newest

    def work(self) -> bool:
        """Do a round of what is due; what fails is logged and retried in an hour.

        Return whether another process need not try it: something succeeded, or nothing was due and the archive answers.
        """
        today, monotonic = int(self._clock.wall()) // DAY_SECONDS, self._clock.monotonic()
        try:
            newest = self._newest()
        except ArchiveError as error:
            logger.warning("the archive cannot be read; nothing is deleted", extra=fields(reason=str(error)))
            return False
        if newest is None:  # its day begins with its first job
            return True
        due = [work for work in self._works if today != work.done_day and monotonic >= work.not_before]
        counts = {work.name: self._work(work, today, newest) for work in due}
        if deleted := {name: count for name, count in counts.items() if count}:
            logger.info("old rows deleted or thinned", extra=fields(**deleted))
        return not due or any(count is not None for count in counts.values())

    def _work(self, work: _DailyWork, today: int, newest: int) -> int | None:
        """Do a round of one task; return how much was deleted, None if it failed."""
        try:
            count = work.do(today, newest)
        except ArchiveError as error:
            reason = fields(work.name, task=work.name, reason=str(error))
            logger.warning("daily maintenance of the archive failed; retrying in an hour", extra=reason)
            work.not_before = self._clock.monotonic() + RETRY_SECONDS
            return None
        if count == 0:
            work.done_day = today
            work.not_before = self._clock.monotonic() + DAY_BEGINS_SECONDS
        return count

    def _make_partitions(self, *_: int) -> int:
        self._prepare()
        return 0

    def _delete(self, task: RetentionTask, today: int, newest: int) -> int:
        """Return how much was deleted."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterSettings:
    """How ended jobs are archived, and how long they are kept."""

    enabled: bool = setting(
        True,
        "Archive ended jobs, unless another portal of the same archive does; if disabled, only serve pages.",
        flag="reporter",
    )
    interval: float = duration(
        60.0, "Interval between polls of accounting; a job is summarized two intervals after its end."
    )
    look_back: float = duration(7 * 86400.0, "How far back to read jobs when the archive is new.", parse=parse_seconds)
    give_up: float = 7 * 86400.0
    """How long after its end a job is measured again whose numbers Prometheus did not return."""
    keep_curves: float = duration(
        365 * 86400.0,
        "How long to keep curves of ended jobs, at least 7d; totals and findings remain. 0s keeps them forever.",
        parse=parse_keep_seconds,
    )
    thin_curves_after: float = duration(
        0.0,
        "Age at which curves of ended jobs are thinned, at least 7d; 0s never thins them.",
        parse=parse_keep_seconds,
    )
    keep_jobs: float = duration(
        0.0, "How long to keep ended jobs, at least 7d; 0s keeps them forever.", parse=parse_keep_seconds
    )
    keep_audit: float = duration(
        365 * 86400.0,
        "How long to keep audit records of staff access, at least 7d; 0s keeps them forever.",
        parse=parse_keep_seconds,
    )
    admin_comment: bool = setting(
        False,
        "Store the numbers of each ended job in Slurm's AdminComment, in the format of jobstats, which reportseff "
        "reads; replaces comments of others, and needs an operator's rights. Stops if sacctmgr changes the first "
        "comment, as that of Slurm 22.05 does.",
    )

    @property
    def settle(self) -> float:
        """Return the seconds from the end of a job until it is summarized, so that its last samples arrive."""
        return 2 * self.interval


def check_retention(settings: ReporterSettings) -> None:
    """Raise ConfigError if curves would be deleted before they are thinned."""
    thin, keep = settings.thin_curves_after, settings.keep_curves
    if thin and 0 < keep <= thin:
        raise ConfigError(
            f"reporter.thin-curves-after is {format_duration(thin)}, but reporter.keep-curves deletes curves after "
            f"{format_duration(keep)}: none would be thinned"
        )
