# SPDX-License-Identifier: Apache-2.0
"""Measure ended jobs again whose reports miss numbers that the time series server did not return.

All of them are measured when the server answers again, a bounded number in each round. Those that still miss numbers
are tried again every hour for some hours, since samples may arrive late, and then daily until a week after their end.
A pass goes on to its last job, whatever happens meanwhile: none waits because of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from slurmscope.archive.interface import IncompleteRun
from slurmscope.core.clock import Clock
from slurmscope.core.errors import SourceError
from slurmscope.jobs.report import JobReport
from slurmscope.reporter.ended_reports import BATCH_JOBS, WHOLE_SERVER, EndedReports
from slurmscope.reporter.known_agents import DELIVERED_SECONDS

if TYPE_CHECKING:
    from slurmscope.archive.sql_archive import SqlArchive

ROUND_JOBS = 500
MAX_AGE_SECONDS = 7 * 86400
RECENT_SECONDS = DELIVERED_SECONDS + 2 * 3600
"""Age of jobs that are tried every hour: at the last time all of their samples have arrived."""
RECENT_PAUSE_SECONDS = 3600.0
WHOLE_PAUSE_SECONDS = 86400.0


class IncompleteReports:
    """Complete reports, round by round. Not thread-safe."""

    def __init__(
        self,
        archive: SqlArchive,
        ended: EndedReports,
        save: Callable[[Sequence[JobReport]], None],
        clock: Clock,
        *,
        cluster: str,
    ) -> None:
        """Take the archive, what makes reports, what stores them, and the cluster whose jobs they are."""
        self._archive = archive
        self._ended = ended
        self._save = save
        self._clock = clock
        self._cluster = cluster
        self._after = 0
        self._recoveries = 0
        """Recoveries of the server before this pass, or the last one, began."""
        self._is_whole = True
        """Whether this pass, or the last one, is about all jobs and not only about recent ones."""
        self._due = 0.0
        self._whole_due = 0.0

    def work(self) -> None:
        """Measure some of the jobs again, in every round while the server fails; raise errors of the archive."""
        now = self._clock.monotonic()
        if self._ended.is_server_failing or self._recoveries != self._ended.recoveries:
            self._due = self._whole_due = 0.0
        if now < self._due:
            return
        if now >= self._whole_due and not self._is_whole:
            self._is_whole, self._after = True, 0
        if not self._after:
            self._recoveries = self._ended.recoveries
        since = int(self._clock.wall() - (MAX_AGE_SECONDS if self._is_whole else RECENT_SECONDS))
        runs = self._archive.incomplete_runs(since, cluster=self._cluster, after=self._after, limit=ROUND_JOBS)
        for begin in range(0, len(runs), BATCH_JOBS):
            batch = runs[begin : begin + BATCH_JOBS]
            try:
                self._complete(batch)
            except SourceError as error:
                # If only these jobs fail, the next round begins with others.
                if not (isinstance(error, WHOLE_SERVER) or self._ended.is_server_failing):
                    self._after = batch[-1].number
                return
            self._after = batch[-1].number
        if len(runs) < ROUND_JOBS:
            self._rest()

    def _complete(self, runs: Sequence[IncompleteRun]) -> None:
        """Store reports that have the numbers now; the others stay as they are."""
        for reports in self._ended.make_again([run.report for run in runs]):
            if reports:
                self._save(reports)

    def _rest(self) -> None:
        """Pause until the next pass."""
        now = self._clock.monotonic()
        self._due = now + RECENT_PAUSE_SECONDS
        if self._is_whole:
            self._whole_due = now + WHOLE_PAUSE_SECONDS
        self._is_whole, self._after = False, 0
