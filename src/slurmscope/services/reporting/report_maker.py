# SPDX-License-Identifier: Apache-2.0
"""Make reports of jobs: what accounting tells and what was measured go in, one document per run comes out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.summary import summarise
from slurmscope.log import fields
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.series import Measured, SeriesSource
from slurmscope.model.summary import JobSummary
from slurmscope.rules import judge
from slurmscope.services.reporting.measuring import UNREACHABLE, Answers, measure

logger = logging.getLogger(__name__)

NO_SERIES = "Nothing was measured: no source of time series is set up."
NOT_SUMMARISED = "The numbers of this job could not be summed up, which is a bug; the log of slurmscope tells more."
NO_CURVE = (
    "The CPU time is known, but not its course, so nothing is concluded from it. If that is so for all jobs, "
    "slurmscope doctor portal tells why."
)
PARTIAL = "Accounting has only part of this job's record so far: name, partition and requested resources are missing."
LONG_RUN_SECONDS = 600.0
"""A job that ran so long should have a curve, however seldom its nodes are scraped."""


class ReportMaker:
    """Turn records of jobs into reports."""

    def __init__(
        self,
        series: SeriesSource | None,
        *,
        thresholds: Mapping[str, float] | None = None,
        timeout_seconds: float = 60.0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take where curves come from, what rules go by, and how long one batch may take."""
        self._series = series
        self._thresholds = thresholds
        self._timeout_seconds = timeout_seconds
        self._wall_clock = wall_clock

    def make(self, records: Sequence[JobRecord], *, must_measure: bool = False) -> list[JobReport]:
        """Return a report for each record, in their order; ``missing`` tells what could not be asked.

        ``must_measure`` raises what kept the server of the time series from answering: it may come back later.
        """
        now = self._wall_clock()
        reports: dict[int, JobReport] = {}
        for batch in runs_apart(enumerate(records)):
            answers = self._measure([record for _, record in batch], now, must_measure=must_measure)
            for position, record in batch:
                reports[position] = self._make_one(record, answers.of(record.job_id), now)
        return [reports[position] for position in range(len(records))]

    def _measure(self, records: Sequence[JobRecord], now: float, *, must_measure: bool) -> Answers:
        if self._series is None:
            return Answers(problems=[NO_SERIES])
        until = time.monotonic() + self._timeout_seconds
        try:
            answers = measure(self._series, records, now_seconds=now, until=until)
        except UNREACHABLE as error:
            if must_measure:
                raise
            return Answers(problems=[f"The time series could not be asked: {error}"])
        if must_measure and answers.busy:
            raise answers.busy
        return answers

    def _make_one(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        """Make one report; numbers that we stumble over cost this job its summary, and no other job anything."""
        try:
            return self._sum_up(record, measured, now)
        except Exception:  # a bug; what accounting tells is still worth a report
            logger.exception("job not summarised", extra=fields(job=record.shown_id))
            end = now if record.end_seconds is None else record.end_seconds
            run_seconds = max(0.0, end - (end if record.start_seconds is None else record.start_seconds))
            summary = JobSummary(record=record, run_seconds=run_seconds)
            return JobReport(summary=summary, made_seconds=int(now), missing=(*measured.problems, NOT_SUMMARISED))

    def _sum_up(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        summary = summarise(record, measured, now_seconds=now)
        return JobReport(
            summary=summary,
            made_seconds=int(now),
            findings=judge(summary, self._thresholds),
            charts=make_charts(summary, measured),
            missing=(*measured.problems, *_gaps(summary)),
        )


def _gaps(summary: JobSummary) -> Iterator[str]:
    """Tell of a record that is not whole, and of totals without curves: mostly the scrape interval is not as set."""
    if summary.record.is_partial:
        yield PARTIAL
    coverage = summary.coverage
    if coverage.nodes_measured and not coverage.run_ratio and summary.run_seconds >= LONG_RUN_SECONDS:
        yield NO_CURVE


def runs_apart(records: Iterable[tuple[int, JobRecord]]) -> list[list[tuple[int, JobRecord]]]:
    """Part runs of the same job: answers are told apart by the job's number."""
    batches: list[list[tuple[int, JobRecord]]] = []
    runs: dict[int, int] = {}
    for position, record in records:
        run = runs[record.job_id] = runs.get(record.job_id, -1) + 1
        if run == len(batches):
            batches.append([])
        batches[run].append((position, record))
    return batches
