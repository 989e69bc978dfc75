# SPDX-License-Identifier: Apache-2.0
"""Find the reports of all tasks of a job array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.core.errors import SourceError
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
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

    Ended tasks come from the archive, all others from accounting. Raises SourceError when neither has any, and
    ArchiveError; without a cluster also AmbiguousName, if several have an array of this id.
    """
    archived: dict[tuple[str, int], JobReport] = {}
    for report in _read_archived(viewer, array_id, cluster, archive):
        if report.record.has_ended:
            archived[_task(report.record)] = report
    try:
        found = accounting.read_jobs([array_id])
    except SourceError:
        if not archived:
            raise
        found = ()
    records = _newest(
        record
        for record in found
        if record.array_job_id == array_id
        and cluster in {"", record.cluster}
        and viewer.sees(record.user, record.account, record.cluster)
    )
    # The cluster that runs a federated array has it; its copies in the others are revoked.
    originals = [record for record in records if record.state != REVOKED]
    records = originals if originals or archived else records
    clusters = {name for name, _ in archived} | {record.cluster for record in records}
    require_unambiguous("array", str(array_id), clusters)
    others = [record for record in records if _task(record) not in archived][:MAX_TASKS]
    reports = (*archived.values(), *maker.make(others))
    return tuple(sorted(reports, key=lambda report: _order(report.record)))[:MAX_TASKS]


def _read_archived(viewer: Viewer, array_id: int, cluster: str, archive: Archive | None) -> Iterator[JobReport]:
    if archive is None:
        return
    wanted = JobFilter(cluster=cluster, array_job_id=array_id)
    page = archive.list_jobs(viewer, wanted, limit=MAX_TASKS)
    if page.next_key is not None and not cluster:
        # The rows may all be of one cluster, and older ones of another.
        pages = {name: archive.list_jobs(viewer, replace(wanted, cluster=name), limit=1) for name in archive.clusters()}
        require_unambiguous("array", str(array_id), {name for name, found in pages.items() if found.rows})
    for row in page.rows:
        if row.array_job_id == array_id:
            yield from archive.find(viewer, row.job_id, cluster=row.cluster)


def _newest(records: Iterable[JobRecord]) -> list[JobRecord]:
    by_task: dict[tuple[str, int], JobRecord] = {}
    for record in sorted(records, key=lambda record: (record.submit_seconds, record.start_seconds or 0)):
        by_task[_task(record)] = record
    return list(by_task.values())


def _task(record: JobRecord) -> tuple[str, int]:
    return record.cluster, record.job_id


def _order(record: JobRecord) -> tuple[bool, int]:
    """Order by task; the pending rest comes last."""
    return record.array_task_id is None, record.array_task_id or 0
