# SPDX-License-Identifier: Apache-2.0
"""List pending jobs together with archived ones.

Both are ordered by submission, newest first, so a page of both is found by the same position. Pending tasks of an
array are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice

from slurmscope.archive.interface import JobFilter, JobPage, PagePosition
from slurmscope.archive.job_columns import JobRow, make_pending_row
from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from slurmscope.jobs.viewer import Viewer
from slurmscope.slurm.states import PENDING

ReadPage = Callable[[], JobPage]


def read_merged(
    queues: Sequence[PendingQueue],
    read: ReadPage,
    viewer: Viewer,
    wanted: JobFilter,
    *,
    after: PagePosition | None,
    limit: int,
) -> JobPage:
    """Return one page of archived and pending jobs; ``read`` returns the archived ones after the same position.

    Each of the queues is that of one cluster.
    """
    waiting = [row for queue in queues for row in islice(list_pending(queue, viewer, wanted, after), limit + 1)]
    waiting.sort(key=_position, reverse=True)
    if queues and wanted.state == PENDING:
        return _cut(waiting, limit, has_more=False)
    page = read()
    # A job that has just started is archived before the queue is read again. The queue may not know its cluster.
    known = {(cluster, *_run_id(row)) for row in page.rows for cluster in ("", row.cluster)}
    fresh = [row for row in waiting if (row.cluster, *_run_id(row)) not in known]
    rows = list(merge(page.rows, fresh, key=_position, reverse=True)) if fresh else list(page.rows)
    return _cut(rows, limit, has_more=page.next_key is not None)


def list_pending(
    queue: PendingQueue, viewer: Viewer, wanted: JobFilter, after: PagePosition | None = None
) -> Iterator[JobRow]:
    """Yield the rows of pending jobs that match and that the viewer may see, newest first."""
    if not _may_match(queue, wanted):
        return
    for job in _candidates(queue, viewer, wanted):
        is_after = after is None or (job.submit_seconds, job.job_id) < after
        if is_after and _matches(job, wanted) and viewer.sees(job.user, job.account, queue.cluster):
            yield make_pending_row(job, queue.cluster)


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
        and (not wanted.partition or wanted.partition in job.partitions)
        and job.name.startswith(wanted.name)
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


def _position(row: JobRow) -> PagePosition:
    return PagePosition(row.submit_seconds, row.job_id)


def _cut(rows: list[JobRow], limit: int, *, has_more: bool) -> JobPage:
    """Cut a page after the limit, but not between jobs of several clusters with the same position."""
    end = min(limit, len(rows))
    while 0 < end < len(rows) and _position(rows[end]) == _position(rows[end - 1]):
        end += 1
    page = tuple(rows[:end])
    return JobPage(rows=page, next_key=_position(page[-1]) if page and (has_more or len(rows) > end) else None)
