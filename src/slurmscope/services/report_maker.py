# SPDX-License-Identifier: Apache-2.0
"""Make reports of jobs: what accounting tells and what was measured go in, one document per run comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.summary import summarise
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.series import Measured, SeriesSource
from slurmscope.rules import judge
from slurmscope.services.measuring import UNREACHABLE, Answers, measure

NO_SERIES = "Nothing was measured: no source of time series is set up."


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
            return measure(self._series, records, now_seconds=now, until=until)
        except UNREACHABLE as error:
            if must_measure:
                raise
            return Answers(problems=[f"The time series could not be asked: {error}"])

    def _make_one(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        summary = summarise(record, measured, now_seconds=now)
        return JobReport(
            summary=summary,
            made_seconds=int(now),
            findings=judge(summary, self._thresholds),
            charts=make_charts(summary, measured),
            missing=measured.problems,
        )


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
