# SPDX-License-Identifier: Apache-2.0
"""Read jobs for ``slurmscope report`` on this host: from the archive if it is readable, and from accounting.

A pending job is explained from the commands that any user may run. A position needs the jobs of others: where
PrivateData hides them, it is not known.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from slurmscope.accounting.sacct import read_script
from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.cluster import licenses, limits, reservations
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, SlurmscopeError, SourceError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.pending.blockers import PendingExplanation, QueueFacts, needed_facts
from slurmscope.jobs.pending.explanation import make_waiting_view, name_cluster
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue, read_pending, read_reason
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, newest_runs, newest_tasks, run_of
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import add_resubmission, add_script, may_have_options
from slurmscope.reports.scripts import ScriptReader
from slurmscope.reports.sources import Reporting, open_recorded, open_reporting
from slurmscope.slurm.cluster_names import run_in_cluster
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings, random_separator
from slurmscope.slurm.config import CONTROLLER, JobVisibility
from slurmscope.slurm.states import REVOKED


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

    def explain_pending(self, report: JobReport, cluster: str = "") -> PendingExplanation | None:
        """Return why a pending job does not run now; None if it has started, or if that cannot be read."""
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
        return report and add_resubmission(archive, WaitingTimesCache(archive), EVERYTHING, self._add_script(report))

    def _add_script(self, report: JobReport) -> JobReport:
        """Add the options in the script of a job, where Slurm has stored it and the user may see it."""
        record = report.record
        try:
            stored = (
                read_script(self._run, record.cluster, record.shown_id, record.user)
                if may_have_options(report)
                else None
            )
        except SlurmscopeError:
            return report
        return add_script(report, stored[0], self._reporting.maker.judge) if stored else report

    def explain_pending(self, report: JobReport, cluster: str = "") -> PendingExplanation | None:
        return explain_pending_job(self._run, report.record.shown_id, cluster)

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

        def make_row(report: JobReport) -> JobRow:
            record = report.record
            if not record.is_array_rest:
                return make_job_row(report)
            waiting = count_pending_tasks(self._run, array_id, cluster) if record.is_pending else None
            return replace(make_job_row(report), array_tasks=record.array_tasks or waiting or 1)

        return ListedJobs(rows=tuple(map(make_row, self.array_reports(array_id, cluster))))

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


MAX_TASKS = 500
"""Most tasks that are reported at once."""


def find_array(
    viewer: Viewer,
    array_id: int,
    *,
    cluster: str = "",
    archive: Archive | None,
    accounting: JobAccounting,
    maker: ReportMaker,
) -> tuple[JobReport, ...]:
    """Return the last run of each task, in their order; none if this is no array, or the viewer may not see it.

    Ended runs come from the archive, all others from accounting. Raises SourceError when neither has any, and
    ArchiveError; without a cluster also AmbiguousName, if several have an array of this id.
    """
    archived = {run_of(report.record): report for report in _read_archived(viewer, array_id, cluster, archive)}
    try:
        found = accounting.read_jobs([array_id])
    except SourceError:
        if not archived:
            raise
        found = ()
    records = [
        record
        for record in found
        if record.array_job_id == array_id
        and cluster in {"", record.cluster}
        and viewer.sees(record.user, record.account, record.cluster)
        and run_of(record) not in archived
    ]
    # The cluster that runs a federated array has it; its copies in the others are revoked.
    originals = [record for record in records if record.state != REVOKED]
    runs = [*(report.record for report in archived.values()), *(originals if originals or archived else records)]
    require_unambiguous("array", str(array_id), {run.cluster for run in runs})
    tasks = sorted(newest_tasks(runs), key=_order)
    made = maker.make([task for task in tasks if run_of(task) not in archived][:MAX_TASKS])
    reports = archived | {run_of(report.record): report for report in made}
    return tuple(reports[run_of(task)] for task in tasks if run_of(task) in reports)[:MAX_TASKS]


def _read_archived(viewer: Viewer, array_id: int, cluster: str, archive: Archive | None) -> Iterator[JobReport]:
    """Yield the reports of ended runs, the newest of each task."""
    if archive is None:
        return
    wanted = JobFilter(cluster=cluster, array_job_id=array_id)
    page = archive.list_jobs(viewer, wanted, limit=MAX_TASKS)
    if page.next_key is not None and not cluster:
        # The rows may all be of one cluster, and older ones of another.
        pages = {name: archive.list_jobs(viewer, replace(wanted, cluster=name), limit=1) for name in archive.clusters()}
        require_unambiguous("array", str(array_id), {name for name, found in pages.items() if found.rows})
    for row in newest_runs(row for row in page.rows if row.array_job_id == array_id and row.end_seconds is not None):
        found = archive.find(viewer, row.job_id, cluster=row.cluster)
        yield from (report for report in found if run_of(report.record) == run_of(row) and report.record.has_ended)


def _order(record: JobRecord) -> tuple[bool, int]:
    """Order by task; the pending rest comes last."""
    return record.array_task_id is None, record.array_task_id or 0


T = TypeVar("T")


def count_pending_tasks(run: RunCommand, array_id: int, cluster: str = "") -> int | None:
    """Return how many tasks of an array have not started; None if that is not known."""
    queue = _read_queue(run, cluster)
    return sum(job.task_count for job in queue.find_array(array_id)) or None if queue else None


def explain_pending_job(
    run: RunCommand, shown_id: str, cluster: str = "", *, user: str = ""
) -> PendingExplanation | None:
    """Return why a job is pending now; None if it is not, or if the queue cannot be read.

    ``user`` is who runs the command, by default that of this process.
    """
    queue = _read_queue(run, cluster)
    in_cluster = run_in_cluster(run, cluster) if cluster else run
    job = _find(queue, shown_id) if queue else None
    if queue is None or job is None:
        return None
    # Where others' jobs are hidden, those that are seen are not the queue.
    sees_all = _or_none(lambda: JobVisibility(in_cluster, CONTROLLER, user=user).describe()) is not None
    facts = _read_facts(in_cluster, needed_facts(job))
    view = make_waiting_view(job, queue if sees_all else None, facts, {})
    if cluster:
        view = name_cluster(view, cluster)
    return PendingExplanation(
        reason=view.reason,
        meaning=view.meaning,
        action=view.action,
        start_seconds=view.start_seconds,
        positions=view.positions,
        blockers=view.blockers,
    )


def _read_queue(run: RunCommand, cluster: str) -> PendingQueue | None:
    in_cluster = run_in_cluster(run, cluster) if cluster else run
    return _or_none(lambda: read_pending(in_cluster, random_separator(), now_seconds=time.time(), cluster=cluster))


def _find(queue: PendingQueue, shown_id: str) -> PendingJob | None:
    """Return a job, or the first pending tasks of a whole array."""
    found = queue.find(shown_id)
    return found or next(iter(queue.find_array(int(shown_id)) if shown_id.isdecimal() else ()), None)


def _read_facts(run: RunCommand, names: frozenset[str]) -> QueueFacts:
    """Read what explains the job, each by a command of its own; what a user may not see is left out."""

    def read(name: str, arguments: tuple[str, ...], parse: Callable[[bytes], T]) -> T | None:
        return _or_none(lambda: parse(run("scontrol", arguments))) if name in names else None

    return QueueFacts(
        limits=read("limits", limits.ARGUMENTS, limits.parse_limits),
        licenses=read("licenses", licenses.ARGUMENTS, licenses.parse_licenses),
        reservations=read("reservations", reservations.ARGUMENTS, reservations.parse_reservations),
    )


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except SourceError:
        return None
