# SPDX-License-Identifier: Apache-2.0
"""Work through jobs that ended, so that each is summarised once and found again when Prometheus has forgotten it.

How far accounting was read is kept in the archive itself and moves on only when everything before it is stored. So a
restart, or a server that is away, costs time and no job. Records may reach accounting late: the last hour is read again
in every round, and a run that was seen running is asked for until its end is known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeVar

from slurmscope.errors import ArchiveError, SlurmscopeError
from slurmscope.log import fields
from slurmscope.model.archive import Archive
from slurmscope.model.job_record import JobAccounting, JobRecord
from slurmscope.model.report import JobReport
from slurmscope.services.repeating import repeating
from slurmscope.services.report_maker import ReportMaker
from slurmscope.settings import setting
from slurmscope.units import parse_positive_seconds, parse_seconds

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECKPOINT = "accounting read until"
OVERLAP_SECONDS = 3600
WINDOW_SECONDS = 6 * 3600
BATCH_JOBS = 100
REFRESHED_JOBS = 500
"""Running jobs measured anew in one round; where there are more, they take turns."""
NO_ROOM = "The curves of this job could not be archived."


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


class Checkpoints(Protocol):
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


_Run = tuple[str, int, int, int | None]


def _run_of(record: JobRecord) -> _Run:
    return record.cluster, record.job_id, record.submit_seconds, record.start_seconds


class Reporter:
    """Read accounting, make reports, store them; one round after the other."""

    def __init__(
        self,
        accounting: JobAccounting,
        maker: ReportMaker,
        archive: Archive,
        checkpoints: Checkpoints,
        settings: ReporterSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the parts; nothing is read yet."""
        self._accounting = accounting
        self._maker = maker
        self._archive = archive
        self._checkpoints = checkpoints
        self._settings = settings
        self._wall_clock = wall_clock
        self._stored: dict[_Run, int] = {}
        self._turn = 0
        self.progress = Progress()

    def work(self) -> None:
        """Do one round; what fails is told and tried again in the next."""
        try:
            self._archive_ended()
            self._refresh_running()
        except SlurmscopeError as error:
            logger.warning("jobs are not archived for now", extra=fields(reason=str(error)))
            self.progress = replace(self.progress, failures=self.progress.failures + 1, problem=str(error))
        else:
            self.progress = replace(self.progress, rounds=self.progress.rounds + 1, problem="")

    def _archive_ended(self) -> None:
        now = self._wall_clock()
        since, until = self._read_checkpoint(now), int(now - self._settings.settle)
        self._forget_stored_before(since - 2 * OVERLAP_SECONDS)
        while since < until:
            end = min(until, since + WINDOW_SECONDS)
            ended = self._accounting.read_ended(since - OVERLAP_SECONDS, end)
            self._store_ended((record for record in ended if _run_of(record) not in self._stored), now)
            since = end
            self._checkpoints.write_checkpoint(CHECKPOINT, str(since))
            self.progress = replace(self.progress, read_until_seconds=float(since))

    def _read_checkpoint(self, now: float) -> int:
        text = self._checkpoints.read_checkpoint(CHECKPOINT)
        return int(text) if text and text.isdigit() else int(now - self._settings.look_back)

    def _forget_stored_before(self, seconds: int) -> None:
        self._stored = {run: end for run, end in self._stored.items() if end >= seconds}

    def _store_ended(self, records: Iterable[JobRecord], now: float) -> None:
        for batch in _batches(records):
            oldest = min(record.end_seconds or now for record in batch)
            self._store(batch, must_measure=now - oldest < self._settings.give_up)
            self._stored.update({_run_of(record): int(record.end_seconds or now) for record in batch})

    def _store(self, batch: Sequence[JobRecord], *, must_measure: bool = False) -> None:
        self._save(self._maker.make(batch, must_measure=must_measure))
        ended = sum(record.has_ended for record in batch)
        self.progress = replace(self.progress, jobs_archived=self.progress.jobs_archived + ended)

    def _save(self, reports: Sequence[JobReport]) -> None:
        """Store a batch; if that fails one by one, so that a report too large for the server costs only its curves."""
        try:
            self._archive.save(reports)
        except ArchiveError:
            for report in reports:
                try:
                    self._archive.save([report])
                except ArchiveError:
                    # When the archive itself is away this fails as well, and the work stops here.
                    self._archive.save([replace(report, charts=(), missing=(*report.missing, NO_ROOM))])

    def _refresh_running(self) -> None:
        """Store what runs now, and ask what became of runs that do not any more."""
        running = {record.job_id: record for record in self._accounting.read_current() if record.is_running}
        unfinished = {row.job_id for row in self._archive.unfinished()}
        turn = sorted(running)
        self._turn %= max(1, len(turn))
        taken = {*(turn * 2)[self._turn : self._turn + min(REFRESHED_JOBS, len(turn))]}
        self._turn += REFRESHED_JOBS
        wanted = [record for record in running.values() if record.job_id in taken or record.job_id not in unfinished]
        for batch in _batches(wanted):
            self._store(batch)
        for batch_ids in _batches(sorted(unfinished - running.keys())):
            gone = [record for record in self._accounting.read_jobs(batch_ids) if record.has_ended]
            for batch in _batches(record for record in gone if _run_of(record) not in self._stored):
                self._store(batch)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH_JOBS)):
        yield batch


def open_reporter_loop(reporter: Reporter, interval_seconds: float) -> AbstractContextManager[None]:
    """Let the reporter work in a thread until the end."""
    return repeating("reporter", interval_seconds, reporter.work)
