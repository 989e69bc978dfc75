# SPDX-License-Identifier: Apache-2.0
"""Mark reports of ended jobs that were not measured, and measure these jobs again.

A report is marked if the time series server failed, or returned fewer series than the agents on the job's nodes have.
Marked jobs are measured again, a bounded number in each round and those first that are due for longest. After each try
a job pauses for half of the time since its end, so that one that always fails delays no other. A better report replaces
the archived one. After the time to give up, a job is tried for the last time and its mark is removed.
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
from slurmscope.reporter.known_agents import MIN_RUN_SECONDS, KnownAgents, is_measured, measured
from slurmscope.reporter.measure import BATCH_JOBS, MeasuredPart, Measurer, Outcome

if TYPE_CHECKING:
    from slurmscope.archive.sql_archive import SqlArchive

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
        if part.outcome is Outcome.UNTRIED:
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
        if part.outcome is Outcome.UNTRIED:
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

    def _note_tries(self, outcome: Outcome, reports: Iterable[JobReport]) -> None:
        """Note when marked jobs are tried again; those that were not tried are due in the next round."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        is_server_failing = outcome is Outcome.FAILED and not self._measurer.has_answered
        for report in reports:
            if outcome is Outcome.UNTRIED:
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
