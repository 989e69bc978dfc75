# SPDX-License-Identifier: Apache-2.0
"""Add the header for the next run to a report, by other runs of the same user and name that the viewer may see.

::

    n1 16 64000
    gpu01 64 512000
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.cache import Cache
from slurmscope.core.errors import ArchiveError, MalformedAnswer, SourceError
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS, MIB
from slurmscope.jobs.pending.smaller_request import compare_waits
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport, OtherRun
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.script import script_options
from slurmscope.jobs.submit_line import is_srun
from slurmscope.jobs.summary import JobSummary
from slurmscope.jobs.viewer import Viewer
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.slurm.cluster_names import NAME, ClusterNames, read_own_name
from slurmscope.slurm.command import RunCommand

logger = logging.getLogger(__name__)


KEEP_SECONDS = 3600.0
"""Nodes seldom change; one sinfo call an hour."""
RETRY_SECONDS = 300.0

_ARGUMENTS = ("--noheader", "--Node", "--all", "--format=%N %c %m")
_LINE = re.compile(r"^(\S{1,255}) ([0-9]{1,9}) ([0-9]{1,12})[ ]*$", re.MULTILINE)


class NodeSize(NamedTuple):
    cpus: float
    memory_bytes: float


class NodeSizes:
    """Read the size of every node with sinfo, at most once an hour for each cluster; thread-safe."""

    def __init__(self, run: RunCommand, clock: Callable[[], float] = time.monotonic) -> None:
        """Take what runs a command of Slurm, such as ``SlurmCommands.run``."""
        self._run = run
        self._own = ClusterNames(lambda: (read_own_name(run),), clock)
        self._cache = Cache[Mapping[str, NodeSize]](
            KEEP_SECONDS, retry_seconds=RETRY_SECONDS, serves_old=True, clock=clock
        )

    def smallest(self, cluster: str, nodes: Iterable[str]) -> NodeSize | None:
        """Return the fewest cores and the least memory of these nodes; None if the size of one is unknown."""
        try:
            known = self._cache.get(cluster, lambda: self._read(cluster))
        except SourceError:
            return None
        found = [known.get(node) for node in nodes]
        sizes = [size for size in found if size is not None]
        if not sizes or len(sizes) < len(found):
            return None
        return NodeSize(min(size.cpus for size in sizes), min(size.memory_bytes for size in sizes))

    def _read(self, cluster: str) -> Mapping[str, NodeSize]:
        try:
            arguments = (*self._which(cluster), *_ARGUMENTS)
            return parse_sizes(self._run("sinfo", arguments).decode("utf-8", "replace"))
        except SourceError as error:
            logger.info("sizes of nodes are unknown", extra=fields(cluster=cluster, error=str(error)))
            raise

    def _which(self, cluster: str) -> tuple[str, ...]:
        """Return the option for another cluster than that of this host, which needs no slurmdbd."""
        if cluster == self._own.get()[0]:
            return ()
        if not NAME.match(cluster):
            raise MalformedAnswer("the name of a cluster cannot be used with sinfo")
        return (f"--clusters={cluster}",)


def parse_sizes(text: str) -> dict[str, NodeSize]:
    """Parse the output of sinfo; a line in another format is skipped."""
    sizes = {}
    for name, cpus, memory in _LINE.findall(text):
        sizes[name] = NodeSize(float(cpus), float(int(memory) * MIB))
    return sizes


MAX_RUNS = 50
MAX_ROWS = 200
"""Rows to read: some are of jobs whose names only begin with the same text, or of another size."""
MAX_AGE_SECONDS = 180 * DAY_SECONDS
MAX_NAME = 200

Judge = Callable[[JobSummary], tuple[Finding, ...]]
"""Return what the rules find in a job."""


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
    made = suggest_resubmission(report, runs)
    if made and made.changes:
        waits = waiting.find(report.record.cluster, report.record.partition)
        made = replace(made, wait=compare_waits(waits, made.submitted, made.suggested))
    return replace(report, resubmission=made)


def add_script(report: JobReport, text: str, judge: Judge) -> JobReport:
    """Return the report of a job whose options in its script are known; ``text`` is that of the script."""
    options = script_options(text, report.record.het_offset or 0)
    summary = replace(report.summary, record=replace(report.record, script_options=options))
    findings = judge(summary)
    # The archive may have findings of other thresholds: then these are shown.
    is_same = [each.rule for each in findings] == [each.rule for each in report.findings]
    return replace(report, summary=summary, findings=findings if is_same else report.findings)


def may_have_options(report: JobReport) -> bool:
    """Return whether options in the script of a job may change what is suggested."""
    record = report.record
    return record.has_ended and not is_srun(record.submit_line) and record.start_seconds is not None


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
