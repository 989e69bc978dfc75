# SPDX-License-Identifier: Apache-2.0
"""Fake accounting, archive and time series, controlled by a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from slurmscope.archive.interface import JobFilter, JobPage, PagePosition
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import ArchiveError, ArchiveTooLarge, SourceError
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, run_of
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, Series, SeriesQuery
from slurmscope.jobs.viewer import Viewer


@dataclass
class FakeAccounting:
    """Hold some records; ``error`` is raised by every read."""

    records: list[JobRecord] = field(default_factory=list)
    error: SourceError | None = None
    windows: list[tuple[int, int]] = field(default_factory=list)

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of the records; that of the other fakes if there are none."""
        self._fail()
        return tuple(sorted({record.cluster for record in self.records})) or ("lab",)

    def of(self, cluster: str) -> FakeAccounting:
        """Return the accounting of one cluster, with records of its own from now on."""
        return FakeAccounting([record for record in self.records if record.cluster == cluster], self.error)

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """Return records by job ID or by the id of their array."""
        self._fail()
        return tuple(
            record for record in self.records if {record.job_id, record.array_job_id, record.het_job_id} & set(job_ids)
        )

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield what ended in a period; fail after half of it if set."""
        self.windows.append((since_seconds, until_seconds))
        self._fail()
        for record in self.records:
            if record.has_ended and since_seconds <= (record.end_seconds or 0) < until_seconds:
                yield record

    def read_current(self) -> Iterator[JobRecord]:
        """Yield what has not ended."""
        self._fail()
        yield from (record for record in self.records if not record.has_ended)

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield runs of a user that were there in a period."""
        self.windows.append((since_seconds, until_seconds))
        self._fail()
        for record in self.records:
            is_over = record.end_seconds is not None and record.end_seconds < since_seconds
            if record.user == user and record.submit_seconds <= until_seconds and not is_over:
                yield record

    def _fail(self) -> None:
        if self.error:
            raise self.error


@dataclass
class FakeSeries:
    """Return the same number for every query; ``errors`` are raised by metric."""

    value: float = 1.0
    errors: dict[str, Exception] = field(default_factory=dict)
    is_partial: bool = False
    queried: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    clusters: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    """Clusters of the queries, with their jobs."""
    max_concurrent_queries: int = 4

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return a curve of two points for each job."""
        self._note(wanted, spans)
        labels = tuple("n1" for _ in wanted.by)
        return Curves(
            {
                span.job_id: (Series(labels, (span.start_seconds, span.end_seconds), (self.value, self.value)),)
                for span in spans
            },
            self._lost(spans),
        )

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one number for each job."""
        self._note(wanted, spans)
        return JobTotals(
            {span.job_id: {tuple("n1" for _ in wanted.by): self.value} for span in spans}, self._lost(spans)
        )

    def _lost(self, spans: Sequence[JobSpan]) -> frozenset[int]:
        return frozenset(span.job_id for span in spans) if self.is_partial else frozenset()

    def _note(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> None:
        self.queried.append((wanted.metric, tuple(span.job_id for span in spans)))
        self.clusters.add((wanted.cluster, tuple(span.job_id for span in spans)))
        if error := self.errors.get(wanted.metric, self.errors.get("*")):
            raise error


@dataclass
class FakeArchive:
    """Store reports in memory, one for each run; ``error`` is raised by every call."""

    reports: dict[tuple[str, int, int | None], JobReport] = field(default_factory=dict)
    error: ArchiveError | None = None
    saves: list[tuple[int, ...]] = field(default_factory=list)
    checkpoints: dict[str, str] = field(default_factory=dict)
    has_no_room_for: int | None = None
    """A job whose curves are too large."""
    has_no_summary_for: int | None = None
    """A job whose report is too large without its curves too."""
    found: list[int] = field(default_factory=list)
    """Jobs whose reports were read."""
    old_rows: int = 0
    newest: int | None = None
    """How many old rows are left, of every kind; at most ten are deleted at once."""
    forgotten: list[tuple[str, int]] = field(default_factory=list)
    """Calls that deleted rows: kind and time."""

    def save(self, reports: Sequence[JobReport]) -> None:
        """Store all or none."""
        self._fail()
        if any(report.charts and report.record.job_id == self.has_no_room_for for report in reports):
            raise ArchiveTooLarge("it is too large")
        if any(report.summary.nodes and report.record.job_id == self.has_no_summary_for for report in reports):
            raise ArchiveTooLarge("it is too large")
        self.saves.append(tuple(report.record.job_id for report in reports))
        self.reports.update({(r.record.cluster, r.record.job_id, r.record.start_seconds): r for r in reports})

    def find(self, viewer: Viewer, job_id: int, *, cluster: str = "") -> tuple[JobReport, ...]:
        """Return runs by job ID."""
        self._fail()
        self.found.append(job_id)
        return tuple(r for r in self._seen(viewer) if r.record.job_id == job_id)

    def find_shown(self, viewer: Viewer, shown_id: str, *, cluster: str = "") -> tuple[JobRow, ...]:
        """Return rows by job ID as users write it."""
        self._fail()
        return tuple(make_row(r) for r in self._seen(viewer) if r.record.shown_id == shown_id)

    def list_jobs(
        self, viewer: Viewer, wanted: JobFilter, *, after: PagePosition | None = None, limit: int = 50
    ) -> JobPage:
        """Return pages of two rows, whatever the filter."""
        self._fail()
        rows = [make_row(report) for report in self._seen(viewer)]
        begin = 0 if after is None else after.job_id
        end = begin + 2
        return JobPage(rows=tuple(rows[begin:end]), next_key=PagePosition(0, end) if end < len(rows) else None)

    def unfinished_runs(self, *, cluster: str = "") -> frozenset[RunId]:
        """Return what ran when it was saved."""
        self._fail()
        records = (report.record for report in self.reports.values() if cluster in {"", report.record.cluster})
        return frozenset(run_of(record) for record in records if record.is_active)

    def ended_runs(self, job_ids: Sequence[int]) -> frozenset[RunId]:
        """Return the runs that had ended."""
        self._fail()
        records = [report.record for report in self.reports.values()]
        return frozenset(run_of(record) for record in records if record.job_id in job_ids and record.has_ended)

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of the reports."""
        self._fail()
        return tuple(sorted({report.record.cluster for report in self.reports.values()}))

    def incomplete_runs(self, *, cluster: str) -> dict[RunId, int]:
        """Return ended runs whose reports miss numbers."""
        self._fail()
        marked = [r for r in self.reports.values() if r.is_incomplete and r.record.end_seconds is not None]
        own = [report.record for report in marked if report.record.cluster == cluster]
        return {run_of(record): record.end_seconds or 0 for record in own}

    def flush(self) -> None:
        """Have nothing to do in memory."""
        self._fail()

    def newest_submit_seconds(self) -> int | None:
        """Return when the newest job was submitted."""
        self._fail()
        return max((report.record.submit_seconds for report in self.reports.values()), default=self.newest)

    def prepare_weeks(self) -> None:
        """Have no partitions in memory."""
        self._fail()

    def delete_curves(self, before_seconds: int) -> int:
        """Count."""
        return self._forget("curves", before_seconds)

    def thin_curves(self, before_seconds: int, points: int) -> int:
        """Count."""
        return self._forget(f"points over {points}", before_seconds)

    def delete_jobs(self, before_seconds: int) -> int:
        """Count."""
        return self._forget("jobs", before_seconds)

    def delete_audit_entries(self, before_seconds: int) -> int:
        """Count."""
        return self._forget("looks", before_seconds)

    def _forget(self, kind: str, before_seconds: int) -> int:
        self._fail()
        self.forgotten.append((kind, before_seconds))
        count = min(10, self.old_rows)
        self.old_rows -= count
        return count

    def read_checkpoint(self, name: str) -> str | None:
        """Return the stored text."""
        self._fail()
        return self.checkpoints.get(name)

    def write_checkpoint(self, name: str, text: str) -> None:
        """Store a text."""
        self._fail()
        self.checkpoints[name] = text

    def _seen(self, viewer: Viewer) -> list[JobReport]:
        return [r for r in self.reports.values() if viewer.sees(r.record.user, r.record.account, r.record.cluster)]

    def _fail(self) -> None:
        if self.error:
            raise self.error


def make_row(report: JobReport) -> JobRow:
    """Make the row of a report."""
    record, summary = report.record, report.summary
    return JobRow(
        cluster=record.cluster, job_id=record.job_id, shown_id=record.shown_id, array_job_id=record.array_job_id,
        name=record.name, user=record.user, account=record.account, partition=record.partition, state=record.state,
        submit_seconds=record.submit_seconds, start_seconds=record.start_seconds, end_seconds=record.end_seconds,
        run_seconds=summary.run_seconds, nodes=record.node_count, cpus=record.cpus, gpus=record.gpus,
        memory_bytes=record.memory_bytes, cpu_ratio=summary.cpu.time.ratio, memory_ratio=summary.memory.ratio,
        gpu_ratio=None, time_ratio=summary.time.ratio, core_seconds=(record.cpus or 0) * summary.run_seconds,
        wasted_core_seconds=3600.0, wasted_gpu_seconds=None, worst=report.worst,
        rules=tuple(finding.rule for finding in report.findings),
    )  # fmt: skip
