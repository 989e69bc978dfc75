# SPDX-License-Identifier: Apache-2.0
"""Measure jobs in parts: as many at once as the time series server answers for, down to single ones.

A server that fails for many jobs may answer for fewer, and one that fails for a single job may answer for others. What
one round spends on a failing server is bounded: the jobs that are left are not tried before the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from slurmscope.core.errors import ServerRefused, SourceError
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.reports.make import ReportMaker

BATCH_JOBS = 100
GROW_AFTER = 10
"""After so many answers in a row, twice as many jobs are queried at once: a server may be slow for a moment only."""
MAX_FAILED = 12
"""Single jobs that may fail in one round; each may take a minute."""
MAX_FAILED_FIRST = 3
"""If this many fail before the server answered for any other, the server may be failing, not the jobs."""


class MeasureOutcome(Enum):
    """How the time series server responded for some jobs."""

    ANSWERED = "answered"
    FAILED = "failed"
    UNTRIED = "untried"


class MeasuredPart(NamedTuple):
    """Some jobs that were measured together; those that were not tried have no reports."""

    outcome: MeasureOutcome
    records: Sequence[JobRecord]
    reports: list[JobReport]


class Measurer:
    """Make reports of jobs in parts. Not thread-safe."""

    def __init__(self, maker: ReportMaker) -> None:
        self._maker = maker
        self._jobs_at_once = BATCH_JOBS
        self._answers_in_a_row = 0
        self._has_failed_alone = False
        self._failure: SourceError | None = None
        self.begin_round()

    def begin_round(self) -> None:
        """Try the server again, whatever it did before."""
        self._failed = 0
        self.has_answered = False
        self.is_stopped = False

    @property
    def has_series(self) -> bool:
        """Return whether there is a time series server."""
        return self._maker.has_series

    @property
    def problem(self) -> str:
        """Return why nothing can be measured; empty if the server answered for any job of this round."""
        return str(self._failure) if self.is_stopped and not self.has_answered else ""

    def measure(self, records: Sequence[JobRecord]) -> Iterator[MeasuredPart]:
        """Yield all of these jobs in parts; nothing is queried for those that never ran."""
        left = [record for record in records if has_run(record)]
        if len(left) < len(records):
            others = [record for record in records if not has_run(record)]
            yield MeasuredPart(MeasureOutcome.ANSWERED, others, self._maker.make(others))
        while left and not self.is_stopped:
            part = left[: self._jobs_at_once]
            reports, failure = self._maker.try_make(part)
            if failure is None:
                self._note_answer()
            elif isinstance(failure, ServerRefused):
                self._stop(failure)
                break
            elif len(part) > 1:
                self._jobs_at_once, self._answers_in_a_row = len(part) // 2, 0
                continue
            else:
                self._note_failed_job(failure)
            yield MeasuredPart(MeasureOutcome.FAILED if failure else MeasureOutcome.ANSWERED, part, reports)
            left = left[len(part) :] if failure is None else _with_others_first(left[1:])
        if left:
            yield MeasuredPart(MeasureOutcome.UNTRIED, left, [])

    def make_unmeasured(self, records: Sequence[JobRecord]) -> list[JobReport]:
        """Make reports of jobs that were not tried, from accounting alone."""
        return self._maker.make_unmeasured(records, f"The time series server failed: {self._failure}")

    def _note_answer(self) -> None:
        """Query for more jobs at once after some answers, or if the jobs before failed by themselves."""
        self._answers_in_a_row += 1
        if self._has_failed_alone or self._answers_in_a_row == GROW_AFTER:
            self._jobs_at_once, self._answers_in_a_row = min(BATCH_JOBS, 2 * self._jobs_at_once), 0
        self._has_failed_alone = False
        self.has_answered = True

    def _note_failed_job(self, failure: SourceError) -> None:
        self._answers_in_a_row, self._has_failed_alone = 0, True
        self._failed += 1
        if self._failed >= (MAX_FAILED if self.has_answered else MAX_FAILED_FIRST):
            self._stop(failure)

    def _stop(self, failure: SourceError) -> None:
        self.is_stopped, self._failure = True, failure


def has_run(record: JobRecord) -> bool:
    """Return whether a job ran, or runs: then there are queries for it."""
    start, end = record.start_seconds, record.end_seconds
    return start is not None and (end is None or end > start)


def _with_others_first(left: Sequence[JobRecord]) -> list[JobRecord]:
    """Continue at the other end, then in the middle: neighbours may be tasks of one array, and fail alike."""
    half = len(left) // 2
    return [*reversed(left[half:]), *left[:half]]
