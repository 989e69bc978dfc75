# SPDX-License-Identifier: Apache-2.0
"""Read jobs for ``slurmscope report`` on this host: from the archive if it is readable, and from accounting."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, SourceError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.pending.queue import read_reason
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, newest_runs, run_of
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.arrays import find_array
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.scripts import ScriptReader
from slurmscope.reports.sources import Reporting, open_recorded, open_reporting
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJobs:
    """Rows of jobs.

    ``is_cut`` says that there are more than were requested, and ``problem`` why some may be missing.
    """

    rows: tuple[JobRow, ...]
    is_cut: bool = False
    problem: str = ""


class JobSource(Protocol):
    """Read jobs that the user may see; raises ``SlurmscopeError``."""

    def user(self) -> str:
        """Return the name of the user whose jobs are their own."""
        ...

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of the archive, of which links to the portal name one; none if they are unknown."""
        ...

    def report(self, shown_id: str, cluster: str = "") -> JobReport | None:
        """Return the newest run of a job; None when there is no such job.

        Raises AmbiguousName without a cluster if several have a job of this ID.
        """
        ...

    def list_jobs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        """Return the newest run of each matching job, newest submission first."""
        ...

    def list_runs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        """Return all runs of matching jobs, in no order; some more than the limit if there are more."""
        ...

    def read_array(self, array_id: int, cluster: str = "") -> ListedJobs:
        """Return the newest run of each task of an array, in their order; none if this is no array."""
        ...

    def array_reports(self, array_id: int, cluster: str = "") -> tuple[JobReport, ...]: ...

    def read_script(self, report: JobReport, cluster: str = "") -> JobScript | None:
        """Return the script of a job that Slurm stored; None if there is none, or the user may not see it."""
        ...


PERIODS_DAYS = (1, 7, 30)
"""How far back accounting is searched for a user's jobs, if no time is given: until there are enough."""


class LocalJobs:
    """Read jobs with the rights of the user who runs the command."""

    def __init__(self, reporting: Reporting, run: RunCommand, wall_clock: Callable[[], float] = time.time) -> None:
        """Take the opened sources, which the caller closes, and what runs Slurm's commands."""
        self._reporting = reporting
        self._run = run
        self._scripts = ScriptReader(run)
        self._wall_clock = wall_clock

    def user(self) -> str:
        """Return the user who runs the command."""
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError as error:
            raise ConfigError(f"user ID {os.getuid()} has no name on this host; name jobs by their IDs") from error

    def clusters(self) -> tuple[str, ...]:
        return self._reporting.clusters()

    def report(self, shown_id: str, cluster: str = "") -> JobReport | None:
        """Return the newest run of a job.

        Raises SourceError or ArchiveError when the job was not found and a source could not be read.
        """
        report = self._reporting.finder.report(EVERYTHING, shown_id, cluster)
        outages = self._reporting.outages.problems()
        if report is None and outages:
            raise SourceError(f"job {shown_id} was not found: {'; '.join(outages)}")
        if report and report.record.is_pending:
            reason = read_reason(self._run, report.record.job_id, cluster)
            return report.with_reason(reason) if reason else report
        archive = self._reporting.archive
        return report and add_resubmission(archive, WaitingTimesCache(archive), EVERYTHING, report)

    def list_jobs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        """Return the newest run of each matching job; without an archive, a user's jobs of the last 30 days."""
        return order_newest(self.list_runs(wanted, limit), limit)

    def list_runs(self, wanted: JobFilter, limit: int) -> ListedJobs:
        rows, problem = self._read_archived(wanted, limit), ""
        try:
            rows += self._read_live(wanted, limit, {run_of(row) for row in rows if row.end_seconds is not None})
        except SourceError as error:
            if not rows:
                raise
            problem = f"Accounting could not be read: {error}"
        known = {run_of(row): row for row in rows}
        return ListedJobs(rows=tuple(known.values()), problem=problem)

    def read_array(self, array_id: int, cluster: str = "") -> ListedJobs:
        from slurmscope.archive.job_rows import make_job_row

        return ListedJobs(rows=tuple(map(make_job_row, self.array_reports(array_id, cluster))))

    def array_reports(self, array_id: int, cluster: str = "") -> tuple[JobReport, ...]:
        parts = self._reporting
        return find_array(
            EVERYTHING,
            array_id,
            cluster=cluster,
            archive=parts.archive,
            accounting=parts.accounting,
            maker=parts.maker,
        )

    def read_script(self, report: JobReport, cluster: str = "") -> JobScript | None:
        """Return the script of a job, whose record has its cluster; Slurm shows it to its owner and to operators."""
        return self._scripts.read(report.record)

    def _read_archived(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        if self._reporting.archive is None:
            return []
        # One more than is shown, to know whether there are more.
        return list(self._reporting.archive.list_jobs(EVERYTHING, wanted, limit=limit + 1).rows)

    def _read_live(self, wanted: JobFilter, limit: int, archived: set[RunId]) -> list[JobRow]:
        """Make rows of the jobs in accounting of which the archive does not have the end."""
        from slurmscope.archive.job_rows import make_job_row

        if wanted.shown_ids:
            bases = {int(shown_id.replace("+", "_").partition("_")[0]) for shown_id in wanted.shown_ids}
            found: Iterable[JobRecord] = self._reporting.accounting.read_jobs(sorted(bases))
        else:
            found = self._read_user(wanted, limit)
        records = [record for record in found if _matches(record, wanted) and run_of(record) not in archived]
        records.sort(key=lambda record: record.submit_seconds, reverse=True)
        return [make_job_row(report) for report in self._reporting.maker.make(records[: limit + 1])]

    def _read_user(self, wanted: JobFilter, limit: int) -> list[JobRecord]:
        now = int(self._wall_clock())
        read = self._reporting.accounting.read_user
        if wanted.since_seconds is not None:
            return list(read(wanted.user, wanted.since_seconds, now))
        records: list[JobRecord] = []
        for days in PERIODS_DAYS:
            records = [each for each in read(wanted.user, now - days * DAY_SECONDS, now) if _matches(each, wanted)]
            if len(records) > limit or self._reporting.archive is not None:
                break
        return records


def order_newest(found: ListedJobs, limit: int) -> ListedJobs:
    """Return the newest run of each job, newest submission first."""
    rows = sorted(newest_runs(found.rows), key=lambda row: (row.submit_seconds, row.job_id), reverse=True)
    return ListedJobs(rows=tuple(rows[:limit]), is_cut=len(rows) > limit, problem=found.problem)


@contextmanager
def open_local_jobs(config: Config, environment: Mapping[str, str]) -> Iterator[LocalJobs]:
    """Open the sources of this host."""
    with open_reporting(config, environment, series=open_recorded(config, environment)) as reporting:
        yield LocalJobs(reporting, SlurmCommands(config.of(SlurmSettings), environment).run)


def read_report(config: Config, environment: Mapping[str, str], job_id: str, *, cluster: str = "") -> JobReport | None:
    """Return the newest run of a job from the sources of this host; see :meth:`LocalJobs.report`."""
    with open_local_jobs(config, environment) as jobs:
        return jobs.report(job_id, cluster)


def _ids(record: JobRecord) -> set[str]:
    """Return the IDs by which users name a job: its own, and that of its array or heterogeneous job."""
    return {record.shown_id, str(record.array_job_id), str(record.het_job_id)}


def _matches(record: JobRecord, wanted: JobFilter) -> bool:
    return (
        wanted.cluster in {"", record.cluster}
        and (not wanted.user or record.user == wanted.user)
        and (not wanted.state or record.state == wanted.state)
        and (not wanted.shown_ids or not _ids(record).isdisjoint(wanted.shown_ids))
        and (wanted.since_seconds is None or record.submit_seconds >= wanted.since_seconds)
    )
