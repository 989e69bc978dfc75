# SPDX-License-Identifier: Apache-2.0
"""Make job reports: accounting records in, one document per run out, with what a time series source measured."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.heat_maps import make_heat_maps
from slurmscope.analysis.summary import summarise
from slurmscope.log import fields
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport
from slurmscope.model.series import Measured, SeriesSource
from slurmscope.model.summary import JobSummary
from slurmscope.rules import judge
from slurmscope.services.reporting.making.measuring import UNREACHABLE, Measurements, measure, run_span
from slurmscope.services.reporting.making.node_sizes import NodeSizes

logger = logging.getLogger(__name__)

NO_SERIES = "Nothing was measured: no time series source is configured."
NOT_SUMMARISED = "This job could not be summarised because of a bug; see the log of slurmscope."
NO_CURVE = (
    "CPU time was measured, but not its course over time, so the rules do not use it. If this applies to all jobs, run "
    "slurmscope doctor portal."
)
PARTIAL = "Accounting has only part of this job's record so far: name, partition and requested resources are missing."
LONG_RUN_SECONDS = 600.0
"""A job that ran this long should have a curve at any scrape interval."""


class ReportMaker:
    """Turn accounting records into reports."""

    def __init__(
        self,
        series: SeriesSource | None,
        *,
        thresholds: Mapping[str, float] | None = None,
        node_sizes: NodeSizes | None = None,
        timeout_seconds: float = 60.0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the time series source, the thresholds of the rules, the sizes of nodes, and the timeout of a batch."""
        self._series = series
        self._thresholds = thresholds
        self._node_sizes = node_sizes
        self._timeout_seconds = timeout_seconds
        self._wall_clock = wall_clock

    @property
    def series(self) -> SeriesSource | None:
        """Return the time series source."""
        return self._series

    @property
    def has_series(self) -> bool:
        """Return whether there is a time series source."""
        return self._series is not None

    def make(self, records: Sequence[JobRecord], *, must_measure: bool = False) -> list[JobReport]:
        """Return a report for each record, in their order; ``missing`` lists failed queries.

        With ``must_measure``, raise the SourceError of a query that the time series server may answer later; without,
        mark the reports as incomplete.
        """
        now = self._wall_clock()
        reports: dict[int, JobReport] = {}
        for batch in split_runs(enumerate(records)):
            measurements = self._measure([record for _, record in batch], now, must_measure=must_measure)
            for position, record in batch:
                report = self._make_one(record, measurements.of(record.job_id), now)
                has_run = run_span(record, now) is not None
                reports[position] = replace(report, is_incomplete=has_run and measurements.is_incomplete(record.job_id))
        return [reports[position] for position in range(len(records))]

    def _measure(self, records: Sequence[JobRecord], now: float, *, must_measure: bool) -> Measurements:
        if self._series is None:
            return Measurements(problems=(NO_SERIES,))
        until = time.monotonic() + self._timeout_seconds
        try:
            measurements = measure(self._series, records, now_seconds=now, until=until)
        except UNREACHABLE as error:
            if must_measure:
                raise
            return Measurements(problems=(f"The time series server is unreachable: {error}",), failure=error)
        if must_measure and measurements.failure:
            raise measurements.failure
        return measurements

    def _make_one(self, record: JobRecord, measured: Measured, now: float) -> JobReport:
        """Make one report; a bug in its summary costs this job its summary, and other jobs nothing."""
        try:
            summary = self._add_sizes(summarise(record, measured, now_seconds=now))
            return JobReport(
                summary=summary,
                made_seconds=int(now),
                findings=judge(summary, self._thresholds),
                charts=make_charts(summary, measured),
                heat_maps=make_heat_maps(summary, measured),
                missing=(*measured.problems, *_gaps(summary)),
            )
        except Exception:  # a bug; the accounting record is still worth a report
            logger.exception("job not summarised", extra=fields(job=record.shown_id))
            end = now if record.end_seconds is None else record.end_seconds
            run_seconds = max(0.0, end - (end if record.start_seconds is None else record.start_seconds))
            summary = JobSummary(record=record, run_seconds=run_seconds)
            return JobReport(summary=summary, made_seconds=int(now), missing=(*measured.problems, NOT_SUMMARISED))

    def _add_sizes(self, summary: JobSummary) -> JobSummary:
        """Add how large the nodes are: only rules about jobs on several nodes need it."""
        record = summary.record
        if self._node_sizes is None or record.node_count < 2:
            return summary
        size = self._node_sizes.smallest(record.cluster, record.nodes)
        return replace(summary, node_cpus=size.cpus, node_memory_bytes=size.memory_bytes) if size else summary


def _gaps(summary: JobSummary) -> Iterator[str]:
    """Report a partial record, and totals without curves: mostly the configured scrape interval is wrong."""
    if summary.record.is_partial:
        yield PARTIAL
    coverage = summary.coverage
    if coverage.nodes_measured and not coverage.run_ratio and summary.run_seconds >= LONG_RUN_SECONDS:
        yield NO_CURVE


def split_runs(records: Iterable[tuple[int, JobRecord]]) -> list[list[tuple[int, JobRecord]]]:
    """Put runs of the same job, and jobs of other clusters, into different batches: query results are by job ID."""
    batches: dict[tuple[str, int], list[tuple[int, JobRecord]]] = {}
    runs: Counter[tuple[str, int]] = Counter()
    for position, record in records:
        runs[record.cluster, record.job_id] += 1
        batch = (record.cluster, runs[record.cluster, record.job_id])
        batches.setdefault(batch, []).append((position, record))
    return [*batches.values()]
