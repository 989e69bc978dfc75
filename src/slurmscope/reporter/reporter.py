# SPDX-License-Identifier: Apache-2.0
"""Archive the jobs of one cluster that ended, so that their reports outlive the retention of Prometheus.

The checkpoint, up to which accounting was read, is kept in the archive and moves on only when everything before it is
stored: a restart, an unreachable server or jobs that PrivateData hides cost time, but no job. Every cluster has its
own checkpoint, since several may share an archive. Records may reach accounting late: every round reads the last hour
again, once an hour the last day, or more if no job ended since, and looks up running jobs until their end is known.
Archived runs are skipped.

A job is archived although the time series server fails: then its report is marked, and the job measured again later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveTooLarge, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, run_of
from slurmscope.jobs.summary import JobSummary
from slurmscope.reporter.admin_comments import AdminComments
from slurmscope.reporter.incomplete_reports import IncompleteReports
from slurmscope.reporter.measure import BATCH_JOBS, MeasureOutcome, Measurer
from slurmscope.reporter.retention import ReporterCheckpoints, ReporterSettings
from slurmscope.reports.make import ReportMaker

if TYPE_CHECKING:
    from slurmscope.archive.sql_archive import SqlArchive

logger = logging.getLogger(__name__)


T = TypeVar("T")

CLUSTER_CHECKPOINT = "accounting read until: "
"""How the name of a cluster's checkpoint begins; the name of the cluster follows."""
NEWEST_CHECKPOINT = "newest end in accounting: "
"""The same for when the job ended last of those that were read in the hourly round."""
OVERLAP_SECONDS = 3600
FAR_OVERLAP_SECONDS = 86400
MAX_LATE_SECONDS = 14 * 86400
"""How late a record may arrive; a controller keeps the messages of few days for a slurmdbd that is down."""
WINDOW_SECONDS = 6 * 3600
REFRESHED_JOBS = 500
"""Running jobs that are measured again in one round; if there are more, they take turns."""
NEW_JOBS = 2000
"""Running jobs that are measured for the first time in one round; a new archive of a large cluster has many."""
NEW_JOBS_SECONDS = 60.0
"""Time for these; the rest waits for the next round, so that a slow server does not delay ended jobs."""
FAILED_PAUSE_SECONDS = 3600.0
"""Pause before a running job is measured again for which alone the time series server failed."""
NO_ROOM = "The curves of this job could not be archived."
NO_ROOM_AT_ALL = "The measurements of this job could not be archived: they are too large."
BUG = "Jobs are not being archived: the reporter failed because of a bug; see its log."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterProgress:
    """The progress of a reporter, or of all of them."""

    jobs_archived: int = 0
    rounds: int = 0
    failures: int = 0
    read_until_seconds: float | None = None
    problem: str = ""
    """Why the last round failed; empty when it succeeded."""
    series_problem: str = ""
    """Why the last round measured no job; empty while the time series server answers."""


class Reporter:
    """Read the accounting of one cluster, make reports and store them, round by round."""

    def __init__(  # noqa: PLR0913 - three sources and their settings
        self,
        accounting: JobAccounting,
        maker: ReportMaker,
        archive: SqlArchive,
        checkpoints: ReporterCheckpoints,
        settings: ReporterSettings,
        *,
        cluster: str,
        clock: Clock | None = None,
        comments: AdminComments | None = None,
    ) -> None:
        """Take the name of the cluster, its accounting and the other parts; nothing is read yet."""
        self.comments = comments
        self.cluster = cluster
        self._accounting = accounting
        self._archive = archive
        self._checkpoints = checkpoints
        self._settings = settings
        self._clock = clock or Clock()
        self._far_overlap_due = 0.0
        self._next_refreshed = 0
        self._paused: dict[RunId, float] = {}
        """Running jobs for which alone the server failed, and when they are measured again."""
        self._measurer = Measurer(maker)
        self._incomplete = IncompleteReports(
            archive, self._measurer, self._save, self._clock, cluster=cluster, give_up_seconds=settings.give_up
        )
        self._failing_since: float | None = None
        self.progress = ReporterProgress()

    def work(self) -> None:
        """Do one round; failures are logged and retried in the next. Only bugs are raised."""
        self._measurer.begin_round()
        try:
            self._archive_ended()
            self._refresh_running()
            self._incomplete.work()
            self._archive.flush()
            if self.comments:
                self.comments.write()
        except SlurmscopeError as error:
            logger.warning(
                "archiving of jobs failed; retrying in the next round",
                extra=fields(f"archiving {self.cluster}", cluster=self.cluster, reason=str(error)),
            )
            self._note_failure(str(error))
        except Exception:
            self._note_failure(BUG)
            raise
        else:
            self._note_success()

    def has_failed_for(self, seconds: float) -> bool:
        """Return whether all rounds of the last so many seconds failed; if they did, restart the count."""
        now = self._clock.monotonic()
        if self._failing_since is None or now - self._failing_since < seconds:
            return False
        self._failing_since = None
        return True

    def _note_success(self) -> None:
        """Note a round in which everything was stored; without a time series server, another process may be better."""
        problem = self._measurer.problem
        if problem:
            logger.warning(
                "jobs were not measured; retrying in the next round",
                extra=fields(f"measuring {self.cluster}", cluster=self.cluster, reason=problem),
            )
            self._note_failing()
        else:
            self._failing_since = None
        rounds = self.progress.rounds + 1
        self.progress = replace(self.progress, rounds=rounds, problem="", series_problem=problem)

    def _note_failing(self) -> None:
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()

    def _note_failure(self, problem: str) -> None:
        self._note_failing()
        self.progress = replace(self.progress, failures=self.progress.failures + 1, problem=problem)

    def _archive_ended(self) -> None:
        now = self._clock.wall()
        since, until = self._read_checkpoint(now), int(now - self._settings.settle)
        is_far = self._clock.monotonic() >= self._far_overlap_due
        begin = self._late_since(since, now) if is_far else since - OVERLAP_SECONDS
        newest = _NewestEnd()
        while begin < since - OVERLAP_SECONDS or since < until:
            end = max(since, min(until, since + WINDOW_SECONDS))
            for batch in _batches(self._not_stored(newest.note(self._accounting.read_ended(begin, end)))):
                self._store_ended(batch)
            since, begin = end, end - OVERLAP_SECONDS
            self._write_checkpoint(since)
            self.progress = replace(self.progress, read_until_seconds=float(since))
        if is_far:
            self._far_overlap_due = self._clock.monotonic() + OVERLAP_SECONDS
            if newest.seconds is not None:
                self._checkpoints.write_checkpoint(NEWEST_CHECKPOINT + self.cluster, str(min(newest.seconds, until)))

    def _late_since(self, since: int, now: float) -> int:
        """Return how far to read back once an hour: a day before the newest end that was read, not before now.

        While slurmctld cannot reach slurmdbd, accounting has no later end. Its messages arrive in their order.
        """
        newest = parse_checkpoint(self._checkpoints.read_checkpoint(NEWEST_CHECKPOINT + self.cluster), now)
        # Not what retention has deleted.
        kept = self._settings.keep_jobs - FAR_OVERLAP_SECONDS if self._settings.keep_jobs else MAX_LATE_SECONDS
        earliest = since - max(FAR_OVERLAP_SECONDS, int(min(kept, MAX_LATE_SECONDS)))
        return max(earliest, min(since, since if newest is None else newest) - FAR_OVERLAP_SECONDS)

    def _read_checkpoint(self, now: float) -> int:
        read_until = parse_checkpoint(self._checkpoints.read_checkpoint(CLUSTER_CHECKPOINT + self.cluster), now)
        if read_until is None:
            read_until = int(now - self._settings.look_back)
            # From the first round on, so that nothing is lost if accounting cannot be read for longer than that.
            self._write_checkpoint(read_until)
        return read_until

    def _write_checkpoint(self, read_until: int) -> None:
        self._checkpoints.write_checkpoint(CLUSTER_CHECKPOINT + self.cluster, str(read_until))

    def _not_stored(self, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
        for batch in _batches(records):
            known = self._archive.ended_runs([record.job_id for record in batch])
            yield from (record for record in batch if run_of(record) not in known and not self._is_awaited(record))

    def _is_awaited(self, record: JobRecord) -> bool:
        """Return whether the rest of a partial record may still arrive: for an hour, in which it is read again."""
        return record.is_partial and self._clock.wall() - (record.end_seconds or 0) < OVERLAP_SECONDS

    def _store_ended(self, batch: Sequence[JobRecord]) -> None:
        for part in self._measurer.measure(batch):
            self._save(self._incomplete.make_reports(part))
            self.progress = replace(self.progress, jobs_archived=self.progress.jobs_archived + len(part.records))

    def _save(self, reports: Sequence[JobReport]) -> None:
        """Store a batch; one by one where it is too large, so that only the report that is too large loses anything.

        Other errors are raised: an archive that is locked or slow stores the curves in a later round.
        """
        try:
            self._archive.save(reports)
        except ArchiveTooLarge:
            for report in reports:
                self._save_alone(report)
        if self.comments:
            self.comments.add(reports)

    def _save_alone(self, report: JobReport) -> None:
        """Store a report; if it is too large, without its curves; if it still is, with its accounting record only."""
        summary = JobSummary(record=report.record, run_seconds=report.summary.run_seconds)
        without_curves = replace(report, charts=(), missing=(*report.missing, NO_ROOM))
        for smaller in (report, without_curves):
            try:
                self._archive.save([smaller])
            except ArchiveTooLarge:
                continue
            return
        self._archive.save([JobReport(summary=summary, made_seconds=report.made_seconds, missing=(NO_ROOM_AT_ALL,))])

    def _refresh_running(self) -> None:
        """Store what runs now or is suspended, and look up how runs ended that no longer do."""
        running = {run_of(record): record for record in self._accounting.read_current() if record.is_active}
        unfinished = self._archive.unfinished_runs(cluster=self.cluster)
        ordered = sorted(running)
        first = self._next_refreshed % max(1, len(ordered))
        refreshed = (ordered * 2)[first : first + min(REFRESHED_JOBS, len(ordered))]
        self._next_refreshed = first + REFRESHED_JOBS
        self._store_new(record for run, record in running.items() if run not in unfinished)
        self._measure_again(running[run] for run in refreshed if run in unfinished)
        self._store_ends(unfinished - running.keys())

    def _store_new(self, records: Iterable[JobRecord]) -> None:
        """Store running jobs for the first time: a limited number, since measuring them takes time."""
        until = self._clock.monotonic() + NEW_JOBS_SECONDS
        for batch in _batches(islice(records, NEW_JOBS)):
            for part in self._measurer.measure(batch):
                self._save(part.reports or self._measurer.make_unmeasured(part.records))
            if self._clock.monotonic() >= until:
                return

    def _measure_again(self, records: Iterable[JobRecord]) -> None:
        """Update running jobs, except those for which the server fails: old numbers are better than none."""
        now = self._clock.monotonic()
        self._paused = {run: until for run, until in self._paused.items() if now < until}
        for batch in _batches(record for record in records if run_of(record) not in self._paused):
            for part in self._measurer.measure(batch):
                if part.outcome is MeasureOutcome.ANSWERED:
                    self._save(part.reports)
                elif part.outcome is MeasureOutcome.FAILED:
                    self._paused |= dict.fromkeys(map(run_of, part.records), now + FAILED_PAUSE_SECONDS)

    def _store_ends(self, runs: Set[RunId]) -> None:
        """Store how these runs ended, and no others.

        Accounting also returns earlier runs, and all tasks of an array: Prometheus may have deleted their series.
        """
        for job_ids in _batches(sorted({job_id for _, job_id, _ in runs})):
            records = self._not_stored(self._accounting.read_jobs(job_ids))
            for batch in _batches(record for record in records if record.has_ended and run_of(record) in runs):
                self._store_ended(batch)


class _NewestEnd:
    """Note when the last one of records ended, while they pass."""

    seconds: int | None = None

    def note(self, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
        for record in records:
            self.seconds = max(record.end_seconds or 0, self.seconds or 0)
            yield record


def parse_checkpoint(text: str | None, now: float) -> int | None:
    """Parse a checkpoint; one in the future was written with a wrong clock, and is none."""
    read_until = int(text) if text and text.isdecimal() else None
    return None if read_until is None or read_until > now else read_until


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH_JOBS)):
        yield batch
