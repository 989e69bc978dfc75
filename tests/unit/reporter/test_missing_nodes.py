# SPDX-License-Identifier: Apache-2.0
"""Jobs that lack series of one of their nodes, or one kind of numbers, are marked and measured again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import func, select, update

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import REPORTS
from slurmscope.core.clock import Clock
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import run_of
from slurmscope.jobs.series import Aggregation, Curves, JobSpan, JobTotals, Series, SeriesQuery
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter.incomplete_reports import IncompleteReports
from slurmscope.reporter.measure import Measurer
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import START, make_record

NOW = START + 20_000.0
BOTH = ("n1", "n2")


@dataclass
class NodeSeries:
    """Have series of jobs on some nodes, without metrics of a prefix or without curves."""

    nodes: Mapping[int, Sequence[str]]
    stores: set[str] = field(default_factory=lambda: {"n1", "n2"})
    """Nodes whose series the server has now."""
    lost: str = ""
    newest: float = math.inf
    """Time of the newest sample."""
    gap: tuple[float, float] = (0.0, 0.0)
    """Time of which there are no samples."""
    max_concurrent_queries: int = 4

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        if self.lost == "curves" or wanted.metric.startswith(self.lost or "nothing"):
            return Curves()
        found = {span: self._labels(wanted, span) for span in spans}
        return Curves({span.job_id: tuple(self._curve(span, each) for each in found[span]) for span in spans})

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        if wanted.metric != "jobs_cpu_seconds_total":
            return JobTotals()
        return JobTotals({span.job_id: dict.fromkeys(self._labels(wanted, span), self._end(span)) for span in spans})

    def _labels(self, wanted: SeriesQuery, span: JobSpan) -> list[tuple[str, ...]]:
        known = [node for node in self.nodes.get(span.job_id, ()) if node in self.stores]
        is_plain = wanted.by == ("slurm_node",) and wanted.how in set(Aggregation)
        return [(node,) for node in known] if is_plain else []

    def _end(self, span: JobSpan) -> float:
        return min(self.newest, span.end_seconds) - span.start_seconds

    def _curve(self, span: JobSpan, labels: tuple[str, ...]) -> Series:
        times = tuple(span.start_seconds + 60.0 * step for step in range(1, int(self._end(span)) // 60))
        times = tuple(time for time in times if not self.gap[0] < time < self.gap[1])
        return Series(labels, times, (1.0,) * len(times))


class Bench:
    """Hold what makes reports of ended jobs."""

    def __init__(self, folder: Path) -> None:
        self.nodes: dict[int, Sequence[str]] = {1: BOTH}
        self.series = NodeSeries(self.nodes)
        self.archive: SqlArchive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
        self.restart()
        assert not self.end(1).is_incomplete

    def restart(self) -> None:
        self.measurer = Measurer(ReportMaker(self.series, wall_clock=lambda: NOW))
        clock = Clock(wall=lambda: NOW, monotonic=lambda: NOW)
        self.incomplete = IncompleteReports(
            self.archive, self.measurer, self.archive.save, clock, cluster="lab", give_up_seconds=7 * 86400.0
        )

    def end(self, *numbers: int, nodes: Sequence[str] = BOTH, end: int = START + 7200, **changed: object) -> JobReport:
        """Archive jobs that ended, and return the report of the first."""
        records = [replace(self.record(number, nodes, end), **changed) for number in numbers]  # type: ignore[arg-type]
        for part in self.measurer.measure(records):
            self.archive.save(self.incomplete.make_reports(part))
        return self.archived(numbers[0])

    def measure_again(self, *numbers: int) -> JobReport:
        reports = [self.archived(number) for number in numbers]
        self.incomplete.measure_again({run_of(report.record): report for report in reports})
        return self.archived(numbers[0])

    def archived(self, number: int) -> JobReport:
        (report,) = self.archive.find(EVERYTHING, number)
        return report

    def record(self, number: int, nodes: Sequence[str] = BOTH, end: int = START + 7200) -> JobRecord:
        self.nodes.setdefault(number, nodes)
        return make_record(
            number, cpu_seconds=None, nodes=tuple(nodes), node_count=len(nodes), end_seconds=end, steps=()
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.archive.close()


def test_job_is_measured_again_if_series_of_one_of_its_nodes_were_missing(bench: Bench) -> None:
    """As with Thanos, which drops a store that is gone and answers without warning."""
    bench.series.stores = {"n1"}
    report = bench.end(2)
    assert (True, 1) == (report.is_incomplete, report.summary.coverage.nodes_measured)
    assert report == bench.measure_again(2), "without further numbers the report stays as it is"

    bench.series.stores = {"n1", "n2"}
    report = bench.measure_again(2)
    assert (False, 2) == (report.is_incomplete, report.summary.coverage.nodes_measured)


def test_numbers_of_some_nodes_are_better_than_none_and_are_not_lost_again(bench: Bench) -> None:
    bench.series.stores = set()
    assert 0 == bench.end(2).summary.coverage.nodes_measured
    for stores, measured in (("n2", 1), ("", 1), ("n1", 1), ("n1 n2", 2)):
        bench.series.stores = set(stores.split())
        assert measured == bench.measure_again(2).summary.coverage.nodes_measured
    assert not bench.archived(2).is_incomplete


def test_node_that_a_job_left_idle_is_not_missing_if_other_jobs_are_measured_there(bench: Bench) -> None:
    bench.nodes[2] = ("n1",)
    assert bench.end(2, 3).is_incomplete, "another query may have been answered while the store was there"
    assert bench.measure_again(2).is_incomplete
    assert not bench.measure_again(2, 3).is_incomplete


def test_whole_curves_are_not_replaced_by_what_a_server_has_not_deleted_yet(bench: Bench) -> None:
    """As where the retention of Prometheus is not much longer than a job."""
    bench.nodes[2] = ("n1",)
    whole = bench.end(2, 3)
    bench.series.gap = (START, START + 3600.0)
    assert whole == bench.measure_again(2, 3)
    bench.series.gap = (0.0, 0.0)
    assert not bench.measure_again(2, 3).is_incomplete


def test_node_is_not_taken_for_idle_because_of_a_job_at_another_time(bench: Bench) -> None:
    """As with Thanos, where another store has the series of earlier hours."""
    bench.nodes[2] = ("n1",)
    bench.end(2)
    bench.end(3, start_seconds=START - 90_000, end=START - 80_000)
    assert bench.measure_again(2, 3).is_incomplete


def test_numbers_of_another_node_do_not_replace_those_of_one(bench: Bench) -> None:
    bench.series.stores, bench.series.lost = {"n1"}, "jobs_memory"
    assert [7200.0, None] == [node.cpu_seconds for node in bench.end(2).summary.nodes]
    bench.series.stores, bench.series.lost = {"n2"}, ""
    assert [7200.0, None] == [node.cpu_seconds for node in bench.measure_again(2).summary.nodes]


@pytest.mark.parametrize("lost", ["jobs_memory", "curves"])
def test_job_without_one_kind_of_numbers_is_measured_again(bench: Bench, lost: str) -> None:
    """As with a server that loses its stores between two queries, and answers without warning."""
    bench.series.lost = lost
    assert bench.end(2).is_incomplete
    assert not bench.end(3, end=START + 300).is_incomplete, "a short job may have no curve"
    bench.series.lost = ""
    assert not bench.measure_again(2).is_incomplete


def test_job_whose_last_samples_arrive_late_is_measured_again(bench: Bench) -> None:
    """As with remote write clients, which buffer samples while no server accepts them."""
    bench.series.newest = START + 5400.0
    report = bench.end(2)
    assert (True, 2 * 5400.0) == (report.is_incomplete, report.summary.cpu.time.used)
    bench.series.newest = math.inf
    report = bench.measure_again(2)
    assert (False, 2 * 7200.0) == (report.is_incomplete, report.summary.cpu.time.used)


def test_job_whose_last_samples_never_arrive_is_complete_hours_after_its_end(bench: Bench) -> None:
    """As where an agent failed before the job ended."""
    bench.series.newest = NOW - 5400.0
    assert bench.end(2, end=int(NOW) - 3600).is_incomplete
    assert bench.measure_again(2).is_incomplete, "samples may still arrive"
    bench.series.newest = START + 5400.0
    assert bench.end(3).is_incomplete
    report = bench.measure_again(3)
    assert (False, ()) == (report.is_incomplete, report.missing)


def test_samples_that_arrive_are_stored_although_the_last_ones_do_not(bench: Bench) -> None:
    bench.series.newest = START + 3600.0
    assert bench.end(2).is_incomplete
    bench.series.newest = START + 5400.0
    report = bench.measure_again(2)
    assert (True, 2 * 5400.0) == (report.is_incomplete, report.summary.cpu.time.used)
    assert not bench.measure_again(2).is_incomplete


def test_gap_within_a_curve_is_no_reason_to_measure_again(bench: Bench) -> None:
    """As where Prometheus was not running for twenty minutes: nothing delivers these samples later."""
    bench.series.gap = (START + 2000.0, START + 3200.0)
    assert not bench.end(2).is_incomplete


def test_small_gaps_are_no_reason_to_measure_again(bench: Bench) -> None:
    bench.series.newest = START + 7200.0 - 500
    assert not bench.end(2).is_incomplete


def test_agents_of_all_nodes_are_known_after_a_restart(bench: Bench) -> None:
    """A large cluster has more nodes than its newest jobs were on."""
    bench.series.stores |= {f"n{number}" for number in range(10, 130)}
    for number in range(10, 130):
        bench.end(number, nodes=(f"n{number}",))
    bench.restart()
    bench.series.stores = set()
    assert bench.end(200, nodes=("n10",)).is_incomplete
    assert not bench.end(201, nodes=("n999",)).is_incomplete, "it never had an agent"


def test_node_without_an_agent_does_not_seem_to_have_one_after_an_outage(bench: Bench) -> None:
    bench.series.stores = set()
    bench.archive.save([replace(bench.end(5, nodes=("n9",)), is_incomplete=True)])
    bench.restart()
    assert not bench.end(6, nodes=("n9",)).is_incomplete
    assert bench.measure_again(5).is_incomplete, "the server may have no series at all"
    bench.series.stores = {"n1", "n2"}
    assert not bench.measure_again(5, 1).is_incomplete


def test_agent_is_known_after_a_restart_in_a_long_outage(bench: Bench) -> None:
    """The newest jobs of the node were all archived without numbers."""
    bench.series.stores = set()
    begin = START + 90_000
    for number in range(10, 20):
        assert bench.end(number, end=begin + 7200, submit_seconds=begin, start_seconds=begin).is_incomplete
    bench.restart()
    assert bench.end(
        30, submit_seconds=START + 170_000, start_seconds=START + 170_000, end=START + 172_800
    ).is_incomplete


def test_agent_that_measured_nothing_for_a_month_is_gone(bench: Bench) -> None:
    bench.series.stores = set()
    month = 31 * 86400
    assert not bench.end(2, start_seconds=START + month, end=START + month + 7200).is_incomplete
    bench.restart()
    assert not bench.end(3, start_seconds=START + month, end=START + month + 7200).is_incomplete


def test_job_that_did_not_run_for_long_does_not_stay_incomplete(bench: Bench) -> None:
    bench.archive.save([replace(bench.end(2, end=START + 30, nodes=("n3",)), is_incomplete=True)])
    assert not bench.measure_again(2).is_incomplete


def test_few_archived_jobs_are_read_to_find_agents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.end(*range(10, 20))
    bench.restart()
    bench.series.stores = set()
    find = Mock(side_effect=bench.archive.find)
    monkeypatch.setattr(bench.archive, "find", find)
    (part,) = bench.measurer.measure([bench.record(30)])
    assert [True] == [report.is_incomplete for report in bench.incomplete.make_reports(part)]
    assert 1 == find.call_count, "the first one shows the agents of both nodes"


def test_archived_report_that_cannot_be_read_does_not_stop_archiving(bench: Bench) -> None:
    """As after a return to an earlier release: another job shows the agents of the nodes."""
    bench.end(2)
    with bench.archive.database.writing() as connection:
        newest = connection.scalar(select(func.max(REPORTS.c.run_id)))
        connection.execute(update(REPORTS).where(REPORTS.c.run_id == newest).values(body=b"later"))
    bench.restart()
    bench.series.stores = set()
    assert bench.end(30).is_incomplete
