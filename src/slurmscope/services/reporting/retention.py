# SPDX-License-Identifier: Apache-2.0
"""Take out once a day what was kept for long enough."""

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
    """Read how long something is kept: 0 for ever, or at least a week.

    365 without its unit would be six minutes, and what was taken out does not come back. And accounting is read again
    for a day: what was forgotten earlier would be archived again and again.
    """
    seconds = parse_seconds(given)
    if 0 < seconds < SHORTEST_KEEP_SECONDS:
        raise ValueError(f"{given!r} is less than 7d; 0 keeps for ever")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Say what is taken out, and when: ``forget`` takes a part of what is older, and returns how much."""

    name: str
    forget: Callable[[int], int]
    keep_seconds: float
    """How long it is kept; 0 is for ever."""


class Retention:
    """Do the chores of each day (UTC) in rounds, until a round finds nothing to do; one thread may call it."""

    def __init__(self, chores: Sequence[Chore], clock: Clock) -> None:
        """Take what is to be done; nothing is taken out yet."""
        self._chores = [chore for chore in chores if chore.keep_seconds > 0]
        self._clock = clock
        self._done_day: int | None = None
        self._not_before = float("-inf")

    def work(self) -> None:
        """Do a round if one is due; what fails is told, and tried again in an hour."""
        today = int(self._clock.wall()) // DAY_SECONDS
        if today == self._done_day or self._clock.monotonic() < self._not_before:
            return
        try:
            counts = {chore.name: chore.forget(_limit(chore, today)) for chore in self._chores}
        except ArchiveError as error:
            logger.warning("old rows are not taken out for now", extra=fields(reason=str(error)))
            self._not_before = self._clock.monotonic() + RETRY_SECONDS
            return
        if any(counts.values()):
            logger.info("old rows are taken out", extra=fields(**counts))
        else:
            self._done_day = today


def _limit(chore: Chore, today: int) -> int:
    # By whole days: what becomes old in the course of one waits for the next.
    return today * DAY_SECONDS - int(chore.keep_seconds)
