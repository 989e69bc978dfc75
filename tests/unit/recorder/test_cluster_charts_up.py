# SPDX-License-Identifier: Apache-2.0
"""The last day of the cluster is read once a minute, however many viewers there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.clock import Clock
from slurmscope.core.errors import SourceError
from slurmscope.jobs.report import Chart
from slurmscope.jobs.series import Series, SeriesQuery
from slurmscope.recorder.cluster_charts import ClusterCharts
from tests.fakes.recorded_samples import START, make_recorder


class FakeSeries:
    """Answer each question in the same way, and count them."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, float, float]] = []
        self.error: SourceError | None = None

    def read_cluster(
        self, wanted: SeriesQuery, start_seconds: float, end_seconds: float, *, points: int, until: float
    ) -> tuple[Series, ...]:
        self.requested.append((wanted.metric, start_seconds, end_seconds))
        if self.error is not None:
            raise self.error
        times = (START - 120, START - 60, START)
        return tuple(Series((state,), times, (1.0, 2.0, 3.0)) for state in ("RUNNING", "allocated", "idle", "unusable"))


class Day:
    """Hold the charts, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.series = FakeSeries()
        self._charts = ClusterCharts(self.series.read_cluster, Clock(monotonic=lambda: self.now, wall=lambda: START))

    def names(self) -> list[str]:
        return [chart.name for chart in self._charts.get()]


def test_charts_are_kept_for_a_minute() -> None:
    day = Day()
    for day.now in (0.0, 59.9, 60.0):
        day.names()
    assert 4 == len(day.series.requested)


def test_recorder_that_fails_costs_the_charts_and_is_left_alone_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    day = Day()
    day.series.error = SourceError("disk is gone")
    assert ([], []) == (day.names(), day.names())
    assert 1 == len(day.series.requested)
    assert ["charts of the cluster could not be made"] == [record.message for record in caplog.records]
    day.series.error, day.now = None, 60.0
    assert ["jobs", "cores"] == day.names()


def lines_of(chart: Chart) -> dict[str, tuple[float | None, ...]]:
    return {line.label: line.values for line in chart.lines}


def test_what_was_recorded_a_minute_apart_is_drawn_without_holes(tmp_path: Path) -> None:
    # Samples come some seconds sooner or later than once a minute.
    moments = [START - 60 * minute + (7 * minute) % 13 for minute in range(10, 0, -1)]
    with make_recorder(tmp_path) as recorder:
        for moment in moments:
            cores = {"allocated": 600.0, "idle": 300.0, "unusable": 124.0}
            recorder.record(moment, [("slurm_cpus", {"state": state}, cores[state]) for state in cores])
            recorder.record(moment, [("slurm_jobs", {"state": "RUNNING"}, 8.0)])
        jobs, chart = ClusterCharts(
            recorder.series().read_cluster, Clock(wall=lambda: START, monotonic=lambda: 0.0)
        ).get()
    count = len(chart.times)
    assert 10 <= count <= 11
    expected = {"allocated": 600.0, "idle": 300.0, "unusable": 124.0, "all": 1024.0}
    assert {label: (value,) * count for label, value in expected.items()} == lines_of(chart)
    assert {8.0} == set(lines_of(jobs)["running"])
