# SPDX-License-Identifier: Apache-2.0
"""Work through jobs that ended, so that each is summarised once and found again when Prometheus has forgotten it.

How far accounting was read is kept in the archive itself and moves on only when everything before it is stored. So a
restart, or a server that is away, costs time and no job. Records may reach accounting late: the last hour is read again
in every round, the last day once an hour, and a run that was seen running is asked for until its end is known. What is
archived already is passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeVar

from slurmscope.errors import ArchiveTooLarge, SlurmscopeError
from slurmscope.log import fields
from slurmscope.model.archive import Archive, JobRow, RunId
from slurmscope.model.job_record import JobAccounting, JobRecord
from slurmscope.model.report import JobReport
from slurmscope.services.reporting.measuring import MAY_PASS
from slurmscope.services.reporting.report_maker import ReportMaker
from slurmscope.services.reporting.retention import Chore, Retention, parse_keep_seconds
from slurmscope.services.runtime.clock import Clock
from slurmscope.services.runtime.periodic import run_periodically
from slurmscope.settings import setting
from slurmscope.units import parse_positive_seconds, parse_seconds

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECKPOINT = "accounting read until"
OVERLAP_SECONDS = 3600
FAR_OVERLAP_SECONDS = 86400
WINDOW_SECONDS = 6 * 3600
BATCH_JOBS = 100
REFRESHED_JOBS = 500
"""Running jobs measured anew in one round; where there are more, they take turns."""
NO_ROOM = "The curves of this job could not be archived."
BUG = "Jobs are not archived for now: the reporter failed by a bug, which its log tells."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterSettings:
    """How ended jobs are worked through."""

    interval: float = setting(
        60.0, help="Time between two looks at accounting.", parse=parse_positive_seconds, metavar="DURATION"
    )
    settle: float = setting(
        120.0,
        help="How long after its end a job is summarised: its last samples have to arrive first.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    look_back: float = setting(
        7 * 86400.0,
        help="How far back to begin when the archive is new.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    give_up: float = setting(
        86400.0,
        help="How long to wait for a server of time series that is away before jobs are archived without curves.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    keep_curves: float = setting(
        365 * 86400.0,
        help="How long curves of ended jobs are kept, at least 7d; the numbers and findings stay. 0 keeps them for "
        "ever.",
        parse=parse_keep_seconds,
        metavar="DURATION",
    )
    keep_jobs: float = setting(
        0.0,
        help="How long ended jobs are kept at all, at least 7d; 0 keeps them for ever.",
        parse=parse_keep_seconds,
        metavar="DURATION",
    )
    keep_audit: float = setting(
        365 * 86400.0,
        help="How long it is kept who of the staff looked at what, at least 7d; 0 keeps it for ever.",
        parse=parse_keep_seconds,
        metavar="DURATION",
    )


class ReporterArchive(Archive, Protocol):
    """Keep reports, and take out a part of what is older than a time; the number of rows is returned."""

    def forget_curves(self, before_seconds: int) -> int:
        """Take out curves of jobs that ended before this time."""
        ...

    def forget_jobs(self, before_seconds: int) -> int:
        """Take out jobs that ended before this time."""
        ...

    def forget_looks(self, before_seconds: int) -> int:
        """Take out what staff looked at before this time."""
        ...


class ReporterCheckpoints(Protocol):
    """Keep texts by name beside the archive."""

    def read_checkpoint(self, name: str) -> str | None:
        """Return what was kept."""
        ...

    def write_checkpoint(self, name: str, text: str) -> None:
        """Keep it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Tell how the work stands."""

    jobs_archived: int = 0
    rounds: int = 0
    failures: int = 0
    read_until_seconds: float | None = None
    problem: str = ""
    """Why the last round did not come to its end; empty when it did."""


def _run_of(job: JobRecord | JobRow) -> RunId:
    return job.cluster, job.job_id, job.submit_seconds


class Reporter:
    """Read accounting, make reports, store them; one round after the other."""

    def __init__(
        self,
        accounting: JobAccounting,
        maker: ReportMaker,
        archive: ReporterArchive,
        checkpoints: ReporterCheckpoints,
        settings: ReporterSettings,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Take the parts; nothing is read yet."""
        self._accounting = accounting
        self._maker = maker
        self._archive = archive
        self._checkpoints = checkpoints
        self._settings = settings
        self._clock = clock or Clock()
        self._look_far_at = 0.0
        self._turn = 0
        self._away_since: float | None = None
        self._forgetting = Retention(_chores(archive, settings), self._clock)
        self.progress = Progress()

    def work(self) -> None:
        """Do one round; what fails is told and tried again in the next. Only a bug is raised."""
        try:
            self._archive_ended()
            self._refresh_running()
        except SlurmscopeError as error:
            logger.warning("jobs are not archived for now", extra=fields(reason=str(error)))
            self._note_failure(str(error))
        except Exception:
            self._note_failure(BUG)
            raise
        else:
            self.progress = replace(self.progress, rounds=self.progress.rounds + 1, problem="")
            self._forgetting.work()

    def _note_failure(self, problem: str) -> None:
        self.progress = replace(self.progress, failures=self.progress.failures + 1, problem=problem)

    def _archive_ended(self) -> None:
        now = self._clock.wall()
        since, until = self._read_checkpoint(now), int(now - self._settings.settle)
        overlap = self._overlap_seconds()
        while since < until:
            end = min(until, since + WINDOW_SECONDS)
            for batch in _batches(self._not_stored(self._accounting.read_ended(since - overlap, end))):
                self._store_ended(batch, now)
            since, overlap = end, OVERLAP_SECONDS
            self._checkpoints.write_checkpoint(CHECKPOINT, str(since))
            self.progress = replace(self.progress, read_until_seconds=float(since))

    def _overlap_seconds(self) -> int:
        """Return how far to look back for records that came late: mostly an hour, and once an hour a day."""
        if self._clock.monotonic() < self._look_far_at:
            return OVERLAP_SECONDS
        self._look_far_at = self._clock.monotonic() + OVERLAP_SECONDS
        return FAR_OVERLAP_SECONDS

    def _read_checkpoint(self, now: float) -> int:
        text = self._checkpoints.read_checkpoint(CHECKPOINT) or ""
        read_until = int(text) if text.isdecimal() else None
        # One that lies in the future was written by a clock that was wrong.
        if read_until is None or read_until > now:
            return int(now - self._settings.look_back)
        return read_until

    def _not_stored(self, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
        for batch in _batches(records):
            known = self._archive.ended_runs([record.job_id for record in batch])
            yield from (record for record in batch if _run_of(record) not in known and not self._is_awaited(record))

    def _is_awaited(self, record: JobRecord) -> bool:
        """Tell whether the rest of a partial record may still come: for an hour, in which it is read again."""
        return record.is_partial and self._clock.wall() - (record.end_seconds or 0) < OVERLAP_SECONDS

    def _store_ended(self, batch: Sequence[JobRecord], now: float) -> None:
        must_measure = self._must_measure(batch, now)
        try:
            reports = self._maker.make(batch, must_measure=must_measure)
        except MAY_PASS:
            self._away_since = now if self._away_since is None else self._away_since
            raise
        if must_measure:
            self._away_since = None
        self._save(reports)
        self.progress = replace(self.progress, jobs_archived=self.progress.jobs_archived + len(batch))

    def _must_measure(self, batch: Sequence[JobRecord], now: float) -> bool:
        """Tell whether to wait for a server that is away: until it was so for long, and all these jobs ended long ago.

        Either alone would cost curves: a server may be away for a moment when a week of jobs is read, and it may come
        back after days with everything about the jobs of today.
        """
        youngest = max(record.end_seconds or now for record in batch)
        away_since = now if self._away_since is None else self._away_since
        return now - max(youngest, away_since) < self._settings.give_up

    def _save(self, reports: Sequence[JobReport]) -> None:
        """Store a batch; one by one where it is too large, so that the report which is so costs only its curves.

        What else fails is raised: an archive that is locked or slow takes the curves in a later round.
        """
        try:
            self._archive.save(reports)
        except ArchiveTooLarge:
            for report in reports:
                try:
                    self._archive.save([report])
                except ArchiveTooLarge:
                    self._archive.save([replace(report, charts=(), missing=(*report.missing, NO_ROOM))])

    def _refresh_running(self) -> None:
        """Store what runs now, and ask what became of runs that do not any more."""
        running = {_run_of(record): record for record in self._accounting.read_current() if record.is_running}
        unfinished = {_run_of(row) for row in self._archive.unfinished()}
        turn = sorted(running)
        self._turn %= max(1, len(turn))
        taken = {*(turn * 2)[self._turn : self._turn + min(REFRESHED_JOBS, len(turn))]}
        self._turn += REFRESHED_JOBS
        for batch in _batches(record for run, record in running.items() if run not in unfinished):
            self._save(self._maker.make(batch))
        self._measure_again(running[run] for run in taken if run in unfinished)
        self._store_gone(unfinished - running.keys())

    def _measure_again(self, records: Iterable[JobRecord]) -> None:
        """Replace what is stored of running jobs, unless the server is away: old numbers are better than none."""
        for batch in _batches(records):
            try:
                reports = self._maker.make(batch, must_measure=True)
            except MAY_PASS:
                return
            self._save(reports)

    def _store_gone(self, gone: Set[RunId]) -> None:
        """Store how these runs ended, and no others.

        Accounting tells of earlier runs too, and of all tasks of an array: the series may have forgotten those.
        """
        now = self._clock.wall()
        for job_ids in _batches(sorted({job_id for _, job_id, _ in gone})):
            records = self._not_stored(self._accounting.read_jobs(job_ids))
            for batch in _batches(record for record in records if record.has_ended and _run_of(record) in gone):
                self._store_ended(batch, now)


def _chores(archive: ReporterArchive, settings: ReporterSettings) -> tuple[Chore, ...]:
    return (
        Chore(name="jobs", forget=archive.forget_jobs, keep_seconds=settings.keep_jobs),
        Chore(name="curves", forget=archive.forget_curves, keep_seconds=settings.keep_curves),
        Chore(name="looks", forget=archive.forget_looks, keep_seconds=settings.keep_audit),
    )


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH_JOBS)):
        yield batch


def open_reporter_loop(reporter: Reporter, interval_seconds: float) -> AbstractContextManager[None]:
    """Let the reporter work in a thread until the end."""
    return run_periodically("reporter", interval_seconds, reporter.work)
