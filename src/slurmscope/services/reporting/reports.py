# SPDX-License-Identifier: Apache-2.0
"""Find the report of a job for somebody who may see it: in the archive, or made now while the job runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from slurmscope.errors import ArchiveError, ServerBusy, SourceError
from slurmscope.model.archive import Archive, JobRow
from slurmscope.model.job_record import JobAccounting, JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.services.reporting.live_cache import LiveCache
from slurmscope.services.reporting.outages import Outages
from slurmscope.services.reporting.report_maker import ReportMaker
from slurmscope.services.runtime.clock import Clock

RECORDS_AT_ONCE = 4
"""How many questions to accounting are under way: who walks through numbers shall not start a sacct for each."""
PATIENCE_SECONDS = 10.0
"""How long a question waits for its turn."""

_SHOWN_ID = re.compile(r"(?P<base>[1-9][0-9]{0,9})(?:(?P<mark>[_+])(?P<part>[0-9]{1,9}))?", re.ASCII)


def is_shown_id(text: str) -> bool:
    """Tell whether this is how users write the number of a job: 12, 12_3 or 12+1."""
    return _SHOWN_ID.fullmatch(text) is not None


class ReportFinder:
    """Answer for one job at a time, from any thread."""

    def __init__(  # noqa: PLR0913 - whom to ask, and how long
        self,
        archive: Archive | None,
        accounting: JobAccounting | None,
        maker: ReportMaker,
        troubles: Outages | None = None,
        *,
        archived_seconds: float = 0.0,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Take where reports are kept, who tells of running jobs, and who makes reports of them.

        ``archived_seconds`` is how old an archived report of a running job may be to be shown while a new one is made:
        nobody waits then, but the job may have ended meanwhile. ``patience_seconds`` is how long a question to
        accounting waits while there are too many others.
        """
        self._archive = archive
        self._accounting = accounting
        self._maker = maker
        self._troubles = troubles or Outages()
        self._archived_seconds = archived_seconds
        self._patience_seconds = patience_seconds
        self._turns = threading.Semaphore(RECORDS_AT_ONCE)
        self._clock = clock or Clock()
        self._records = LiveCache(self._read_record, self._clock.monotonic)
        self._reports = LiveCache(self._make_report, self._clock.monotonic)

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        """Return the newest run of a job as users write its number; None if there is none that the viewer may see.

        Raises ArchiveError when neither the archive nor accounting could tell.
        """
        if not is_shown_id(shown_id):
            return None
        archived, archive_error = self._find_archived(viewer, shown_id)
        # A run that was requeued has a successor, which may not be archived yet.
        if archived and archived.record.has_ended and archived.record.state != "REQUEUED":
            return archived
        if archived and self._may_show(archived) and self._reports.begin(shown_id):
            return archived
        live, live_error = self._find_live(viewer, shown_id)
        if live:
            return replace(live, missing=(*live.missing, archive_error)) if archive_error else live
        if archived:
            return replace(archived, missing=(*archived.missing, live_error)) if live_error else archived
        if archive_error or (live_error and self._archive is None):
            raise ArchiveError(archive_error or live_error)
        return None

    def _may_show(self, archived: JobReport) -> bool:
        is_recent = self._clock.wall() - archived.made_seconds < self._archived_seconds
        return is_recent and not archived.record.has_ended

    def _find_archived(self, viewer: Viewer, shown_id: str) -> tuple[JobReport | None, str]:
        if self._archive is None:
            return None, ""
        try:
            rows = self._archive.find_shown(viewer, shown_id)
            newest = max(rows, key=_age_key, default=None)
            reports = self._archive.find(viewer, newest.job_id, cluster=newest.cluster) if newest else ()
        except ArchiveError as error:
            self._troubles.note("archive", str(error))
            return None, str(error)
        self._troubles.clear("archive")
        return max(reports, key=lambda report: _age_key(report.record), default=None), ""

    def _find_live(self, viewer: Viewer, shown_id: str) -> tuple[JobReport | None, str]:
        """Return the report of a job of this moment; a foreign job is asked for no further than one that is absent."""
        if self._accounting is None:
            return None, ""
        try:
            record = self._records.get(shown_id)
            if record is None or not viewer.sees(record.user, record.account):
                return None, ""
            report = self._reports.get(shown_id)
        except SourceError as error:
            return None, f"Accounting could not be asked: {error}"
        # It may have been made a moment before of another job with this number: other clusters have them too.
        return (report if report and viewer.sees(report.record.user, report.record.account) else None), ""

    def _read_record(self, shown_id: str) -> JobRecord | None:
        """Ask accounting, and note how it does: a record that was kept tells nothing about that."""
        found = _SHOWN_ID.fullmatch(shown_id)
        if not found or self._accounting is None:
            return None
        try:
            with self._turn():
                records = self._accounting.read_jobs([int(found["base"])])
        except SourceError as error:
            self._troubles.note("accounting", str(error))
            raise
        self._troubles.clear("accounting")
        return _newest(records, shown_id)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=self._patience_seconds):
            raise ServerBusy("accounting is asked for too many jobs at once; try again in a moment")
        try:
            yield
        finally:
            self._turns.release()

    def _make_report(self, shown_id: str) -> JobReport | None:
        record = self._records.get(shown_id)
        return self._maker.make([record])[0] if record else None


def _newest(records: Iterable[JobRecord], shown_id: str) -> JobRecord | None:
    # One task of an array has the number of the array itself: that number means all tasks.
    same = [
        record
        for record in records
        if shown_id == record.shown_id or (shown_id == str(record.job_id) and record.job_id != record.array_job_id)
    ]
    return max(same, key=_age_key, default=None)


def _age_key(job: JobRecord | JobRow) -> tuple[int, int]:
    return job.submit_seconds, job.start_seconds or 0
