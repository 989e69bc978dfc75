# SPDX-License-Identifier: Apache-2.0
"""Store reports in memory, for tests of code that reads an archive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from slurmscope.archive.interface import (
    NEWEST_FIRST,
    GroupBy,
    JobCount,
    JobFilter,
    JobPage,
    ListOrder,
    PagePosition,
    TotalOrder,
    UseTotal,
)
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.findings import FAILED_STATES, LOST_STATES, TIMEOUT_STATES
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId
from slurmscope.jobs.suspect_nodes import JudgedNode, NodeRuns, rank_nodes
from slurmscope.jobs.viewer import Viewer
from slurmscope.jobs.wait_times import (
    WaitingTime,
    find_cores_class,
    find_limit_class,
    find_wait_class,
    make_waiting_time,
)


class FakeArchive:
    """Implement the protocol simply and slowly; with ``is_down`` every call fails."""

    def __init__(self, reports: Iterable[JobReport] = ()) -> None:
        self.is_down = False
        self.reports: list[JobReport] = []
        self.questions = 0
        self.save(tuple(reports))

    def save(self, reports: Sequence[JobReport]) -> None:
        self._check()
        for report in reports:
            run = (report.record.cluster, report.record.job_id, report.record.submit_seconds)
            self.reports = [
                kept
                for kept in self.reports
                if (kept.record.cluster, kept.record.job_id, kept.record.submit_seconds) != run
            ]
            self.reports.append(report)
        self.reports.sort(key=lambda report: (-report.record.submit_seconds, -report.record.job_id))

    def find(self, viewer: Viewer, job_id: int, *, cluster: str = "") -> tuple[JobReport, ...]:
        return tuple(
            report
            for report in self._seen(viewer)
            if report.record.job_id == job_id and cluster in {"", report.record.cluster}
        )

    def find_shown(self, viewer: Viewer, shown_id: str, *, cluster: str = "") -> tuple[JobRow, ...]:
        return tuple(
            make_row(report)
            for report in self._seen(viewer)
            if report.record.shown_id == shown_id and cluster in {"", report.record.cluster}
        )

    def list_jobs(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        *,
        after: PagePosition | None = None,
        limit: int = 50,
        order: ListOrder = NEWEST_FIRST,
    ) -> JobPage:
        rows = order.sort(make_row(report) for report in self._seen(viewer) if _matches(report, wanted))
        rows = [row for row in rows if order.is_after(row, after)]
        return JobPage(rows=tuple(rows[:limit]), next_key=order.place(rows[limit - 1]) if len(rows) > limit else None)

    def count(self, viewer: Viewer, wanted: JobFilter) -> JobCount:
        return JobCount(sum(_matches(report, wanted) for report in self._seen(viewer)))

    def total(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        by: GroupBy,
        *,
        limit: int = 100,
        order: TotalOrder = TotalOrder.IDLE,
    ) -> tuple[UseTotal, ...]:
        groups: defaultdict[str, list[JobRow]] = defaultdict(list)
        for report in self._seen(viewer):
            if _matches(report, wanted):
                row = make_row(report)
                for key in _keys(row, by):
                    groups[key].append(row)
        totals = [_add_up(key, rows) for key, rows in groups.items()]
        if by is GroupBy.DAY:
            return tuple(sorted(totals, key=lambda total: total.key)[:limit])
        return tuple(sorted(totals, key=order.read, reverse=True)[:limit])

    def histogram(self, viewer: Viewer, wanted: JobFilter, metric: JobMetric) -> JobHistogram:
        rows = [make_row(report) for report in self._seen(viewer) if _matches(report, wanted)]
        known = [number for row in rows if (number := getattr(row, metric.value)) is not None]
        since = min((row.submit_seconds for row in rows), default=None)
        empty = JobHistogram(
            metric=metric, counts=(), unknown=len(rows) - len(known), is_cut=False, since_seconds=since
        )
        counts = tuple(sum(map(each.contains, known)) for each in empty.ranges)
        return replace(empty, counts=counts)

    def count_running(self, viewer: Viewer, cluster: str = "") -> dict[str, int]:
        found = [report.record for report in self._seen(viewer) if cluster in {"", report.record.cluster}]
        return Counter(node for record in found if record.state in {"RUNNING", "SUSPENDED"} for node in record.nodes)

    def judge_nodes(self, since_seconds: int) -> tuple[JudgedNode, ...]:
        self._check()
        runs: defaultdict[tuple[str, str, str, str], list[tuple[int, int, int, float, float]]] = defaultdict(list)
        faults: Counter[tuple[str, str]] = Counter()
        for report in self.reports:
            record = report.record
            if record.submit_seconds < since_seconds or record.end_seconds is None or len(record.nodes) != 1:
                continue
            place, is_completed = (record.cluster, record.nodes[0]), record.state == "COMPLETED"
            took = report.summary.run_seconds if is_completed else 0.0
            has_failed = record.state in {"FAILED", "NODE_FAIL", "BOOT_FAIL"}
            runs[*place, record.user, record.name].append((1, int(has_failed), int(is_completed), took, took**2))
            faults[place] += any(
                (finding.rule, finding.severity.value) == ("gpu_fault", "critical") for finding in report.findings
            )
        counted = [NodeRuns(*key, *map(sum, zip(*rows, strict=True))) for key, rows in runs.items()]
        return rank_nodes(counted, {place: count for place, count in faults.items() if count})

    def waiting_times(self, since_seconds: int, *, cluster: str = "", partition: str = "") -> tuple[WaitingTime, ...]:
        self._check()
        shapes: defaultdict[tuple[str, int, int], Counter[int]] = defaultdict(Counter)
        for record in (report.record for report in self.reports):
            wait = record.wait_seconds
            if (
                wait is not None
                and record.cpus
                and partition in {"", record.partition}
                and record.submit_seconds >= since_seconds
            ):
                shape = (find_cores_class(record.cpus), find_limit_class(record.time_limit_seconds))
                shapes[record.partition, *shape][find_wait_class(wait)] += 1
        return tuple(make_waiting_time(*key, jobs) for key, jobs in sorted(shapes.items()))

    def ended_runs(self, job_ids: Sequence[int]) -> frozenset[RunId]:
        """Return nothing: no page uses this."""
        return frozenset()

    def clusters(self) -> tuple[str, ...]:
        self._check()
        return tuple(sorted({report.record.cluster for report in self.reports}))

    def unfinished_runs(self, *, cluster: str = "") -> frozenset[RunId]:
        """Return nothing: no page uses this."""
        return frozenset()

    def close(self) -> None:
        """Nothing is open."""

    def _seen(self, viewer: Viewer) -> list[JobReport]:
        self._check()
        return [r for r in self.reports if viewer.sees(r.record.user, r.record.account, r.record.cluster)]

    def _check(self) -> None:
        self.questions += 1
        if self.is_down:
            raise ArchiveError("the archive at db.example.org:5432 cannot be reached")


def make_row(report: JobReport) -> JobRow:
    """Make the line of a list."""
    record, summary = report.record, report.summary
    core_seconds = (record.cpus or 0) * summary.run_seconds
    cpu, gpu = summary.cpu.time.ratio, summary.gpu.mean_utilization
    return JobRow(
        cluster=record.cluster,
        job_id=record.job_id,
        shown_id=record.shown_id,
        array_job_id=record.array_job_id,
        name=record.name,
        user=record.user,
        account=record.account,
        partition=record.partition,
        state=record.state,
        submit_seconds=record.submit_seconds,
        start_seconds=record.start_seconds,
        end_seconds=record.end_seconds,
        run_seconds=summary.run_seconds,
        nodes=record.node_count,
        cpus=record.cpus,
        gpus=record.gpus,
        memory_bytes=record.memory_bytes,
        cpu_ratio=cpu,
        memory_ratio=summary.memory.ratio,
        gpu_ratio=gpu,
        time_ratio=summary.time.ratio,
        core_seconds=core_seconds,
        wasted_core_seconds=None if cpu is None else core_seconds * (1 - cpu),
        wasted_gpu_seconds=None if gpu is None else record.gpus * summary.run_seconds * (1 - gpu),
        worst=report.worst,
        rules=tuple(finding.rule for finding in report.findings),
        eligible_seconds=record.eligible_seconds,
        wait_seconds=record.wait_seconds,
        time_limit_seconds=record.time_limit_seconds,
        exit_code=record.exit_code,
        exit_signal=record.exit_signal,
        het_job_id=record.het_job_id,
        het_offset=record.het_offset,
    )


def _matches(report: JobReport, wanted: JobFilter) -> bool:
    record = report.record
    equal = (
        (wanted.cluster, record.cluster),
        (wanted.user, record.user),
        (wanted.account, record.account),
        (wanted.partition, record.partition),
        (wanted.state, record.state),
        (wanted.worst, report.worst),
    )
    return (
        all(expected in {"", None, actual} for expected, actual in equal)
        and record.name.startswith(wanted.name)
        and not wanted.reason
        and wanted.name_part.lower() in record.name.lower()
        and (not wanted.rule or wanted.rule in {finding.rule for finding in report.findings})
        and wanted.array_job_id in {None, record.array_job_id}
        and wanted.het_job_id in {None, record.het_job_id}
        and all(each.contains(getattr(make_row(report), each.metric.value)) for each in wanted.ranges)
        and (not wanted.shown_ids or {record.shown_id, str(record.array_job_id)} & set(wanted.shown_ids) != set())
        and (not wanted.node or wanted.node in record.nodes)
        and (wanted.since_seconds is None or record.submit_seconds >= wanted.since_seconds)
        and (wanted.until_seconds is None or record.submit_seconds < wanted.until_seconds)
        and wanted.is_running in {None, record.is_running}
    )


def _keys(row: JobRow, by: GroupBy) -> tuple[str, ...]:
    if by is GroupBy.RULE:
        return row.rules
    if by is GroupBy.DAY:
        return (datetime.fromtimestamp(row.submit_seconds, UTC).date().isoformat(),)
    return (str(getattr(row, by.value)),)


def _add_up(key: str, rows: Sequence[JobRow]) -> UseTotal:
    known = [row for row in rows if row.cpu_ratio is not None]
    known_gpu = [row for row in rows if row.gpu_ratio is not None]
    return UseTotal(
        key=key,
        jobs=len(rows),
        core_seconds=sum(row.core_seconds for row in rows),
        measured_core_seconds=sum(row.core_seconds for row in known),
        used_core_seconds=sum(row.core_seconds * (row.cpu_ratio or 0.0) for row in known),
        gpu_seconds=sum(row.gpus * row.run_seconds for row in rows),
        measured_gpu_seconds=sum(row.gpus * row.run_seconds for row in known_gpu),
        used_gpu_seconds=sum(row.gpus * row.run_seconds * (row.gpu_ratio or 0.0) for row in known_gpu),
        jobs_with_findings=sum(bool(row.rules) for row in rows),
        failed_core_seconds=sum(row.core_seconds for row in rows if row.state in FAILED_STATES),
        timeout_core_seconds=sum(row.core_seconds for row in rows if row.state in TIMEOUT_STATES),
        unused_core_seconds=sum(row.wasted_core_seconds or 0.0 for row in rows if row.state not in LOST_STATES),
        failed_gpu_seconds=sum(row.gpus * row.run_seconds for row in rows if row.state in FAILED_STATES),
        timeout_gpu_seconds=sum(row.gpus * row.run_seconds for row in rows if row.state in TIMEOUT_STATES),
        unused_gpu_seconds=sum(row.wasted_gpu_seconds or 0.0 for row in rows if row.state not in LOST_STATES),
    )
