# SPDX-License-Identifier: Apache-2.0
"""List pending jobs together with archived ones.

Both are ordered by submission, newest first, so a page of both is found by the same position. Pending tasks of an
array are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from slurmscope.archive.interface import NEWEST_FIRST, JobFilter, JobPage, ListOrder, PagePosition, SortColumn
from slurmscope.archive.job_columns import JobRow, make_pending_row
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.viewer import Viewer
from slurmscope.slurm.states import PENDING

ReadPage = Callable[[], JobPage]


def read_merged(  # noqa: PLR0913 - what a page is chosen by
    queues: Sequence[PendingQueue],
    read: ReadPage,
    viewer: Viewer,
    wanted: JobFilter,
    *,
    after: PagePosition | None,
    limit: int,
    order: ListOrder = NEWEST_FIRST,
) -> JobPage:
    """Return one page of archived and pending jobs; ``read`` returns the archived ones after the same position.

    Each of the queues is that of one cluster.
    """
    waiting = order.sort(
        row for queue in queues for row in list_pending(queue, viewer, wanted, after, limit + 1, order)
    )
    if queues and wanted.state == PENDING:
        return _cut(waiting, limit, order, has_more=False)
    page = read()
    # A job that has just started is archived before the queue is read again. The queue may not know its cluster.
    known = {(cluster, *_run_id(row)) for row in page.rows for cluster in ("", row.cluster)}
    fresh = [row for row in waiting if (row.cluster, *_run_id(row)) not in known]
    rows = order.sort((*page.rows, *fresh)) if fresh else list(page.rows)
    return _cut(rows, limit, order, has_more=page.next_key is not None)


def list_pending(
    queue: PendingQueue,
    viewer: Viewer,
    wanted: JobFilter,
    after: PagePosition | None = None,
    limit: int | None = None,
    order: ListOrder = NEWEST_FIRST,
) -> Iterator[JobRow]:
    """Yield the first rows of pending jobs that match and that the viewer may see; none have run, or have used CPUs."""
    if order.column is not SortColumn.SUBMIT and order.column.value not in PendingJob._fields:
        return
    found = (job for job in _find_pending(queue, viewer, wanted) if order.is_after(job, after))
    for job in islice(found if order == NEWEST_FIRST else order.sort(found), limit):
        yield make_pending_row(job, queue.cluster)


def count_pending(queue: PendingQueue, viewer: Viewer, wanted: JobFilter) -> int:
    """Count pending jobs that match and that the viewer may see; an array counts as its tasks."""
    return sum(job.task_count for job in _find_pending(queue, viewer, wanted))


def _find_pending(queue: PendingQueue, viewer: Viewer, wanted: JobFilter) -> Iterator[PendingJob]:
    """Yield them, newest first."""
    if not _may_match(queue, wanted):
        return
    for job in _candidates(queue, viewer, wanted):
        if _matches(job, wanted) and viewer.sees(job.user, job.account, queue.cluster):
            yield job


def _candidates(queue: PendingQueue, viewer: Viewer, wanted: JobFilter) -> Iterable[PendingJob]:
    if wanted.user:
        return queue.of_user(wanted.user)
    if viewer.is_staff or viewer.coordinates:
        return queue.jobs
    return queue.of_user(viewer.name)


def _may_match(queue: PendingQueue, wanted: JobFilter) -> bool:
    """Return whether any pending job can match: none has findings, nodes or measured numbers, or runs."""
    is_of_cluster = wanted.cluster in {"", queue.cluster}
    is_of_started = wanted.rule or wanted.node or wanted.ranges
    return is_of_cluster and not is_of_started and wanted.worst is None and wanted.is_running is None


def _matches(job: PendingJob, wanted: JobFilter) -> bool:
    return (
        wanted.state in {"", PENDING, job.state}
        and wanted.account in {"", job.account}
        and wanted.reason in {"", job.reason, job.word}
        and (not wanted.partition or wanted.partition in job.partitions)
        and job.name.startswith(wanted.name)
        and wanted.name_part.lower() in job.name.lower()
        and wanted.array_job_id in {None, job.array_job_id}
        and wanted.het_job_id in {None, job.het_job_id}
        and (not wanted.shown_ids or _has_id(job, wanted.shown_ids))
        and (wanted.since_seconds is None or job.submit_seconds >= wanted.since_seconds)
        and (wanted.until_seconds is None or job.submit_seconds < wanted.until_seconds)
    )


def _has_id(job: PendingJob, shown_ids: Collection[str]) -> bool:
    """Return whether a job, its array or one of its pending tasks is named."""
    if job.shown_id in shown_ids or str(job.array_job_id or job.job_id) in shown_ids:
        return True
    return job.array_job_id is not None and any(
        array == str(job.array_job_id) and part.isdecimal() and any(int(part) in tasks for tasks in job.tasks)
        for array, _, part in (shown_id.partition("_") for shown_id in shown_ids)
    )


def _run_id(row: JobRow) -> tuple[int, int]:
    return row.job_id, row.submit_seconds


def _cut(rows: list[JobRow], limit: int, order: ListOrder, *, has_more: bool) -> JobPage:
    """Cut a page after the limit, but not between jobs of several clusters with the same position."""
    end = min(limit, len(rows))
    while 0 < end < len(rows) and order.place(rows[end]) == order.place(rows[end - 1]):
        end += 1
    page = tuple(rows[:end])
    return JobPage(rows=page, next_key=order.place(page[-1]) if page and (has_more or len(rows) > end) else None)
