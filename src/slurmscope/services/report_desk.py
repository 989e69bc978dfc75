# SPDX-License-Identifier: Apache-2.0
"""Find the report of a job for somebody who may see it: in the archive, or made now while the job runs."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slurmscope.errors import ArchiveError, SourceError
from slurmscope.model.archive import Archive
from slurmscope.model.job_record import JobAccounting, JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.services.report_maker import ReportMaker
from slurmscope.services.troubles import Troubles

FRESH_SECONDS = 15.0
"""How long a report of a running job is good; many people may look at the same page."""
KEPT_REPORTS = 256

_SHOWN_ID = re.compile(r"(?P<base>[1-9][0-9]{0,9})(?:(?P<mark>[_+])(?P<part>[0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Kept:
    report: JobReport
    made_at: float


class ReportDesk:
    """Answer for one job at a time, from any thread."""

    def __init__(
        self,
        archive: Archive | None,
        accounting: JobAccounting | None,
        maker: ReportMaker,
        troubles: Troubles | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take where reports are kept, who tells of running jobs, and who makes reports of them."""
        self._archive = archive
        self._accounting = accounting
        self._maker = maker
        self._troubles = troubles or Troubles()
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        """Return the newest run of a job as users write its number; None if there is none that the viewer may see.

        Raises ArchiveError when neither the archive nor accounting could tell.
        """
        found = _SHOWN_ID.fullmatch(shown_id)
        if not found:
            return None
        archived, archive_error = self._find_archived(viewer, shown_id)
        if archived and archived.record.has_ended:
            return archived
        live, live_error = self._find_live(viewer, shown_id, int(found["base"]))
        if live:
            return replace(live, missing=(*live.missing, archive_error)) if archive_error else live
        if archived:
            return replace(archived, missing=(*archived.missing, live_error)) if live_error else archived
        if archive_error or (live_error and self._archive is None):
            raise ArchiveError(archive_error or live_error)
        return None

    def _find_archived(self, viewer: Viewer, shown_id: str) -> tuple[JobReport | None, str]:
        if self._archive is None:
            return None, ""
        try:
            rows = self._archive.find_shown(viewer, shown_id)
            reports = [report for row in rows for report in self._archive.find(viewer, row.job_id, cluster=row.cluster)]
        except ArchiveError as error:
            self._troubles.note("archive", str(error))
            return None, str(error)
        self._troubles.clear("archive")
        return max(reports, key=lambda report: _age_key(report.record), default=None), ""

    def _find_live(self, viewer: Viewer, shown_id: str, base: int) -> tuple[JobReport | None, str]:
        if self._accounting is None:
            return None, ""
        report = self._recall(shown_id)
        if report is None:
            try:
                record = _newest(self._accounting.read_jobs([base]), shown_id)
            except SourceError as error:
                self._troubles.note("accounting", str(error))
                return None, f"Accounting could not be asked: {error}"
            self._troubles.clear("accounting")
            if record is None or not viewer.sees(record.user, record.account):
                return None, ""
            (report,) = self._maker.make([record])
            self._keep(shown_id, report)
        return (report if viewer.sees(report.record.user, report.record.account) else None), ""

    def _recall(self, shown_id: str) -> JobReport | None:
        with self._lock:
            kept = self._kept.get(shown_id)
            return kept.report if kept and self._clock() - kept.made_at < FRESH_SECONDS else None

    def _keep(self, shown_id: str, report: JobReport) -> None:
        with self._lock:
            self._kept[shown_id] = _Kept(report, self._clock())
            self._kept.move_to_end(shown_id)
            while len(self._kept) > KEPT_REPORTS:
                self._kept.popitem(last=False)


def _newest(records: Iterable[JobRecord], shown_id: str) -> JobRecord | None:
    same = [record for record in records if shown_id in (record.shown_id, str(record.job_id))]
    return max(same, key=_age_key, default=None)


def _age_key(record: JobRecord) -> tuple[int, int]:
    return record.submit_seconds, record.start_seconds or 0
