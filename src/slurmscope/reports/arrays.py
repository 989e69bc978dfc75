# SPDX-License-Identifier: Apache-2.0
"""Find the reports of all tasks of a job array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.core.errors import SourceError
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import newest_runs, newest_tasks, run_of
from slurmscope.jobs.viewer import Viewer
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.make import ReportMaker
from slurmscope.slurm.states import REVOKED

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
