# SPDX-License-Identifier: Apache-2.0
"""The last day of a cluster is drawn as it was measured."""

from __future__ import annotations

from slurmscope.jobs.report import MAX_CHART_POINTS, Chart
from slurmscope.jobs.series import Series
from slurmscope.recorder.cluster_charts import make_cluster_charts

TIMES = (60.0, 120.0, 180.0)


def curve(state: str, *values: float, times: tuple[float, ...] = TIMES) -> Series:
    return Series((state,), times, values)


def lines_of(chart: Chart) -> dict[str, tuple[float | None, ...]]:
    return {line.label: line.values for line in chart.lines}


def test_jobs_are_drawn_by_whether_they_run_or_wait() -> None:
    jobs = (curve("COMPLETING", 1, 1, 1), curve("PENDING", 7, 5, 0), curve("RUNNING", 3, 4, 9))
    (chart,) = make_cluster_charts({"jobs": jobs})
    assert ("jobs", "count", TIMES) == (chart.name, chart.unit, chart.times)
    assert {"running": (3, 4, 9), "pending": (7, 5, 0)} == lines_of(chart)


def test_cores_are_drawn_with_their_sum() -> None:
    cores = (curve("allocated", 10, 20, 30), curve("idle", 50, 40, 20), curve("unusable", 4, 4, 4))
    (chart,) = make_cluster_charts({"cores": cores})
    expected = {"allocated": (10, 20, 30), "idle": (50, 40, 20), "unusable": (4, 4, 4), "all": (64, 64, 54)}
    assert expected == lines_of(chart)


def test_state_that_was_never_seen_has_no_line() -> None:
    (chart,) = make_cluster_charts({"jobs": (curve("RUNNING", 3, 4, 9),)})
    assert ["running"] == [line.label for line in chart.lines]


def test_time_without_samples_is_a_gap() -> None:
    times = (60.0, 120.0, 180.0, 300.0)
    cores = tuple(curve(state, 1, 2, 3, 4, times=times) for state in ("allocated", "idle", "unusable"))
    (chart,) = make_cluster_charts({"cores": cores})
    assert (60.0, 120.0, 180.0, 240.0, 300.0) == chart.times
    assert {"allocated": (1, 2, 3, None, 4), "all": (3, 6, 9, None, 12)}.items() <= lines_of(chart).items()


def test_day_of_minutes_is_thinned_to_means() -> None:
    times = tuple(60.0 * minute for minute in range(1, 1441))
    (chart,) = make_cluster_charts({"jobs": (curve("RUNNING", *(float(n % 5) for n in range(1440)), times=times),)})
    # Five minutes to a point; the axis begins at the first minute, so its own bin is short.
    assert 289 == len(chart.times) <= MAX_CHART_POINTS
    assert {2.0} == set(lines_of(chart)["running"][1:-1])


def test_fewer_than_three_points_are_not_drawn() -> None:
    two = {"jobs": (curve("RUNNING", 3, 4, times=TIMES[:2]),)}
    assert () == make_cluster_charts(two)
    assert () == make_cluster_charts({"jobs": (), "cores": (curve("other", 1, 1, 1),)})
