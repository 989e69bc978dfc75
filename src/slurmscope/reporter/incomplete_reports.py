# SPDX-License-Identifier: Apache-2.0
"""Mark reports of ended jobs that were not measured, and measure these jobs again.

A report is marked if the time series server failed, or returned fewer series than the agents on the job's nodes have.
Marked jobs are measured again, a bounded number in each round and those first that are due for longest. After each try
a job pauses for half of the time since its end, so that one that always fails delays no other. A better report replaces
the archived one. After the time to give up, a job is tried for the last time and its mark is removed.

A time series server may omit series without reporting an error: all of them if it has lost all of its storages, those
of some nodes if it has lost some storages, and the newest samples if a remote write client still buffers them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from slurmscope.core.clock import Clock
from slurmscope.core.errors import UnreadableReport
from slurmscope.core.log import fields
from slurmscope.core.units import DAY_SECONDS, format_duration
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, run_of
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter.measure import BATCH_JOBS, MeasuredPart, MeasureOutcome, Measurer

if TYPE_CHECKING:
    from slurmscope.archive.sql_archive import SqlArchive
from collections.abc import Iterator, Set
from typing import Literal

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.jobs.record import JobRecord

logger = logging.getLogger(__name__)

ROUND_JOBS = 500
"""Jobs that are measured again in one round."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 600.0, 86400.0
MIN_KEPT_SECONDS = DAY_SECONDS
"""How long a mark stays at least, however old the job is: a server may be down for a moment while weeks are read."""
MAX_SHRUNK_RATIO = 0.02
"""By how much less of a run a curve may cover when it is measured again; replicas of a server differ a little."""
TRIES_AGAIN = "slurmscope tries again until"


class IncompleteReports:
    """Mark and complete reports of one cluster, round by round. Not thread-safe."""

    def __init__(
        self,
        archive: SqlArchive,
        measurer: Measurer,
        save: Callable[[Sequence[JobReport]], None],
        clock: Clock,
        *,
        cluster: str,
        give_up_seconds: float,
    ) -> None:
        """Take what measures and stores reports, and how long after its end a job is measured again."""
        self._archive = archive
        self._measurer = measurer
        self._save = save
        self._clock = clock
        self._cluster = cluster
        self._give_up_seconds = give_up_seconds
        self._agents = KnownAgents(archive, cluster=cluster)
        self._due: dict[RunId, float] = {}
        """When marked jobs are tried again; those that were not tried yet are missing here, and are due."""

    def make_reports(self, part: MeasuredPart) -> list[JobReport]:
        """Return the reports of jobs that ended, those marked that lack numbers."""
        if part.outcome is MeasureOutcome.UNTRIED:
            return self._mark(self._measurer.make_unmeasured(part.records), ())
        self._learn(part.reports)
        reports = self._mark(part.reports, self._agents.unmeasured(part.reports))
        self._note_tries(part.outcome, [report for report in reports if report.is_incomplete])
        return reports

    def work(self) -> None:
        """Measure some of the marked jobs again; raise errors of the archive."""
        marked = self._archive.incomplete_runs(cluster=self._cluster)
        self._due = {run: due for run, due in self._due.items() if run in marked}
        now, over = self._clock.monotonic(), self._clock.wall() - self._give_up_seconds
        is_stopped = self._measurer.is_stopped
        due = [run for run in marked if self._due.get(run, 0.0) <= now and (not is_stopped or marked[run] <= over)]
        due.sort(key=lambda run: (self._due.get(run, 0.0), marked[run], run))
        for begin in range(0, min(len(due), ROUND_JOBS), BATCH_JOBS):
            if self._measurer.is_stopped and not is_stopped:
                return
            self.measure_again(self._read(due[begin : begin + BATCH_JOBS]))

    def measure_again(self, archived: Mapping[RunId, JobReport]) -> None:
        """Measure jobs again; store reports that are better than the archived ones, or final."""
        for part in self._measurer.measure([report.record for report in archived.values()]):
            before = [archived[run_of(record)] for record in part.records]
            pairs = zip(self._make_again(part, before), before, strict=True)
            best = [self._choose(report, old) for report, old in pairs]
            if changed := [report for report, old in zip(best, before, strict=True) if report is not old]:
                self._save(changed)
            self._note_tries(part.outcome, best)

    def _choose(self, report: JobReport, archived: JobReport) -> JobReport:
        """Return the better one of two reports; without its mark if the job is given up."""
        best = report if is_better(report, archived) else archived
        is_over = self._clock.wall() >= self._end_of_tries(archived)
        return self._give_up(best) if best.is_incomplete and is_over else best

    def _read(self, runs: Iterable[RunId]) -> dict[RunId, JobReport]:
        """Read archived reports; one that cannot be read, perhaps of a later release, is tried again in a day."""
        found: dict[RunId, JobReport] = {}
        for run in runs:
            try:
                reports = self._archive.find(EVERYTHING, run[1], cluster=self._cluster)
                found.update((run, report) for report in reports if run_of(report.record) == run)
            except UnreadableReport as error:
                logger.warning("a job is not measured again", extra=fields(job=run[1], reason=str(error)))
            if run not in found:
                self._due[run] = self._clock.monotonic() + MAX_PAUSE_SECONDS
        return found

    def _make_again(self, part: MeasuredPart, before: Sequence[JobReport]) -> Sequence[JobReport]:
        if part.outcome is MeasureOutcome.UNTRIED:
            return before
        self._learn(part.reports)
        if any(map(is_measured, part.reports)):
            return self._mark(part.reports, self._agents.still_unmeasured(part.reports, before))
        # The server may have no series at all now.
        return self._mark(part.reports, [each for each in part.reports if each.summary.run_seconds >= MIN_RUN_SECONDS])

    def _learn(self, reports: Sequence[JobReport]) -> None:
        if self._measurer.has_series:
            self._agents.learn(reports)

    def _mark(self, reports: Sequence[JobReport], unmeasured: Sequence[JobReport]) -> list[JobReport]:
        incomplete = {id(report) for report in unmeasured}
        return [
            self._mark_one(report) if report.is_incomplete or id(report) in incomplete else report for report in reports
        ]

    def _mark_one(self, report: JobReport) -> JobReport:
        until = f"{TRIES_AGAIN} {format_duration(self._give_up_seconds)} after its end."
        return replace(
            report, is_incomplete=True, missing=(*report.missing, f"{_subject(report)} not measured yet; {until}")
        )

    def _end_of_tries(self, report: JobReport) -> float:
        end = report.record.end_seconds or report.made_seconds
        return max(end + self._give_up_seconds, report.made_seconds + MIN_KEPT_SECONDS)

    def _give_up(self, report: JobReport) -> JobReport:
        said = (sentence for sentence in report.missing if TRIES_AGAIN not in sentence)
        given_up = f"{_subject(report)} not measured: the time series server did not return all series in time."
        return replace(report, is_incomplete=False, missing=(*said, given_up))

    def _note_tries(self, outcome: MeasureOutcome, reports: Iterable[JobReport]) -> None:
        """Note when marked jobs are tried again; those that were not tried are due in the next round."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        is_server_failing = outcome is MeasureOutcome.FAILED and not self._measurer.has_answered
        for report in reports:
            if outcome is MeasureOutcome.UNTRIED:
                self._due.pop(run_of(report.record), None)
                continue
            half_age = (wall - (report.record.end_seconds or wall)) / 2
            pause = MIN_PAUSE_SECONDS if is_server_failing else min(half_age, MAX_PAUSE_SECONDS)
            until_over = self._end_of_tries(report) - wall
            self._due[run_of(report.record)] = now + max(MIN_PAUSE_SECONDS, min(pause, until_over))


def _subject(report: JobReport) -> str:
    return "Some numbers of this job were" if is_measured(report) else "This job was"


def is_better(report: JobReport, archived: JobReport) -> bool:
    """Return whether a report has more numbers than the archived one, or the same ones and misses fewer others."""
    found, before = measured(report), measured(archived)
    if found != before:
        return found >= before
    if _cpu_seconds(report) > _cpu_seconds(archived):
        return True
    misses_fewer = bool(found) and len(report.missing) < len(archived.missing)
    return (misses_fewer or not report.is_incomplete) and not _has_shrunk(report, archived)


def _has_shrunk(report: JobReport, archived: JobReport) -> bool:
    """Return whether a curve covers less of the run than before: the server may have deleted its first samples."""
    ratios = {node.node: node.run_ratio for node in report.summary.nodes}
    return any(ratios.get(node.node, 0.0) < node.run_ratio - MAX_SHRUNK_RATIO for node in archived.summary.nodes)


def _cpu_seconds(report: JobReport) -> float:
    return sum(node.cpu_seconds or 0.0 for node in report.summary.nodes)


MIN_RUN_SECONDS = 180.0
"""How long a job has run when its series must exist, with a usual scrape interval."""
MIN_CURVE_SECONDS = 600.0
"""How long a job has run when it must have memory and a curve too."""
MAX_LATE_SECONDS, MAX_LATE_RATIO = 600.0, 0.02
"""How long before the end the last point of a curve may be: this time, or this share of the run if that is longer."""
DELIVERED_SECONDS = 3 * 3600.0
"""How long after its end all samples of a job have arrived; remote write clients buffer some for an hour or two."""
NEAR_SECONDS = 3600.0
"""Jobs that ran at most so long before or after another one show what the server has of that time."""
MAX_AGE_SECONDS = 30 * 86400
"""A node on which no job was measured for so long has no agent any more."""
MAX_NODES = 100_000
LOOKED_UP_NODES = 2
"""Nodes of one job that are looked up in the archive."""
LEARNED_JOBS = 5
"""Newest archived jobs of a node that are read to find out whether it has an agent; incomplete ones do not count."""
LISTED_JOBS, LISTED_HOURS = 200, (0, 72, 480)
"""Jobs of a node that are listed for that, and how long before a job they were submitted, at least."""

MeasuredKind = Literal["cpu", "memory", "curve"]
NodeMeasurement = tuple[str, MeasuredKind]
"""The name of a node, and what its agent measured there."""


class KnownAgents:
    """Record what was measured on which nodes of a cluster, also before this process was started. Not thread-safe."""

    def __init__(self, archive: Archive, *, cluster: str) -> None:
        self._archive = archive
        self._cluster = cluster
        self._last_ends: dict[NodeMeasurement, float] = {}
        self._looked_up: set[str] = set()

    def learn(self, reports: Sequence[JobReport]) -> None:
        """Record what was measured of these jobs, and of earlier ones on nodes that have no numbers now."""
        self._learn_from(reports)
        read: dict[int, bool] = {}
        for report in reports:
            for node in self._next_unknown(report):
                self._learn_from_archive(node, report.record.end_seconds or report.made_seconds, read)

    def _learn_from(self, reports: Iterable[JobReport]) -> None:
        for report in reports:
            end = report.record.end_seconds or report.made_seconds
            for number in measured(report):
                if number in self._last_ends or len(self._last_ends) < 3 * MAX_NODES:
                    self._last_ends[number] = max(end, self._last_ends.get(number, 0.0))

    def _is_on(self, node: str) -> bool:
        return (node, "cpu") in self._last_ends

    def _next_unknown(self, report: JobReport) -> list[str]:
        """Return some nodes of a job that have no numbers, and of which nothing is known; each is returned once."""
        if report.summary.run_seconds < MIN_RUN_SECONDS:
            return []
        nodes = {node for node in _silent_nodes(report) if not self._is_on(node)} - self._looked_up
        found = sorted(nodes)[:LOOKED_UP_NODES]
        if len(self._looked_up) < MAX_NODES:
            self._looked_up.update(found)
        return found

    def _learn_from_archive(self, node: str, end_seconds: int, read: dict[int, bool]) -> None:
        """Find out from archived jobs whether a node has an agent.

        Incomplete ones do not show it: a whole outage was without numbers. ``read`` holds which are, of those that were
        read.
        """
        whole_jobs = 0
        for job_id in self._sample_jobs(node, end_seconds):
            if job_id not in read:
                read[job_id] = self._learn_from_job(job_id)
            whole_jobs += not read[job_id]
            if self._is_on(node) or whole_jobs == LEARNED_JOBS:
                return

    def _learn_from_job(self, job_id: int) -> bool:
        """Learn from the newest run of a job; return whether its report is incomplete or unreadable."""
        try:
            reports = self._archive.find(EVERYTHING, job_id, cluster=self._cluster)[:1]
        except UnreadableReport:
            return True
        self._learn_from(reports)
        return any(report.is_incomplete for report in reports)

    def _sample_jobs(self, node: str, end_seconds: int) -> Iterator[int]:
        """Yield the newest jobs of a node, and earlier ones at growing distances."""
        wanted = JobFilter(cluster=self._cluster, node=node, is_running=False)
        wanted = replace(wanted, since_seconds=end_seconds - MAX_AGE_SECONDS)
        for hours in LISTED_HOURS:
            until = replace(wanted, until_seconds=end_seconds + 1 - hours * 3600)
            rows = self._archive.list_jobs(EVERYTHING, until, limit=LISTED_JOBS).rows
            places = {*range(LEARNED_JOBS), *(2**power for power in range(3, LISTED_JOBS.bit_length())), len(rows) - 1}
            yield from (row.job_id for place, row in enumerate(rows) if place in places)
            if len(rows) < LISTED_JOBS:
                return

    def unmeasured(self, reports: Iterable[JobReport]) -> list[JobReport]:
        """Return the jobs that lack series, although there should be some."""
        return [report for report in reports if self._lacking(report)]

    def still_unmeasured(self, reports: Sequence[JobReport], archived: Sequence[JobReport]) -> list[JobReport]:
        """Return the jobs that still lack series when they are measured again, given their archived reports.

        A job that was measured on some nodes left another one idle if jobs of the same time are measured there now. If
        its numbers are the same long after its end, there are no others of these nodes.
        """
        found = []
        for report, before in zip(reports, archived, strict=True):
            lacking = self._lacking(report)
            if lacking and is_measured(report):
                lacking -= {
                    (node, "cpu") for other in reports if _is_near(report, other) for node, _ in measured(other)
                }
            if _is_same(report, before):
                lacking = {(node, kind) for node, kind in lacking if kind == "cpu"}
            if lacking:
                found.append(report)
        return found

    def _lacking(self, report: JobReport) -> set[NodeMeasurement]:
        return {number for number in _missing(report) if self._is_known(number, report.record)}

    def _is_known(self, number: NodeMeasurement, record: JobRecord) -> bool:
        last_end = self._last_ends.get(number)
        return last_end is not None and (record.end_seconds or record.start_seconds or 0) - last_end < MAX_AGE_SECONDS


def is_measured(report: JobReport) -> bool:
    """Return whether series of this job were found."""
    return bool(measured(report))


def measured(report: JobReport) -> frozenset[NodeMeasurement]:
    """Return what was measured on each node; a node without CPU time was not measured."""
    return frozenset(_numbers(report))


def _silent_nodes(report: JobReport) -> Set[str]:
    return {*report.record.nodes} - {node for node, _ in _numbers(report)}


def _numbers(report: JobReport) -> Iterator[NodeMeasurement]:
    run_seconds = report.summary.run_seconds
    for node in report.summary.nodes:
        # A node on which no step ran has zeros, whether it has an agent or not.
        if not node.cpu_seconds:
            continue
        yield node.node, "cpu"
        if node.working_peak_bytes is not None:
            yield node.node, "memory"
        # Mean cores are those until the last point.
        counted = node.cpu_seconds / node.mean_cores if node.mean_cores else node.run_ratio * run_seconds
        if node.run_ratio and run_seconds - counted <= max(MAX_LATE_SECONDS, MAX_LATE_RATIO * run_seconds):
            yield node.node, "curve"


def _is_near(report: JobReport, other: JobReport) -> bool:
    """Return whether two jobs ran at about the same time."""
    (start, end), (other_start, other_end) = _times(report), _times(other)
    return start - NEAR_SECONDS < other_end and other_start < end + NEAR_SECONDS


def _times(report: JobReport) -> tuple[float, float]:
    record = report.record
    return record.start_seconds or 0, record.end_seconds or report.made_seconds


def _is_same(report: JobReport, before: JobReport) -> bool:
    """Return whether a job has the same numbers as before, long after its end."""
    age_seconds = report.made_seconds - (report.record.end_seconds or report.made_seconds)
    return is_measured(report) and age_seconds >= DELIVERED_SECONDS and report.summary.nodes == before.summary.nodes


def _missing(report: JobReport) -> Iterator[NodeMeasurement]:
    """Yield what was not measured of a job, and would have been by agents on all of its nodes."""
    run_seconds, found = report.summary.run_seconds, measured(report)
    if run_seconds >= MIN_RUN_SECONDS:
        yield from ((node, "cpu") for node in _silent_nodes(report))
    if run_seconds >= MIN_CURVE_SECONDS:
        later: tuple[MeasuredKind, ...] = ("memory", "curve")
        yield from ((node, kind) for node, _ in found for kind in later if (node, kind) not in found)
