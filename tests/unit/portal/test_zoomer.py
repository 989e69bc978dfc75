# SPDX-License-Identifier: Apache-2.0
"""Finer curves are read once for all viewers, within the limits of each; if that fails, the report's charts remain."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.core.errors import ServerRefused
from slurmscope.jobs.series import Curves, JobSpan, JobTotals, Series, SeriesQuery
from slurmscope.portal.zoom import FAILED_SECONDS, MESSAGE, RunPart, Zoomer
from slurmscope.reports.find import BURST, TooManyLookups
from slurmscope.reports.make import ReportMaker
from tests.fakes.recorded_samples import INTERVAL, make_recorder
from tests.fakes.recorded_samples import START as RECORDED
from tests.fakes.reports import START, make_record, make_report

PART = RunPart(START + 600.0, START + 1200.0)


@dataclass
class FineSeries:
    """Answer with a point every ten seconds, or fail for one metric."""

    failing: str = ""
    queries: list[tuple[str, JobSpan, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    max_concurrent_queries: int = 2

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return one curve."""
        with self.lock:
            self.queries.append((wanted.metric, spans[0], points))
        assert "lab" == wanted.cluster
        if wanted.metric == self.failing:
            raise ServerRefused("no route to the server")
        (span,) = spans
        times = tuple(float(at) for at in range(int(span.start_seconds), int(span.end_seconds) + 1, 10))
        return Curves({span.job_id: (Series(("n1",), times, (1.0,) * len(times)),)})

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Never called."""
        raise AssertionError


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_only_the_curves_of_the_charts_are_read_for_the_part() -> None:
    series = FineSeries()
    zoomed = Zoomer(series).zoom("ada", make_report(), PART)

    assert {
        "jobs_cpu_seconds_total", "jobs_memory_anon_bytes", "jobs_memory_shmem_bytes", "jobs_memory_rss_bytes"
    } == {metric for metric, _, _ in series.queries}  # fmt: skip
    assert {JobSpan(4711, *PART)} == {span for _, span, _ in series.queries}
    assert frozenset({"cpu", "memory"}) == zoomed.finer
    assert pytest.approx(10.0) == zoomed.step_seconds


def test_series_that_may_be_those_of_another_clusters_job_are_not_read() -> None:
    series, asked = FineSeries(), []

    def is_own(cluster: str) -> bool:
        asked.append(cluster)
        return False

    assert frozenset() == Zoomer(series, is_own=is_own).zoom("ada", make_report(), PART).finer
    assert (["lab"], []) == (asked, series.queries)


def test_everyone_gets_what_one_person_read() -> None:
    series, report = FineSeries(), make_report()
    zoomer = Zoomer(series)
    with ThreadPoolExecutor(8) as pool:
        zoomed = list(pool.map(lambda person: zoomer.zoom(person, report, PART), ["ada", "bob"] * 8))

    assert 4 == len(series.queries)
    assert {id(zoomed[0])} == {id(one) for one in zoomed}


def test_another_part_another_report_and_fewer_points_are_read_anew() -> None:
    series, report = FineSeries(), make_report()
    zoomer = Zoomer(series)
    zoomer.zoom("ada", report, PART)
    zoomer.zoom("ada", report, RunPart(PART.from_seconds, PART.to_seconds + 1))
    zoomer.zoom("ada", make_report(made_seconds=START + 9000), PART)
    zoomer.zoom("ada", report, PART, 10)

    assert 16 == len(series.queries)
    assert 10 == series.queries[-1][2]


def test_failed_curve_costs_its_own_chart_and_is_read_again_later() -> None:
    series, clock = FineSeries("jobs_cpu_seconds_total"), Clock()
    zoomer, report = Zoomer(series, clock=clock), make_report()
    zoomed = zoomer.zoom("ada", report, PART)
    assert (frozenset({"memory"}), "no route to the server") == (zoomed.finer, zoomed.problem)

    series.failing = ""
    assert zoomed is zoomer.zoom("ada", report, PART)
    clock.now += FAILED_SECONDS + 1
    assert frozenset({"cpu", "memory"}) == zoomer.zoom("ada", report, PART).finer


def test_person_beyond_the_limit_is_refused_and_others_are_not() -> None:
    zoomer, report = Zoomer(FineSeries(), clock=Clock()), make_report()
    for number in range(BURST):
        zoomer.zoom("eve", report, RunPart(START + number, START + 3600.0))
    with pytest.raises(TooManyLookups, match=MESSAGE):
        zoomer.zoom("eve", report, PART)

    assert zoomer.zoom("ada", report, PART).finer
    # What is cached costs nothing.
    assert zoomer.zoom("eve", report, PART).finer


def test_without_a_source_the_report_is_cut() -> None:
    zoomed = Zoomer(None).zoom("ada", make_report(), PART)

    assert (frozenset(), "") == (zoomed.finer, zoomed.problem)


def test_recorded_samples_are_finer_than_the_report(tmp_path: Path) -> None:
    """A job of a day has 300 points, which is one in five minutes; an hour of it has every sample."""
    with make_recorder(tmp_path) as recorder:
        day = 86_400
        for after in range(0, day + 1, 60):
            recorder.record(
                RECORDED + after,
                [("jobs_cpu_seconds_total", (("slurm_job", "4711"), ("slurm_node", "n1")), 2.0 * after)],
            )
        record = make_record(start_seconds=int(RECORDED), end_seconds=int(RECORDED) + day)
        (report,) = ReportMaker(recorder.series()).make([record])
        part = RunPart(RECORDED + 36_000.0, RECORDED + 39_600.0)
        zoomed = Zoomer(recorder.series()).zoom("ada", report, part)

    (whole,), (cut,) = report.charts, zoomed.report.charts
    in_report = [time for time in whole.times if part.from_seconds <= time <= part.to_seconds]
    assert len(in_report) < 20 < len(cut.times)
    assert part.from_seconds <= cut.times[0] <= cut.times[-1] <= part.to_seconds
    known = [value for value in cut.lines[0].values if value is not None]
    assert all(value == pytest.approx(2.0, rel=0.05) for value in known)
    assert INTERVAL <= 60
