# SPDX-License-Identifier: Apache-2.0
"""Make reports of ended jobs without mistaking a failing time series server for jobs that were not measured.

What cannot be measured now is not archived until the server has failed for the time to give up; then its report is
marked as incomplete. A server that is too slow for many jobs at once, or does not answer, is queried for fewer: a job
for which alone it fails delays no others. That is so if the server still answers for a job that was measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.core.errors import (
    MalformedAnswer,
    ServerBusy,
    ServerError,
    ServerRefused,
    SourceError,
    UnreadableReport,
)
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter.known_agents import MAX_AGE_SECONDS, MIN_RUN_SECONDS, KnownAgents, is_measured, measured
from slurmscope.reports.make import ReportMaker

BATCH_JOBS = 100
MIN_SILENT_JOBS = 3
"""So many jobs without series, and none with any, are more than chance."""
PROBED_JOBS = 10
MEASURED_AGAIN = (
    "The time series server did not return all numbers of this job; slurmscope tries again until a week after its end."
)
GROW_AFTER = 10
"""After so many answers in a row, twice as many jobs are queried at once: a server may be slow for a moment only."""
MAX_FAILED = 3
"""If queries for this many single jobs in a row fail, the server may be failing, not the jobs."""
MAX_FAILED_OF_BATCH = 12
"""After so many single jobs of a batch failed, which may take a minute each, the others wait for the next round."""
LEARNED_JOBS = 5
"""Newest archived jobs of a node that are read to find out whether it has an agent; incomplete ones do not count."""
LISTED_JOBS, LISTED_HOURS = 200, (0, 72, 480)
"""Jobs of a node that are listed for that, and how long before a job they were submitted, at least."""

MAX_SHRUNK_RATIO = 0.02
"""By how much less of a run a curve may cover when it is measured again; replicas of a server differ a little."""

MakeReports = Callable[[Sequence[JobRecord]], list[JobReport]]


class NoSeries(ServerBusy):
    """The server answers, but has lost its series: fewer jobs at once do not help."""


WHOLE_SERVER = (ServerRefused, NoSeries)
"""Failures that do not depend on the jobs. Others may: a proxy answers 502 or 503 if a query ends its server, and a
second storage that rejects one query causes a warning."""


class EndedReports:
    """Make reports of ended jobs, a few at a time. Not thread-safe."""

    def __init__(
        self, maker: ReportMaker, accounting: JobAccounting, archive: Archive, *, cluster: str, give_up_seconds: float
    ) -> None:
        """Take the parts, the cluster whose jobs they are, and how long to wait for a server that fails."""
        self._maker = maker
        self._accounting = accounting
        self._archive = archive
        self._cluster = cluster
        self._give_up_seconds = give_up_seconds
        self._agents = KnownAgents()
        self._jobs_at_once = BATCH_JOBS
        self._answered = 0
        self._turns = 0
        self._measured_last: JobRecord | None = None
        self.failing_since: float | None = None
        """When the time series server began to fail; the caller keeps it across restarts."""
        self.has_given_up = False
        """Whether jobs were archived without waiting for the server; the caller keeps it too."""
        self.recoveries = 0
        """How often the server returned series again after jobs had been archived without theirs."""

    @property
    def is_server_failing(self) -> bool:
        """Return whether jobs wait for the time series server."""
        return self.failing_since is not None

    def make(self, records: Sequence[JobRecord], now: float) -> Iterator[list[JobReport]]:
        """Yield reports of these jobs in parts; raise the SourceError of a server for which they must wait."""
        return self._make_in_parts(records, lambda part: self._make_part(part, now), self._make_without)

    def make_again(self, archived: Sequence[JobReport]) -> Iterator[list[JobReport]]:
        """Yield reports that have more numbers than the archived ones, in parts; raise errors of a failing server."""
        before = {_run_of(report.record): report for report in archived}

        def make_part(part: Sequence[JobRecord]) -> list[JobReport]:
            return self._make_part_again(part, [before[_run_of(record)] for record in part])

        # Each time with other jobs first: if too many fail, the rest is not tried.
        self._turns += 1
        begin = self._turns * MAX_FAILED_OF_BATCH % max(1, len(archived))
        records = [report.record for report in (*archived[begin:], *archived[:begin])]
        for reports in self._make_in_parts(records, make_part, lambda _: []):
            yield [report for report in reports if _is_better(report, before[_run_of(report.record)])]

    def measure_running(
        self, records: Sequence[JobRecord], leave_out: Callable[[Sequence[JobRecord]], None]
    ) -> Iterator[list[JobReport]]:
        """Yield reports of running jobs in parts; call ``leave_out`` with those for which alone the server fails."""

        def make_none(failed: Sequence[JobRecord]) -> list[JobReport]:
            leave_out(failed)
            return []

        return self._make_in_parts(records, lambda part: self._maker.make(part, must_measure=True), make_none)

    def _make_in_parts(
        self, records: Sequence[JobRecord], make: MakeReports, make_failed: MakeReports
    ) -> Iterator[list[JobReport]]:
        """Make reports of fewer jobs at once when the server fails, down to single jobs.

        Those for which alone it fails, while it answers for others, are made by ``make_failed``. Jobs that never ran
        are not among these others: nothing is queried for them.
        """
        waiting, failed = [record for record in records if _has_run(record)], list[JobRecord]()
        answered, failed_count = None, 0
        if len(waiting) < len(records):
            yield self._maker.make([record for record in records if not _has_run(record)])
        while waiting:
            part = waiting[: self._jobs_at_once]
            try:
                reports = make(part)
            except (ServerError, MalformedAnswer) as error:
                if isinstance(error, WHOLE_SERVER):
                    raise
                self._answered = 0
                if len(part) > 1:
                    self._jobs_at_once = len(part) // 2
                    continue
                failed.append(waiting.pop(0))
                failed_count += 1
                # Jobs at the other end are the least like this one, which may be a task of an array.
                waiting.reverse()
                if waiting and len(failed) < MAX_FAILED:
                    continue
                if not self._is_answering(answered):
                    raise
                yield make_failed(failed)
                failed = []
                if waiting and failed_count >= MAX_FAILED_OF_BATCH:
                    raise
                continue
            answered = part[0]
            del waiting[: len(part)]
            self._grow(is_sure=bool(failed))
            yield reports
            if failed:
                yield make_failed(failed)
                failed = []

    def _is_answering(self, answered: JobRecord | None) -> bool:
        """Return whether the server answers once more for a job of the same batch.

        Without one, it must have series of the job that was measured last, or of one of the longest running ones.
        """
        try:
            if answered:
                self._maker.make([answered], must_measure=True)
                return True
            probed = [self._measured_last] if self._measured_last else self._longest_running()
        except SourceError:
            return False
        return any(map(self._has_series_of, probed))

    def _has_series_of(self, record: JobRecord) -> bool:
        try:
            return any(map(is_measured, self._maker.make([record], must_measure=True)))
        except SourceError:
            return False

    def _longest_running(self) -> list[JobRecord]:
        running = [record for record in self._accounting.read_current() if record.is_running and _has_run(record)]
        return sorted(running, key=lambda record: record.start_seconds or 0)[:MAX_FAILED]

    def _grow(self, *, is_sure: bool) -> None:
        """Query for more jobs at once after some answers, or if the jobs before failed by themselves."""
        self._answered += 1
        if is_sure or self._answered == GROW_AFTER:
            self._jobs_at_once, self._answered = min(BATCH_JOBS, 2 * self._jobs_at_once), 0

    def _make_without(self, part: Sequence[JobRecord]) -> list[JobReport]:
        """Make reports without numbers that the server does not return, although it answers for other jobs."""
        self.failing_since = None
        return self._mark(self._maker.make(part))

    def _make_part_again(self, part: Sequence[JobRecord], archived: Sequence[JobReport]) -> list[JobReport]:
        reports = self._maker.make(part, must_measure=True)
        self._learn(reports)
        if any(map(is_measured, reports)):
            self._note_series(reports)
            return _marked(reports, self._agents.still_unmeasured(reports, archived))
        # The server may have no series at all now.
        return _marked(reports, [report for report in reports if report.summary.run_seconds >= MIN_RUN_SECONDS])

    def _make_part(self, part: Sequence[JobRecord], now: float) -> list[JobReport]:
        must_measure = self._must_measure(part, now)
        try:
            reports = self._mark(self._maker.make(part, must_measure=must_measure))
            if must_measure:
                self._check_silence(reports, now)
        except SourceError:
            self.failing_since = now if self.failing_since is None else self.failing_since
            raise
        if not must_measure:
            self.has_given_up = True
        elif any(map(is_measured, reports)):
            self._note_series(reports)
        else:
            self.failing_since = None
        return reports

    def _must_measure(self, part: Sequence[JobRecord], now: float) -> bool:
        """Return whether to wait for a failing server: until it has failed for long, and these jobs are old.

        Either condition alone would lose curves: a server may be down for a moment while a week of jobs is read, and it
        may return after days with everything about the jobs of today.
        """
        youngest = max(record.end_seconds or now for record in part)
        failing_since = now if self.failing_since is None else self.failing_since
        return now - max(youngest, failing_since) < self._give_up_seconds

    def _mark(self, reports: Sequence[JobReport]) -> list[JobReport]:
        """Mark jobs as incomplete that lack series, although their nodes have agents."""
        self._learn(reports)
        return _marked(reports, self._agents.unmeasured(reports))

    def _learn(self, reports: Sequence[JobReport]) -> None:
        self._agents.learn(reports)
        if not self._maker.has_series:
            return
        read: dict[int, bool] = {}
        for report in reports:
            for node in self._agents.next_unknown(report):
                self._learn_from_archive(node, report.record.end_seconds or report.made_seconds, read)

    def _note_series(self, reports: Sequence[JobReport]) -> None:
        """Note that the server has answered all queries, and has series of some of these jobs."""
        self._measured_last = next(report.record for report in reports if is_measured(report))
        self.failing_since = None
        self.recoveries += self.has_given_up
        self.has_given_up = False

    def _learn_from_archive(self, node: str, end_seconds: int, read: dict[int, bool]) -> None:
        """Find out from archived jobs whether a node had an agent before this process was started.

        Incomplete ones do not show it: a whole outage was without numbers. ``read`` holds which are, of those that were
        read.
        """
        whole_jobs = 0
        for job_id in self._sample_jobs(node, end_seconds):
            if job_id not in read:
                read[job_id] = self._learn_from_job(job_id)
            whole_jobs += not read[job_id]
            if self._agents.is_on(node) or whole_jobs == LEARNED_JOBS:
                return

    def _learn_from_job(self, job_id: int) -> bool:
        """Learn from the newest run of a job; return whether its report is incomplete or unreadable."""
        try:
            reports = self._archive.find(EVERYTHING, job_id, cluster=self._cluster)[:1]
        except UnreadableReport:
            return True
        self._agents.learn(reports)
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

    def _check_silence(self, reports: Sequence[JobReport], now: float) -> None:
        """Raise NoSeries if neither these jobs nor running ones have series, although their nodes have agents.

        Running jobs show whether the server has lost its series, or has none of the time when it was not running. After
        the time to give up, jobs no longer wait: the agents may have been removed.
        """
        silent = self._agents.unmeasured(reports)
        must_wait = self._maker.has_series and not self.has_given_up and not any(map(is_measured, reports))
        if not must_wait or len(silent) < MIN_SILENT_JOBS:
            return
        current = (record for record in self._accounting.read_current() if self._has_series(record, now))
        running = [*islice(current, PROBED_JOBS)]
        try:
            has_series = any(map(is_measured, self._maker.make(running, must_measure=True)))
        except (ServerError, MalformedAnswer) as error:
            if self._is_answering(None):
                return
            raise NoSeries(str(error)) from error
        if running and not has_series:
            raise NoSeries(
                f"the time series server has no series of {len(silent)} ended and {len(running)} running jobs, "
                "although their nodes have agents"
            )

    def _has_series(self, record: JobRecord, now: float) -> bool:
        """Return whether a server that works has series of this running job."""
        has_begun = record.is_running and record.start_seconds is not None
        return has_begun and now - (record.start_seconds or 0) >= MIN_RUN_SECONDS and self._agents.are_on(record)


def _has_run(record: JobRecord) -> bool:
    """Return whether a job ran, or runs: then there are queries for it."""
    start, end = record.start_seconds, record.end_seconds
    return start is not None and (end is None or end > start)


def _marked(reports: Sequence[JobReport], unmeasured: Sequence[JobReport]) -> list[JobReport]:
    incomplete = {id(report) for report in unmeasured}
    return [
        replace(report, is_incomplete=True, missing=(*report.missing, MEASURED_AGAIN))
        if report.is_incomplete or id(report) in incomplete
        else report
        for report in reports
    ]


def _is_better(report: JobReport, archived: JobReport) -> bool:
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


def _run_of(record: JobRecord) -> tuple[int, int]:
    return record.job_id, record.submit_seconds
