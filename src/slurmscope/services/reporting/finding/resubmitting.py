# SPDX-License-Identifier: Apache-2.0
"""Add the header for the next run to a report, by other runs of the same user and name that the viewer may see."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from slurmscope.errors import ArchiveError
from slurmscope.log import fields
from slurmscope.model.archive import Archive, JobFilter, JobRow
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.resubmission import OtherRun
from slurmscope.model.viewer import Viewer
from slurmscope.rules.expected_wait import compare_waits
from slurmscope.rules.resubmission import suggest_resubmission
from slurmscope.services.reporting.finding.waiting_cache import WaitingTimesCache
from slurmscope.units import DAY_SECONDS

logger = logging.getLogger(__name__)

MAX_RUNS = 50
MAX_ROWS = 200
"""Rows to read: some are of jobs whose names only begin with the same text, or of another size."""
MAX_AGE_SECONDS = 180 * DAY_SECONDS
MAX_NAME = 200


def add_resubmission(
    archive: Archive | None, waiting: WaitingTimesCache, viewer: Viewer, report: JobReport
) -> JobReport:
    """Return the report with the header for the next run; without an archive, it is made from this run alone."""
    if not report.record.has_ended:
        return report
    try:
        runs = tuple(islice(find_other_runs(archive, viewer, report), MAX_RUNS)) if archive else ()
    except ArchiveError:
        runs = ()
    try:
        made = suggest_resubmission(report, runs)
    except ValueError as error:
        # A finding of another release may have a line that this one cannot parse.
        logger.warning("no header for a job", extra=fields("header", job=report.record.shown_id, error=str(error)))
        return report
    if made and made.changes:
        waits = waiting.find(report.record.cluster, report.record.partition)
        made = replace(made, wait=compare_waits(waits, made.submitted, made.suggested))
    return replace(report, resubmission=made)


def find_other_runs(archive: Archive, viewer: Viewer, report: JobReport) -> Iterator[OtherRun]:
    """Yield ended runs of the same cluster, user, name and size, newest first."""
    record = report.record
    if not record.name or not record.user:
        return
    wanted = JobFilter(
        cluster=record.cluster,
        user=record.user,
        name=record.name[:MAX_NAME],
        since_seconds=record.submit_seconds - MAX_AGE_SECONDS,
    )
    rows = archive.list_jobs(viewer, wanted, limit=MAX_ROWS).rows
    skew = _skew(report)
    yield from (_other_run(row, skew) for row in rows if _is_same_job(row, record))


def _is_same_job(row: JobRow, record: JobRecord) -> bool:
    """Return whether a row is an ended run of the same job, other than this one."""
    is_this = (row.job_id, row.submit_seconds) == (record.job_id, record.submit_seconds)
    is_same = (row.user, row.name) == (record.user, record.name)
    is_as_large = (row.nodes, row.cpus, row.gpus) == (record.node_count, record.cpus, record.gpus)
    return is_same and is_as_large and not is_this and row.start_seconds is not None and row.end_seconds is not None


def _other_run(row: JobRow, skew: float) -> OtherRun:
    requested = None if row.memory_bytes is None else row.memory_bytes / max(1, row.nodes)
    return OtherRun(
        state=row.state,
        start_seconds=row.start_seconds or 0,
        run_seconds=row.run_seconds,
        limit_seconds=row.time_limit_seconds,
        requested_bytes=requested,
        peak_bytes=None if requested is None or row.memory_ratio is None else requested * row.memory_ratio * skew,
        mean_cores=None if row.cpu_ratio is None or not row.cpus else row.cpu_ratio * row.cpus,
        mean_gpus=None if row.gpu_ratio is None else row.gpu_ratio * row.gpus,
    )


def _skew(report: JobReport) -> float:
    """Return how much more memory the neediest node of this run needed than the mean: rows have only sums."""
    peaks = [node.working_peak_bytes for node in report.summary.nodes if node.working_peak_bytes]
    return max(peaks) * len(peaks) / sum(peaks) if peaks else 1.0
